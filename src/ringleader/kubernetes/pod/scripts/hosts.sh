# Read by the other scripts. Needs the variables of job.sh.

# Set $host, and $skip: the number of words up to and including it. The words are those that ssh would get.
find_host() {
    host= skip=0
    while [ $# -gt 0 ]; do
        skip=$((skip + 1))
        case $1 in
        -[BDEFIJLOPQRSWbceilmopw]) # an option and its value
            skip=$((skip + 1))
            shift
            ;;
        -*) ;;
        *)
            host=${1##*@}
            return
            ;;
        esac
        [ $# -eq 0 ] || shift
    done
}

# Say whether $host is this launcher, with its own ranks: Open MPI 5 and MPICH call it like any other host.
is_here() {
    [ -n "$LAUNCHER" ] && [ "${host%%.*}" = "$LAUNCHER" ]
}

# Run a command here. As ssh does it: the words are joined with spaces, and a shell reads them.
run_here() {
    IFS=' '
    exec /bin/sh -c "$*"
}

# Remember that mpirun asked for $host, for the check that called mpirun.
note_host() {
    [ -z "$RINGLEADER_CONTACTED" ] || printf '%s\n' "$host" >>"$RINGLEADER_CONTACTED"
}

#!/bin/sh
# Run the mpirun of this name, and fail where it reached fewer hosts than its ranks need.
name=${0##*/}
here=${0%/check/*}
. "$here/job.sh"

# Our folders leave the PATH: what mpirun starts finds the real one.
rest=$PATH: PATH=
while [ -n "$rest" ]; do
    folder=${rest%%:*}
    rest=${rest#*:}
    case $folder in
    "$here"/check/*) ;;
    *) PATH=$PATH${PATH:+:}$folder ;;
    esac
done
real=${RINGLEADER_MPIRUN:-$name}
unset RINGLEADER_MPIRUN

# What the words say: the number of ranks, and whether the user chose hosts or their number himself.
ranks= before= chosen=
for word do
    case $before in
    -n | -np | --n | --np | -c)
        case $word in
        *[!0-9]* | '') ;;
        *) [ -n "$ranks" ] || ranks=$word ;;
        esac
        ;;
    -hostfile | --hostfile | -machinefile | --machinefile | -default-hostfile | --default-hostfile | -f)
        [ "$word" = "$HOSTFILE" ] || chosen=yes
        ;;
    esac
    case $word in
    --np=* | -np=* | --n=* | -n=*)
        case ${word#*=} in
        *[!0-9]* | '') ;;
        *) [ -n "$ranks" ] || ranks=${word#*=} ;;
        esac
        ;;
    : | -H | -host | --host | -host=* | --host=* | -hosts | --hosts | -hosts=* | --hosts=*) chosen=yes ;;
    --hostfile=* | -hostfile=* | --machinefile=* | -machinefile=*) chosen=yes ;;
    -app | --app | -configfile | --configfile | -rankfile | --rankfile | -rf | *rankfile:*) chosen=yes ;;
    -N | -ppn | --ppn | -perhost | --perhost | -rr | -grr | *npernode* | *pernode* | *npersocket* | *ppr:*) chosen=yes ;;
    plm | plm_rsh_agent | plm_ssh_agent | -launcher* | --launcher* | -bootstrap* | --bootstrap* | -rmk) chosen=yes ;;
    -h | -help | --help | -V | --version | -version | -info | --info) chosen=yes ;;
    esac
    before=$word
done
for pair in $EXPECTED; do
    eval "value=\${${pair%%=*}-${pair#*=}}"
    [ "$value" = "${pair#*=}" ] || chosen=yes
done

# How many other hosts that many ranks need at least, however they are mapped.
others=0 first=
while read -r host words; do
    host=${host%%:*}
    : "${first:=$host}"
    [ "${host%%.*}" = "$LAUNCHER" ] || others=$((others + 1))
done <"$HOSTFILE"
needed=$others
if [ -n "$ranks" ] && [ "$SLOTS" -gt 0 ]; then
    needed=$(((ranks + SLOTS - 1) / SLOTS))
    [ -z "$LAUNCHER" ] || needed=$((needed - 1))
    [ "$needed" -le "$others" ] || needed=$others
elif [ -z "$ranks" ] && [ "$RANKS_BY_DEFAULT" = 1 ]; then
    chosen=yes
fi
# Where the ranks of a JAX program meet, in the words of Open MPI 4, which sets its own: on rank 0's host. Open
# MPI 5 passes on what begins so, and has no other use for it.
if [ -z "$chosen" ] && [ -n "$first" ]; then
    : "${OMPI_MCA_orte_hnp_uri:=0.0;tcp://$first:61440}"
    export OMPI_MCA_orte_hnp_uri
fi
RINGLEADER_CONTACTED=$here/contacted/$$
if [ -n "$chosen" ] || [ "$needed" -le 0 ] || [ "$SLOTS" -le 0 ] || ! (: >"$RINGLEADER_CONTACTED") 2>/dev/null; then
    unset RINGLEADER_CONTACTED
    exec "$real" "$@"
fi
export RINGLEADER_CONTACTED
rm -f "$RINGLEADER_CONTACTED.none"

pid= asked=
for signal in HUP INT QUIT TERM USR1 USR2; do
    trap "asked=$signal; [ -z \"\$pid\" ] || kill -$signal \$pid 2>/dev/null" "$signal"
done
exec 9<&0 # a shell gives what it runs beside itself an empty input, unless told otherwise
"$real" "$@" <&9 9<&- &
pid=$!
exec 9<&-
[ -z "$asked" ] || kill "-$asked" "$pid" 2>/dev/null
# mpirun turns to other hosts before anything else: one that has not after this long never will.
: >"$RINGLEADER_CONTACTED.runs"
{
    left=${RINGLEADER_CHECK_SECONDS:-120}
    while [ ! -s "$RINGLEADER_CONTACTED" ] && [ -e "$RINGLEADER_CONTACTED.runs" ]; do
        if [ "$left" -le 0 ]; then
            : >"$RINGLEADER_CONTACTED.none"
            kill -TERM "$pid"
            break
        fi
        left=$((left - 1))
        sleep 1
    done
} </dev/null >/dev/null 2>&1 &
# A signal to us ends a wait, too, with its own code; a shell tells the real one once (127: it has).
code=
while :; do
    asked=
    wait "$pid"
    told=$?
    [ "$told" -ne 127 ] || [ -z "$code" ] || break
    code=$told
    [ -n "$asked" ] || break
done
rm -f "$RINGLEADER_CONTACTED.runs"

[ "$code" -eq 0 ] || [ -e "$RINGLEADER_CONTACTED.none" ] || exit "$code"
contacted=' '
while read -r host; do
    contacted="$contacted$host "
done <"$RINGLEADER_CONTACTED"
reached=0 missing= more=0
while read -r host words; do
    host=${host%%:*}
    case $contacted in
    *" $host "*) reached=$((reached + 1)) ;;
    *)
        if [ "${host%%.*}" = "$LAUNCHER" ]; then
            :
        elif [ "$more" -lt 5 ]; then
            missing="$missing${missing:+, }$host"
            more=$((more + 1))
        else
            more=$((more + 1))
        fi
        ;;
    esac
done <"$HOSTFILE"
[ "$reached" -lt "$needed" ] || exit "$code"
[ "$more" -le 5 ] || missing="$missing and $((more - 5)) more"
text="$name reached $reached of the $needed hosts that its ${ranks:-}${ranks:+ }ranks need ($SLOTS slots each): \
they ran elsewhere. Not reached: $missing"
hint="does this MPI read $HOSTFILE? RINGLEADER_CHECK_HOSTS=off in the launcher's environment ends this check"
printf 'ringleader: %s\n    → %s\n' "$text" "$hint" >&2
[ ! -w /dev/termination-log ] || printf '%s\n' "$text" >/dev/termination-log
exit 3

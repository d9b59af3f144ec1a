#!/bin/sh
# mpirun calls this where it would call ssh, with the same words; the worker needs no sshd.
here=${0%/*}
. "$here/job.sh"
. "$here/hosts.sh"
find_host "$@"
if [ -z "$host" ] || [ $# -le "$skip" ]; then
    echo "ringleader: usage: kubexec.sh HOST COMMAND..." >&2
    exit 2
fi
shift "$skip"
note_host
! is_here || run_here "$@"
# As ssh does it: the words are joined with spaces, and the other side's shell reads them.
IFS=' '
exec "$here/kubectl" --kubeconfig="$here/kubeconfig" exec "${host%%.*}" --container="$CONTAINER" -- /bin/sh -c "$*"

"""The main process of a container: ``python -I -S container_main.py PROGRAM ARGUMENT…``.

What it starts is mpirun or, on another host, the MPI's daemon; rank agents are below that. The container has
the host's processes, so it sees the end of the engine's client, whose number is in CLIENT, even by SIGKILL,
after which engines leave containers behind. Then, as on SIGTERM, the program gets SIGTERM; what still runs
SECONDS after the client's end is killed. It ends last: an MPI's daemon goes to the background.
"""

from __future__ import annotations

import os
import sys
import time

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))  # noqa: PTH100, PTH120
if _ROOT not in sys.path:  # run by path
    sys.path.append(_ROOT)
from ringleader.agents import process_tree  # noqa: E402
from ringleader.agents.light_imports import signal, suppress  # noqa: E402
from ringleader.agents.parent_death import started  # noqa: E402

CLIENT = "RINGLEADER_CONTAINER_CLIENT"
"""Variable with the process number of the engine's client."""
SECONDS = 3.0
"""From the client's end to SIGKILL: rank agents notice by themselves that the launcher is gone."""
POLL_SECONDS = 0.25
KILLED = 128 + signal.SIGKILL
"""Our exit code after the client's end; nothing reads it."""
WATCHED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


def main() -> None:
    """Start the program, stay until it and all below it have ended, and end as it did."""
    client = os.environ.pop(CLIENT, "")
    began = _start_time(client)
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    process_tree.become_subreaper()
    child = started(sys.argv[1:], WATCHED)
    status = kill_at = None
    while status is None or not process_tree.childless():
        came = signal.sigtimedwait(WATCHED, POLL_SECONDS)
        status = dict(process_tree.reap()).get(child, status)
        is_ordered = came is not None and came.si_signo != signal.SIGCHLD
        if client and kill_at is None and _start_time(client) != began:
            is_ordered, kill_at = True, time.monotonic() + SECONDS
        if is_ordered and status is None:
            process_tree.send([child], signal.SIGTERM)
        if kill_at is not None and time.monotonic() > kill_at:
            process_tree.kill_below(os.getpid())
            os._exit(KILLED)
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)  # as a shell says by which signal it ended


def _start_time(pid: str) -> str:
    """Return when a process started, which another one with its number has not; empty: it is gone."""
    with (
        suppress(OSError),
        open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file,  # noqa: PTH123
    ):
        fields = file.read().rpartition(")")[2].split()
        return "" if fields[0] in ("Z", "X") else fields[19]
    return ""


if __name__ == "__main__":
    main()

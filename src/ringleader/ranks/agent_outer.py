"""Two processes for each rank, so that no single SIGKILL leaves anything behind.

    mpirun / its daemon → guard → warden → the rank's command and everything it starts

The guard is what mpirun started. It ends with its parent (parent-death signal), so the death of mpirun or
of a host's daemon reaches us even when nothing can be sent any more. The warden does the work in a session
of its own, out of reach of mpirun's signals to the guard's process group, and is told when the guard dies.
If the warden dies instead, the guard inherits its orphans and kills them.
"""

from __future__ import annotations

import os
import sys

from ringleader.ranks import process_tree
from ringleader.ranks.fast_stdlib import signal, suppress

TYPE_CHECKING = False  # see light.py
if TYPE_CHECKING:
    from collections.abc import Mapping

ALONE = 3
"""Exit code of a warden whose launcher was gone."""
DAEMONS = ("prted", "orted", "hydra_pmi_proxy")
"""Names of the processes by which MPIs start ranks on other hosts."""
ORDERED = signal.SIGHUP
"""What the guard sends the warden where the MPI wants us to end; SIGTERM where anybody else does."""
_AWAITED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
FAILED = 1
"""Exit code of an agent that could not do its work; the rank's own code goes to the launcher instead."""


def run(environ: Mapping[str, str]) -> int:
    """Guard a warden until it ends; return the exit code that mpirun sees."""
    for fd in (0, 1, 2):
        _make_sure_open(fd)
    process_tree.die_with_parent(signal.SIGKILL, os.getppid())
    if os.getppid() == 1:
        return FAILED  # our parent died before we could ask to die with it
    process_tree.become_subreaper()
    guard, starter = os.getpid(), os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    try:
        warden = os.fork()
    except OSError as error:
        sys.stderr.write(f"ringleader agent: cannot start a process: {error.strerror} (see `ulimit -u`)\n")
        return FAILED
    if warden == 0:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
        os._exit(_be_warden(guard, starter, environ))
    status = _wait_for(warden, starter)
    process_tree.kill_below(guard, 5.0)
    if os.WIFSIGNALED(status):
        _tell_of_the_warden(environ, os.WTERMSIG(status))
        _leave_for_the_warden(environ)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == ALONE:
        _end_daemon(os.getppid())
    return FAILED if status else 0


def _end_daemon(parent: int) -> None:
    """End the MPI's daemon that started us: cut off from its mpirun, it would wait for a word from there.

    mpirun itself, our parent on the launching host, is the launcher's business.
    """
    if daemon_name(parent):
        process_tree.send([parent], signal.SIGTERM)


def daemon_name(pid: int) -> str:
    """Return the name of an MPI's daemon; empty for mpirun, and for a process that has ended."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as file:  # noqa: PTH123 - see identity.py
            name = file.read().strip()
    except OSError:
        return ""
    return name if name in DAEMONS else ""


def _wait_for(warden: int, starter: int) -> int:
    """Reap whatever is reparented to us until the warden ends; return its wait status.

    Signals are passed on: as ORDERED where the MPI's process that started us sent them, else as SIGTERM.
    """
    while True:
        came = signal.sigwaitinfo(_AWAITED)
        if came.si_signo != signal.SIGCHLD:
            process_tree.send([warden], ORDERED if came.si_pid == starter else signal.SIGTERM)
        for pid, status in process_tree.reap():
            if pid == warden:
                return status


def _tell_of_the_warden(environ: Mapping[str, str], number: int) -> None:
    """Tell the launcher that a signal killed our other half, which can say nothing any more."""
    from ringleader.ranks import agent_inner as warden
    from ringleader.ranks import control_protocol, rank_identity

    with suppress(warden.UnreachableError, OSError):
        sock = warden.connect(
            environ.get("RINGLEADER_CONTROL", ""), environ.get("RINGLEADER_TOKEN", ""), rounds=1
        )
        rank = rank_identity.number(environ, rank_identity.RANK_NAMES)
        sock.setblocking(True)
        sock.sendall(control_protocol.message(do="agent_killed", rank=rank, signal=number))
        sock.close()


def _leave_for_the_warden(environ: Mapping[str, str]) -> None:
    """Remove what the job has on this host, where a warden that a signal killed was its last one here."""
    from ringleader.ranks import job_directory, rank_identity

    with suppress(KeyError, OSError):
        key = rank_identity.host_key(rank_identity.host_identity())
        job_directory.JobDirectory(environ["RINGLEADER_JOB_DIR"], key).leave()


def _make_sure_open(fd: int) -> None:
    """Open a standard descriptor that our parent left closed, so that no other file gets its number."""
    try:
        os.fstat(fd)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _be_warden(guard: int, starter: int, environ: Mapping[str, str]) -> int:
    from ringleader.ranks import agent_inner as warden

    try:
        os.setsid()
        return warden.serve(guard, starter, environ)
    except warden.UnreachableError as error:
        sys.stderr.write(f"ringleader agent: {error}\n")
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        process_tree.kill_below(os.getpid(), 5.0)
    return FAILED

"""The outer one of a rank's two processes; two, so that no single SIGKILL leaves anything behind.

    mpirun / its daemon → outer → inner → the rank's command and everything it starts

The outer process is what mpirun started. It ends with its parent (parent-death signal), so the death of
mpirun or of a host's daemon reaches us even when nothing can be sent any more. The inner one does the work in
its own session, out of reach of mpirun's signals to the outer one's process group, and is notified when the
outer one dies. If the inner one dies instead, the outer one inherits its orphans and kills them.
"""

from __future__ import annotations

import os
import sys

from ringleader.agents import process_tree, rank_identity
from ringleader.agents.light_imports import Callable, Mapping, signal, suppress

ALONE = 3
"""Exit code of an inner process whose launcher was gone."""
ORDERED = signal.SIGHUP
"""What the outer process sends the inner one where the MPI wants us to end; SIGTERM where another does."""
AWAITED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD)
"""What both processes wait for; blocked before the fork, so that none of them ends one that is not ready."""
FAILED = 1
"""Exit code of an agent that could not do its work; the rank's own code goes to the launcher instead."""


def run(environ: Mapping[str, str], run_inner: Callable[[int, int], int]) -> int:
    """Start the inner process and stay until it ends; return the exit code that mpirun sees.

    ``run_inner(our pid, pid of the MPI's process that started us)`` is what the inner one does, with AWAITED
    still blocked; it returns its exit code.
    """
    for fd in (0, 1, 2):
        make_sure_open(fd)
    process_tree.die_with_parent(signal.SIGKILL, os.getppid())
    if os.getppid() == 1:
        return FAILED  # our parent died before we could ask to die with it
    process_tree.become_subreaper()
    outer, starter = os.getpid(), os.getppid()
    signal.pthread_sigmask(signal.SIG_BLOCK, AWAITED)
    try:
        inner = os.fork()
    except OSError as error:
        sys.stderr.write(f"ringleader agent: cannot start a process: {error.strerror} (see `ulimit -u`)\n")
        return FAILED
    if inner == 0:
        os._exit(run_inner(outer, starter))
    status = _wait_for(inner, starter)
    process_tree.kill_below(outer)
    if os.WIFSIGNALED(status):
        _tell_of_the_inner_process(environ, os.WTERMSIG(status))
        _leave_for_the_inner_process(environ)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == ALONE and rank_identity.daemon_name(os.getppid()):
        # Cut off from its mpirun, the MPI's daemon that started us would wait for a word from there. mpirun
        # itself, our parent on the launching host, is the launcher's business.
        process_tree.send([os.getppid()], signal.SIGTERM)
    return FAILED if status else 0


def _wait_for(inner: int, starter: int) -> int:
    """Reap whatever is reparented to us until the inner process ends; return its wait status.

    Signals are passed on: SIGQUIT as it is, others as ORDERED where the MPI's process that started us sent
    them, else as SIGTERM.
    """
    while True:
        came = signal.sigwaitinfo(AWAITED)
        if came.si_signo == signal.SIGQUIT:
            process_tree.send([inner], signal.SIGQUIT)
        elif came.si_signo != signal.SIGCHLD:
            process_tree.send([inner], ORDERED if came.si_pid == starter else signal.SIGTERM)
        for pid, status in process_tree.reap():
            if pid == inner:
                return status


def _tell_of_the_inner_process(environ: Mapping[str, str], number: int) -> None:
    """Tell the launcher that a signal killed our other half, which can say nothing any more."""
    from ringleader.agents.protocol import LauncherUnreachableError, connect

    with suppress(LauncherUnreachableError, OSError):
        launcher = connect(
            environ.get("RINGLEADER_CONTROL", ""), environ.get("RINGLEADER_TOKEN", ""), rounds=1
        )
        rank = rank_identity.number(environ, rank_identity.RANK_NAMES)
        launcher.say(do="agent_killed", rank=rank, signal=number)
        launcher.close()


def _leave_for_the_inner_process(environ: Mapping[str, str]) -> None:
    """Remove what the job has on this host, where a killed inner process was its last one here."""
    from ringleader.agents import job_directory

    with suppress(KeyError, OSError):
        key = rank_identity.host_key(rank_identity.host_identity())
        job_directory.JobDirectory(environ["RINGLEADER_JOB_DIR"], key).leave()


def make_sure_open(fd: int) -> None:
    """Open a standard descriptor that our parent left closed, so that no other file gets its number."""
    try:
        os.fstat(fd)
    except OSError:
        os.open(os.devnull, os.O_RDWR)

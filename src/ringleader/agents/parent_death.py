"""Runs a command that does not outlive us: ``python -I -S parent_death.py SECONDS PID PROGRAM ARGUMENT…``.

A process between us and the command, which the kernel notifies of our end, also of one by SIGKILL. Then, or
on SIGTERM, it ends the command and everything below it: SIGTERM, and SIGKILL after SECONDS. PID is ours.
Streams and exit code are the command's own, a signal that ended it included.
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

NOT_FOUND = 127
POLL_SECONDS = 0.05


def argv(command: tuple[str, ...], *, seconds: float = 5.0) -> tuple[str, ...]:
    """Return the words that run a command in this way; this process is the one it must not outlive.

    The program is looked for here first, so that one that does not exist is an OSError of ``Popen``.
    """
    import shutil

    program = shutil.which(command[0])
    if program is None:
        return command
    ours = (sys.executable, "-I", "-S", os.path.abspath(__file__))  # noqa: PTH100 - see rank_agent.py
    return (*ours, str(seconds), str(os.getpid()), program, *command[1:])


def main() -> None:
    """Start the command, wait for its end or our parent's."""
    seconds, parent, command = float(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    ours = os.getpid()
    watched = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    process_tree.become_subreaper()
    process_tree.die_with_parent(signal.SIGTERM, parent)
    child = started(command, watched)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the command's alone: who reads them sees where it ends
        os.dup2(null, stream)
    kill_at = None
    while (status := dict(process_tree.reap()).get(child)) is None:
        got = signal.sigtimedwait(watched, POLL_SECONDS if kill_at is not None else 3600.0)
        if got is not None and got.si_signo != signal.SIGCHLD and kill_at is None:
            process_tree.ask_to_end(ours)
            kill_at = time.monotonic() + seconds
        if kill_at is not None and time.monotonic() > kill_at:
            process_tree.send(process_tree.below(ours), signal.SIGKILL)
    if kill_at is not None:
        while not process_tree.childless() and time.monotonic() < kill_at:
            process_tree.reap()
            time.sleep(POLL_SECONDS)
        process_tree.kill_below(ours)
    _end_as(status)


def started(command: list[str], watched: tuple[int, ...]) -> int:
    """Start a command with the signals of a fresh process, which ends with us; return its process id."""
    ours = os.getpid()
    child = os.fork()
    if child:
        return child
    for number in (*watched, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        process_tree.die_with_parent(signal.SIGKILL, ours)
        os.execv(command[0], command)
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
    os._exit(NOT_FOUND)


def _end_as(status: int) -> None:
    """End as the command ended: of the same signal, or with its exit code."""
    if os.WIFSIGNALED(status):
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        with suppress(OSError):  # SIGKILL has no other disposition
            signal.signal(os.WTERMSIG(status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


if __name__ == "__main__":
    main()

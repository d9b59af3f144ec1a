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

from ringleader.ranks import tree
from ringleader.ranks.light import signal

TYPE_CHECKING = False  # see light.py
if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

ALONE = 3
"""Exit code of a warden whose launcher was gone."""
DAEMONS = ("prted", "orted", "hydra_pmi_proxy")
"""Names of the processes by which MPIs start ranks on other hosts."""
FAILED = 1
"""Exit code of an agent that could not do its work; the rank's own code goes to the launcher instead."""


def run(environ: Mapping[str, str]) -> int:
    """Guard a warden until it ends; return the exit code that mpirun sees."""
    for fd in (0, 1, 2):
        _make_sure_open(fd)
    tree.die_with_parent(signal.SIGKILL, os.getppid())
    if os.getppid() == 1:
        return FAILED  # our parent died before we could ask to die with it
    tree.become_subreaper()
    guard = os.getpid()
    warden = os.fork()
    if warden == 0:
        os._exit(_be_warden(guard, environ))
    forwarded = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def forward(number: int, frame: FrameType | None) -> None:
        tree.send([warden], signal.SIGTERM)

    for number in forwarded:
        signal.signal(number, forward)
    status = _wait_for(warden)
    tree.kill_below(guard, 5.0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status) == ALONE:
        _end_daemon(os.getppid())
    return FAILED if status else 0


def _end_daemon(parent: int) -> None:
    """End the MPI's daemon that started us: cut off from its mpirun, it would wait for a word from there.

    mpirun itself, our parent on the launching host, is the launcher's business.
    """
    try:
        with open(f"/proc/{parent}/comm", encoding="utf-8") as file:  # noqa: PTH123 - see identity.py
            name = file.read().strip()
    except OSError:
        return
    if name in DAEMONS:
        tree.send([parent], signal.SIGTERM)


def _wait_for(warden: int) -> int:
    """Reap whatever is reparented to us until the warden ends; return its wait status."""
    while True:
        pid, status = os.wait()
        if pid == warden:
            return status


def _make_sure_open(fd: int) -> None:
    """Open a standard descriptor that our parent left closed, so that no other file gets its number."""
    try:
        os.fstat(fd)
    except OSError:
        os.open(os.devnull, os.O_RDWR)


def _be_warden(guard: int, environ: Mapping[str, str]) -> int:
    from ringleader.ranks import warden

    try:
        os.setsid()
        return warden.serve(guard, environ)
    except warden.UnreachableError as error:
        sys.stderr.write(f"ringleader agent: {error}\n")
    except Exception:
        import traceback

        traceback.print_exc()
    finally:
        sys.stderr.flush()
        tree.kill_below(os.getpid(), 5.0)
    return FAILED

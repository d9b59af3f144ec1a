"""How many files launcher and mpirun must have open at once, and making room for them.

Every rank is a connection of the launcher's and some pipes of its mpirun's. Past the limit mpirun may crash
instead of saying so; so the limit is raised as far as it may be, and what cannot fit is refused in words.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

from ringleader.errors import RefusedError
from ringleader.plan.rank_placement import Plan

_OTHERS = 64
"""Files that each program has open besides."""
_OF_MPIRUN, _OF_HOST = 4, 4
"""Files of mpirun's, or of its daemon, for each rank of this machine and for each other host (counted for
Open MPI 4 and 5 and MPICH: 2 to 4)."""


def open_files_needed(plan: Plan, *, files: bool) -> int:
    """Return how many files the launcher or mpirun may have open at once, whichever has more.

    ``files``: whether there is an output directory.
    """
    here = sum(count for host, count in zip(plan.hosts, plan.counts(), strict=True) if host.is_local)
    launcher = plan.size * (3 if files else 1)
    mpirun = _OF_MPIRUN * here + _OF_HOST * len(plan.hosts)
    return _OTHERS + max(launcher, mpirun)


@contextlib.contextmanager
def open_files(needed: int, pid: int) -> Iterator[int]:
    """Raise the limit for us and for process ``pid``, where it is too low; yield what it was.

    Raises RefusedError where the hard limit does not allow it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise RefusedError(
            f"the job needs {needed} open files on this machine, {hard} are allowed",
            where="open files",
            hint="raise the hard limit (ulimit -Hn, /etc/security/limits.conf), or start fewer ranks here",
        )
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield soft
        return
    # Not to the hard limit: some MPIs go through all numbers up to the limit whenever they start a process.
    raised = 2 * needed if hard == resource.RLIM_INFINITY else min(2 * needed, hard)
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (raised, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
    try:
        yield soft
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

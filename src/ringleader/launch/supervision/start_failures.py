"""What can be wrong with a start: misplaced ranks, an mpirun that failed, ranks that never reported."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.errors import Fault
from ringleader.job import Job, Mpi
from ringleader.launch.message_words import ranks_named
from ringleader.launch.mpirun.mpirun_output import relevant_lines
from ringleader.launch.mpirun.mpirun_process import MpirunProcess
from ringleader.launch.supervision.rank_state import RankState


def misplaced(state: RankState, mpi: Mpi, size: int) -> Fault | None:
    """Return what is wrong with where, or among how many, a rank that has reported was started."""
    hello = state.hello
    assert hello is not None
    who = f"{mpi.mpirun} ({mpi.name})"
    if hello["host"] != state.host.identity:
        return Fault(
            where=f"rank {state.rank}",
            what=f"{who} started it on {hello['hostname']}, not on {state.host.host.name} as planned",
            hint="this mpirun does not follow the hostfile it is given; use another with --mpi",
        )
    if hello["size"] not in (None, size):
        return Fault(where=f"rank {state.rank}", what=f"{who} says {hello['size']} ranks, {size} are planned")
    return None


def mpirun_failed(mpirun: MpirunProcess, mpi: Mpi, missing: Sequence[RankState]) -> Fault:
    """Return the fault of an mpirun that ended before the ranks ``missing`` had reported."""
    code = mpirun.exit_code
    how = f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
    said = relevant_lines(mpirun.output())
    what = mpirun.failure or (
        f"{mpi.mpirun} ({mpi.name}) {how} before {ranks_named(state.rank for state in missing)} had started"
    )
    return Fault(where="mpirun", what=what + (f"; it said:\n{said}" if said else ""))


def never_reported(mpirun: MpirunProcess, job: Job, missing: Sequence[RankState]) -> Fault:
    """Return the fault of ranks that had not reported when the time for a start was over."""
    hosts = ", ".join(dict.fromkeys(state.host.host.name for state in missing))
    said = relevant_lines(mpirun.output())
    return Fault(
        where="start",
        what=f"{ranks_named(state.rank for state in missing)} on {hosts} did not report within "
        f"{job.start_timeout:g} s" + (f"; mpirun said:\n{said}" if said else ""),
        hint="check that these hosts reach this one by TCP (firewall, --network-interface), "
        "or allow more time with --start-timeout",
    )

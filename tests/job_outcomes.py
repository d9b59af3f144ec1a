"""How a job ended that nothing has run: for tests whose launcher is scripted."""

from typing import Any

from ringleader.launch.outcome import Outcome
from ringleader.plan.job import Family, Host, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, place

MPI = Mpi(family=Family.OPENMPI5, version="5.0.11", mpirun="/mpi/bin/mpirun", library="/mpi/lib/libmpi.so")


def outcome_of(job: Job, code: int = 0, *, whose: str = "rank 1", reason: str = "", **more: Any) -> Outcome:
    """Return the outcome of a job whose hosts, else this machine, have two cores each."""
    hosts = job.hosts or (Host(name="localhost", slots=job.np or 1),)
    facts = tuple(
        HostFacts(
            host=one,
            hostname=one.name,
            identity=one.name,
            is_local=not job.hosts,
            cpus=(0, 1),
            addresses=(f"10.0.0.{number}",),
        )
        for number, one in enumerate(hosts, 1)
    )
    return Outcome(
        exit_code=code,
        whose=whose if code else "",
        reason=reason if code else "",
        first_failure=None,
        ends=(),
        plan=place(job, facts),
        mpi=MPI,
        seconds=1.0,
        **more,
    )

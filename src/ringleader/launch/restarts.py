"""When all ranks of a job start again after a failure, as torchrun's ``--max-restarts`` has it. Pure.

Any failure counts: of a rank, of an MPI's daemon, of a host. What the user ends stays ended: a signal, a
time-out, output that nobody reads.
"""

from __future__ import annotations

from ringleader.errors import ProbeError, RingleaderError
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.outcome import JobExit, Restart

PAUSE_SECONDS = 5.0
"""Before the hosts are asked again, where one of them did not answer."""
_FAILURES = (Why.RANK, Why.MPI, Why.LOST)


def restart_after(
    ended: JobExit, cause: Cause | None, *, interrupted: bool, made: int, most: int, at: float
) -> Restart | None:
    """Return the restart that follows an end of all ranks; ``None``: there is none, the job has ended.

    ``interrupted``: somebody told the job to end, although it had failed already. ``made``: restarts until
    now. ``at``: seconds from the launch.
    """
    if not ended.exit_code or interrupted or made >= most or (cause and cause.why not in _FAILURES):
        return None
    first = ended.first_failure
    return Restart(
        number=made + 1,
        most=most,
        at=at,
        reason=ended.reason,
        rank=None if first is None else first.rank,
        host="" if first is None else first.host,
        exit_code=ended.exit_code,
    )


def restart_after_refusal(error: RingleaderError, *, made: int, most: int, at: float) -> Restart | None:
    """Return the restart that follows one whose hosts did not answer; ``None``: the error ends the job.

    The first start is no restart: hosts that are not there then were never there.
    """
    if not 0 < made < most or not isinstance(error, ProbeError):
        return None
    return Restart(number=made + 1, most=most, at=at, reason=str(error))

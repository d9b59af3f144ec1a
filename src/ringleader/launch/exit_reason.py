"""From how the ranks ended to whose exit code the job's is, and in which words. Pure."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum

from ringleader.launch.lost_components import Lost, RootCause, outweighs
from ringleader.launch.message_words import signal_name
from ringleader.launch.mpirun.mpirun_output import relevant_lines
from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.plan.job import Mpi
from ringleader.value_class import dataclass

TIMED_OUT = 124
"""Exit code of a job that was stopped by ``--timeout``, as ``timeout(1)`` has it."""
SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""Signals that come from outside a process: its own mistakes raise others."""
NOTICED_SECONDS = 0.5
"""So long the news of a killed rank may come after the end of a peer whose MPI noticed it."""
PART_LOST = 3
"""Exit code of a job that lost a host, or a process that it stands on: no rank's, no signal's."""


class Why(StrEnum):
    """What made the launcher stop a job."""

    RANK = "rank"
    """A rank failed."""
    MPI = "mpi"
    """mpirun or a host's daemon ended, or ended a rank."""
    LOST = "lost"
    """The connection to a rank's agent broke."""
    TIMEOUT = "timeout"
    SIGNAL = "signal"
    REFUSED = "refused"
    """The MPI did something else than the plan: an error, not an outcome."""


@dataclass(frozen=True, kw_only=True)
class Cause:
    """Why a job was stopped."""

    why: Why
    at: float
    """Seconds from the job's start."""
    number: int = 0
    """The signal, for ``Why.SIGNAL``."""
    text: str = ""
    """What to say, where the kind does not say it all."""


def job_exit(
    *,
    ends: Sequence[RankEnd],
    cause: Cause | None,
    mpirun_code: int | None,
    output: str,
    aborts: Mapping[int, int],
    mpi: Mpi,
    root_cause: RootCause | None = None,
) -> JobExit:
    """Return whose exit code counts.

    ``root_cause``: what was lost, where anything was; ranks that failed because of that are not to blame.

    ``mpirun_code`` is negative for a signal, ``output`` what mpirun wrote itself, ``aborts`` rank → what it
    gave MPI_Abort. A rank that failed before the job was being stopped decides; of several the first in time.
    """
    failed = sorted((end for end in ends if end.failed), key=lambda end: end.at)
    ours = cause is not None and cause.why in (Why.TIMEOUT, Why.SIGNAL)
    # Hydra's daemons end with the job that a rank aborted; hosts and mpirun do not.
    aborted = bool(aborts) and root_cause is not None and root_cause.what >= Lost.DAEMON
    if root_cause is not None and cause is not None and not ours and not aborted:
        told = [end.at for end in failed if not end.orphaned and (end.exit_code or end.signal)]
        if outweighs(root_cause, min(told, default=root_cause.at)):
            return JobExit(
                exit_code=PART_LOST, whose=root_cause.whose, reason=root_cause.reason, first_failure=None
            )
    if cause is not None and cause.why in (Why.TIMEOUT, Why.SIGNAL):
        failed = [end for end in failed if end.at < cause.at]
    if mpirun_code is not None and mpirun_code < 0:  # what ranks did after that is its consequence
        failed, aborts = [end for end in failed if not end.orphaned], {}
    # Nor is a rank to blame that failed while the MPI was ending it, unless it made the MPI do so.
    failed = [end for end in failed if not end.orphaned or end.rank in aborts or end.code == mpirun_code]
    # A rank that nobody can say anything about is not as telling as one that said how it ended, and of those
    # that outlived their mpirun one called MPI_Abort: the one whose code mpirun passed on.
    failed.sort(
        key=lambda end: (
            end.exit_code is None and end.signal is None,
            end.orphaned,
            end.orphaned and end.code != mpirun_code,
        )
    )
    if killed := _killed_with(failed, aborts):
        failed.insert(0, killed)
    if not any(end.signal is None and end.exit_code is not None for end in failed):
        calls = [_aborted(end, aborts[end.rank]) for end in ends if end.rank in aborts]
        failed = calls[:1] or failed
    if failed:
        first = failed[0]
        return JobExit(
            exit_code=first.code, whose=f"rank {first.rank}", reason=how_it_ended(first), first_failure=first
        )
    if cause is None:
        return JobExit(exit_code=0, whose="", reason="", first_failure=None)
    if cause.why is Why.TIMEOUT:
        return JobExit(exit_code=TIMED_OUT, whose="ringleader", reason=cause.text, first_failure=None)
    if cause.why is Why.SIGNAL:
        reason = f"stopped by {signal.Signals(cause.number).name}"
        return JobExit(exit_code=128 + cause.number, whose="ringleader", reason=reason, first_failure=None)
    return _blame_mpirun(cause, mpirun_code, output, mpi)


def follows_a_restart(ended: JobExit, cause: Cause | None, *, interrupted: bool, left: int) -> bool:
    """Say whether all ranks start again after an end, of ``left`` restarts that are still allowed.

    ``interrupted``: somebody told the job to end, although it had failed already.
    """
    failed = cause is None or cause.why in (Why.RANK, Why.MPI, Why.LOST)
    return bool(ended.exit_code) and failed and not interrupted and left > 0


def _killed_with(failed: Sequence[RankEnd], aborts: Mapping[int, int]) -> RankEnd | None:
    """Return the rank that somebody killed while the first to fail left with an exit code of its own.

    A peer's MPI may notice a death and exit before the dead rank's agent has told of it. Nobody dies of these
    signals because a peer has left, and those that the launcher or the MPI sends are told as that.
    """
    if not failed or failed[0].signal is not None or failed[0].exit_code is None:
        return None
    until = failed[0].at + NOTICED_SECONDS
    victims = (end for end in failed if end.signal in SENT and not end.orphaned and end.rank not in aborts)
    return next((end for end in victims if end.at < until), None)


def _blame_mpirun(cause: Cause, code: int | None, output: str, mpi: Mpi) -> JobExit:
    """No rank failed by itself: mpirun, or something that killed one of its processes, ended the job."""
    if code is not None and code < 0:
        reason = f"mpirun of {mpi.name} was killed by {signal_name(-code)}"
        return JobExit(exit_code=PART_LOST, whose="mpirun", reason=reason, first_failure=None)
    reason = cause.text
    if code:
        reason += f"; mpirun of {mpi.name} ended with exit code {code}"
    said = relevant_lines(output)
    if said:
        reason += f" and said:\n{said}"
    return JobExit(exit_code=PART_LOST, whose="mpirun", reason=reason, first_failure=None)


def _aborted(end: RankEnd, code: int) -> RankEnd:
    """Return the end of a rank that called MPI_Abort and was ended by its MPI before it could exit."""
    return replace(
        end, exit_code=code & 0xFF or 1, signal=None, stopped="", reason=f"called MPI_Abort({code})"
    )


def how_it_ended(end: RankEnd) -> str:
    """Return one sentence on how a rank ended: ``rank 1 on h2 ended with exit code 1 after 3.2 s``."""
    text = f"rank {end.rank} on {end.host}"
    if end.signal is not None:
        text += f" was killed by {signal_name(end.signal)}"
    elif end.exit_code is None:
        return f"{text}: {end.reason}"
    elif end.reason:
        text += f" {end.reason} (exit code {end.exit_code})"
    else:
        text += f" ended with exit code {end.exit_code}"
    return f"{text} after {end.seconds:.1f} s" if end.seconds >= 0.05 else text

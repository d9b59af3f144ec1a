"""How a job ended: what was lost, whose exit code the job's is, and what mpirun printed of it. Pure.

One end brings others with it: mpirun that is killed takes the MPI's daemons along, these the agents, these
the ranks. What is seen first is often not the first of it, so all of it is noted (``supervision``) and judged
at the end. The values that return are in ``outcome``.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import IntEnum, StrEnum

from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.plan.job import Mpi
from ringleader.plan.rank_placement import ranks_named
from ringleader.value_class import dataclass

TIMED_OUT = 124
"""Exit code of a job that was stopped by ``--timeout``, as ``timeout(1)`` has it."""
PART_LOST = 3
"""Exit code of a job that lost a host, or a process that it stands on: no rank's, no signal's."""
SENT = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
"""Signals that come from outside a process: its own mistakes raise others."""
NOTICED_SECONDS = 0.5
"""The news of a killed rank may come this much after the end of a peer whose MPI noticed it."""
WINDOW = 1.5
"""Seconds in which one end brings the others with it."""
RACE = 0.3
"""Seconds by which news from different connections may overtake each other."""

# --- what was lost ----------------------------------------------------------------------------------------


class Lost(IntEnum):
    """What was seen to end; of several within ``WINDOW`` the lowest number is the cause of the others."""

    SUPERVISOR = 1
    """The process of ours that stays with mpirun."""
    MPIRUN = 2
    """mpirun, killed by a signal."""
    SILENT = 3
    """A host from which nothing came any more, not even from its kernel."""
    HOST = 4
    """A host whose agents are all gone without a word, while it closed their connections."""
    SESSION = 5
    """The ssh connection to a host."""
    DAEMON = 6
    """The MPI's daemon on a host."""
    AGENT = 7
    """A rank's agent."""
    VANISHED = 8
    """A rank's agent whose connection ended without a word; ``root_cause`` finds out what that means."""
    MPI = 9
    """The MPI ended a rank, and nobody said why."""


@dataclass(frozen=True, kw_only=True)
class Loss:
    """One thing that was seen."""

    what: Lost
    at: float
    """Seconds from the job's start."""
    host: str = ""
    rank: int | None = None
    signal: int = 0
    """The signal that ended it, where that is known."""


@dataclass(frozen=True, kw_only=True)
class JobHosts:
    """What is to be known of the job's hosts."""

    ranks_of: Mapping[str, Sequence[int]]
    """Host → its ranks."""
    remote: frozenset[str]
    """Hosts other than the launching one."""
    lost_after: float
    mpi: str
    """The MPI's name and version."""


@dataclass(frozen=True, kw_only=True)
class RootCause:
    """What a job ended by."""

    what: Lost
    at: float
    whose: str
    reason: str


def root_cause(losses: Sequence[Loss], job_hosts: JobHosts) -> RootCause | None:
    """Return the loss that brought the others with it; ``None`` where nobody knows why the MPI ended."""
    seen = _understood(losses, job_hosts)
    # An ssh connection may end because nobody uses it any more: then nothing else ends with it.
    firsts = [loss.at for loss in seen if loss.what is not Lost.SESSION]
    if not firsts:
        return None
    first = min(firsts)
    together = [loss for loss in seen if first - WINDOW <= loss.at <= first + WINDOW]
    # An MPI that ends a job may kill agents outright: several at once were not hit one by one.
    agents = {loss.rank for loss in together if loss.what is Lost.AGENT and not loss.signal}
    if len(agents) > 1 and any(loss.what is Lost.MPI for loss in losses):
        together = [loss for loss in together if loss.what is not Lost.AGENT or loss.signal]
    together = [loss for loss in together if loss.what is not Lost.MPI]
    if not together:
        return None
    cause = min(together, key=lambda loss: (loss.what, loss.at))
    hosts = [loss.host for loss in together if loss.what is cause.what and loss.host]
    whose, reason = _words(cause, list(dict.fromkeys(hosts)), job_hosts)
    return RootCause(what=cause.what, at=min(first, cause.at), whose=whose, reason=reason)


def _understood(losses: Sequence[Loss], job_hosts: JobHosts) -> list[Loss]:
    """Return the losses with those of agents that vanished turned into what they mean."""
    told = {loss.rank for loss in losses if loss.what is Lost.AGENT}
    silent = {loss.host for loss in losses if loss.what is Lost.SILENT}
    vanished = {loss.rank for loss in losses if loss.what is Lost.VANISHED}
    found = []
    for loss in losses:
        if loss.what is not Lost.VANISHED:
            found.append(loss)
        elif loss.rank not in told and loss.host not in silent:
            there = set(job_hosts.ranks_of[loss.host])
            whole = loss.host in job_hosts.remote and there <= vanished and not there & told
            what = Lost.HOST if whole else Lost.AGENT
            found.append(replace(loss, what=what, signal=signal.SIGKILL))
    return found


def _words(cause: Loss, hosts: list[str], job_hosts: JobHosts) -> tuple[str, str]:
    """Return whose it is, and a sentence."""
    how = f"was killed by {signal_name(cause.signal)}" if cause.signal else "was ended from outside the job"
    if cause.what is Lost.SUPERVISOR:
        what = f"the launcher's process that supervises mpirun {how}, and mpirun with it"
        return "supervisor of mpirun", what
    if cause.what is Lost.MPIRUN:
        return "mpirun", f"mpirun of {job_hosts.mpi} {how}"
    if cause.what is Lost.AGENT:
        return f"agent of rank {cause.rank}", f"the agent of rank {cause.rank} on {cause.host} {how}"
    names = ", ".join(hosts)
    ranks = sorted(rank for host in hosts for rank in job_hosts.ranks_of.get(host, ()))
    lost = f"; lost with it: {ranks_named(ranks)}" if ranks else ""
    if cause.what is Lost.SILENT:
        reason = f"nothing came from {names} for {job_hosts.lost_after:g} s (--lost-after): "
        if len(hosts) > 1 and set(hosts) == job_hosts.remote:
            reason += "as that is every other host, this machine's own network may be down"
        else:
            reason += f"{'it is' if len(hosts) == 1 else 'they are'} down, or the network is{lost}"
    elif cause.what is Lost.HOST:
        reason = f"{names} was lost: everything on it that belongs to the job ended at once{lost}"
    elif cause.what is Lost.SESSION:
        reason = f"the ssh connection to {names} ended, by which the MPI keeps its daemon there{lost}"
    else:
        reason = f"the MPI's daemon on {names} {how}{lost}"
    return f"host{'s' if len(hosts) > 1 else ''} {names}", reason


def outweighs(cause: RootCause, failed_at: float) -> bool:
    """Say whether a loss explains the failure of a rank at this time, and not the failure the loss.

    A rank that fails takes neither daemons nor hosts with it, so these explain it even where its news was
    faster. An agent may be ended because of its rank.
    """
    return cause.at <= failed_at + (RACE if cause.what >= Lost.AGENT else WINDOW)


# --- whose exit code counts -------------------------------------------------------------------------------


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
            return _ended(PART_LOST, root_cause.whose, root_cause.reason)
    if ours and cause is not None:
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
        return _ended(first.code, f"rank {first.rank}", how_it_ended(first), first)
    if cause is None:
        return _ended(0, "", "")
    if cause.why is Why.TIMEOUT:
        return _ended(TIMED_OUT, "ringleader", cause.text)
    if cause.why is Why.SIGNAL:
        return _ended(128 + cause.number, "ringleader", f"stopped by {signal.Signals(cause.number).name}")
    return _blame_mpirun(cause, mpirun_code, output, mpi)


def _blame_mpirun(cause: Cause, code: int | None, output: str, mpi: Mpi) -> JobExit:
    """No rank failed by itself: mpirun, or something that killed one of its processes, ended the job."""
    if code is not None and code < 0:
        return _ended(PART_LOST, "mpirun", f"mpirun of {mpi.name} was killed by {signal_name(-code)}")
    reason = cause.text + (f"; mpirun of {mpi.name} ended with exit code {code}" if code else "")
    if said := relevant_lines(output):
        reason += f" and said:\n{said}"
    return _ended(PART_LOST, "mpirun", reason)


def _ended(code: int, whose: str, reason: str, first: RankEnd | None = None) -> JobExit:
    return JobExit(exit_code=code, whose=whose, reason=reason, first_failure=first)


def follows_a_restart(ended: JobExit, cause: Cause | None, *, interrupted: bool, left: int) -> bool:
    """Say whether all ranks start again after an end, of ``left`` restarts that are still allowed.

    ``interrupted``: somebody told the job to end, although it had failed already.
    """
    failed = cause is None or cause.why in (Why.RANK, Why.MPI, Why.LOST)
    return bool(ended.exit_code) and failed and not interrupted and left > 0


def _killed_with(failed: Sequence[RankEnd], aborts: Mapping[int, int]) -> RankEnd | None:
    """Return the rank that somebody killed while the first to fail left with its own exit code.

    A peer's MPI may notice a death and exit before the dead rank's agent has reported it. Nobody dies of
    these signals because a peer has left, and those that the launcher or the MPI sends are reported as that.
    """
    if not failed or failed[0].signal is not None or failed[0].exit_code is None:
        return None
    until = failed[0].at + NOTICED_SECONDS
    victims = (end for end in failed if end.signal in SENT and not end.orphaned and end.rank not in aborts)
    return next((end for end in victims if end.at < until), None)


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


# --- words that messages share ----------------------------------------------------------------------------


def signal_name(number: int) -> str:
    """Return ``SIGTERM``; of a real-time signal, which has no name, ``signal 40``."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


# --- what mpirun printed ----------------------------------------------------------------------------------

_MOST_LINES = 20
_OPEN_MPI_ABORT = re.compile(r"MPI_ABORT was invoked on rank (\d+) in.*?[Ee]rrorcode:? (-?\d+)", re.DOTALL)
_LOST_DAEMON = re.compile(
    r"Remote daemon:\s*\S+ on node (?P<node>\S+)|Remote host:\s*(?P<host>\S+)\s+Daemon exit status:"
)
_HYDRA_ABORT = re.compile(r"Abort\((-?\d+)\) on node \d+ \(rank \d+ in comm \d+\)")
_CAUSE = re.compile(r"\bringleader: |^(?:\w+\.)*\w+(?:Error|Exception): ")


def abort_code(line: str) -> int | None:
    """Return the code in the line that a rank of MPICH or Intel MPI writes when it calls MPI_Abort."""
    found = _HYDRA_ABORT.match(line)
    return int(found[1]) if found else None


def aborts_in(output: str) -> dict[int, int]:
    """Return rank → code of the MPI_Abort that Open MPI's mpirun reports."""
    found = _OPEN_MPI_ABORT.search(output)
    return {int(found[1]): int(found[2])} if found else {}


def daemons_lost_in(output: str) -> list[str]:
    """Return the nodes whose daemon Open MPI's mpirun says to have lost, by their own or our names."""
    return list(dict.fromkeys(found["node"] or found["host"] for found in _LOST_DAEMON.finditer(output)))


def cause_in(output: str) -> str:
    """Return the line that says why mpirun ended: a message of ours, or of Python; else the last line."""
    lines = [line.strip() for line in relevant_lines(output).splitlines()]
    return next((line for line in lines if _CAUSE.search(line)), lines[-1] if lines else "")


def relevant_lines(output: str) -> str:
    """Return the lines of mpirun's own output that say something, indented: no rulers, no repetitions."""
    texts = (line.strip() for line in output.splitlines())
    lines = list(dict.fromkeys(text for text in texts if text and not set(text) <= set("-=*+#")))
    if len(lines) > _MOST_LINES:
        lines = [*lines[: _MOST_LINES // 2], "…", *lines[-_MOST_LINES // 2 :]]
    return "\n".join(f"    {line}" for line in lines)

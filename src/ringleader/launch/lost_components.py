"""Who was lost when a job ends by no fault of its script: from what was seen to its cause. Pure.

One end brings others with it: mpirun that is killed takes the MPI's daemons along, these the agents, these
the ranks. What is seen first is often not the first of it, so all of it is noted and judged at the end.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from enum import IntEnum

from ringleader.launch.message_words import ranks_named, signal_name
from ringleader.value_class import dataclass

WINDOW = 1.5
"""Seconds in which one end brings the others with it."""
RACE = 0.3
"""Seconds by which news from different connections may overtake each other."""


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
            continue
        there = set(job_hosts.ranks_of[loss.host])
        if loss.rank in told or loss.host in silent:
            continue
        whole = loss.host in job_hosts.remote and there <= vanished and not there & told
        what = Lost.HOST if whole else Lost.AGENT
        found.append(Loss(what=what, at=loss.at, host=loss.host, rank=loss.rank, signal=signal.SIGKILL))
    return found


def _words(cause: Loss, hosts: list[str], job_hosts: JobHosts) -> tuple[str, str]:
    """Return whose it is, and a sentence."""
    how = _how(cause.signal)
    if cause.what is Lost.SUPERVISOR:
        return (
            "supervisor of mpirun",
            f"the launcher's process that supervises mpirun {how}, and mpirun with it",
        )
    if cause.what is Lost.MPIRUN:
        return "mpirun", f"mpirun of {job_hosts.mpi} {how}"
    if cause.what is Lost.AGENT:
        return f"agent of rank {cause.rank}", f"the agent of rank {cause.rank} on {cause.host} {how}"
    whose = f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
    if cause.what is Lost.SILENT:
        return whose, _silence(hosts, job_hosts)
    name = hosts[0] if len(hosts) == 1 else ", ".join(hosts)
    lost = _with_it(hosts, job_hosts)
    if cause.what is Lost.HOST:
        return whose, f"{name} was lost: everything on it that belongs to the job ended at once{lost}"
    if cause.what is Lost.SESSION:
        return whose, f"the ssh connection to {name} ended, by which the MPI keeps its daemon there{lost}"
    return whose, f"the MPI's daemon on {name} {how}{lost}"


def _silence(hosts: list[str], job_hosts: JobHosts) -> str:
    long = f"nothing came from {', '.join(hosts)} for {job_hosts.lost_after:g} s (--lost-after)"
    if len(hosts) > 1 and set(hosts) == job_hosts.remote:
        return f"{long}: as that is every other host, this machine's own network may be down"
    they = "it is" if len(hosts) == 1 else "they are"
    return f"{long}: {they} down, or the network is{_with_it(hosts, job_hosts)}"


def _with_it(hosts: Sequence[str], job_hosts: JobHosts) -> str:
    ranks = sorted(rank for host in hosts for rank in job_hosts.ranks_of.get(host, ()))
    return f"; lost with it: {ranks_named(ranks)}" if ranks else ""


def _how(number: int) -> str:
    return f"was killed by {signal_name(number)}" if number else "was ended from outside the job"


def outweighs(cause: RootCause, failed_at: float) -> bool:
    """Say whether a loss explains the failure of a rank at this time, and not the failure the loss.

    A rank that fails takes neither daemons nor hosts with it, so these explain it even where its news was
    faster. An agent may be ended because of its rank.
    """
    return cause.at <= failed_at + (RACE if cause.what >= Lost.AGENT else WINDOW)

"""What sources of hosts answer, and which of their answers count. Pure: no clock, no process, no file.

An answer that differs from the one before counts once the next answer is the same: a source that flaps, or is
read while somebody writes it, changes nothing. A source that fails later than the first time keeps its last
answer; the user hears of it once, and again when it answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ringleader.errors import Fault, RefusedError
from ringleader.host_list import parse_hostfile
from ringleader.job import Host
from ringleader.value_class import dataclass

MOST_RANKS = 4096
"""Ranks that an elastic job may have at a time, and so slots that a host may."""
ADDED, REMOVED = 1, 2
"""Bits of ``HostsChanged.result``, as ranks are told of a change."""


class HostSourceError(RefusedError):
    """A source of hosts does not answer, or answers with something that names no hosts."""


@dataclass(frozen=True, kw_only=True)
class HostsChanged:
    """The source has other hosts than before, and said so twice."""

    before: tuple[Host, ...]
    hosts: tuple[Host, ...]
    """All that there are now: those of before first, in their order, then the new ones in the source's."""

    @property
    def added(self) -> tuple[str, ...]:
        """Names of hosts that are new or have more slots."""
        slots = slots_by_name(self.before)
        return tuple(host.name for host in self.hosts if _more(host.slots, slots.get(host.name, 0)))

    @property
    def removed(self) -> tuple[str, ...]:
        """Names of hosts that are gone or have fewer slots."""
        slots = slots_by_name(self.hosts)
        return tuple(host.name for host in self.before if _more(host.slots, slots.get(host.name, 0)))

    @property
    def result(self) -> int:
        """ADDED, REMOVED or both."""
        return (ADDED if self.added else 0) | (REMOVED if self.removed else 0)

    def __str__(self) -> str:
        words = [f"+{name}" for name in self.added] + [f"-{name}" for name in self.removed]
        return " ".join(words)


@dataclass(frozen=True, kw_only=True)
class SourceWarning:
    """Something to tell the user about a source; its last answer still counts."""

    text: str


HostNews = HostsChanged | SourceWarning


class HostAnswers:
    """The answers of one source, one after the other."""

    def __init__(self, name: str, hosts: tuple[Host, ...]) -> None:
        """``hosts``: the first answer, which counts at once."""
        self.hosts = hosts
        """What counts now."""
        self._name = name
        self._candidate: dict[str, int | None] | None = None
        self._trouble = ""

    @property
    def in_doubt(self) -> bool:
        """True where the last answer was another one: the next says whether it counts."""
        return self._candidate is not None

    def take(self, hosts: tuple[Host, ...]) -> tuple[HostNews, ...]:
        """Take an answer; return what follows from it."""
        news: list[HostNews] = []
        if self._trouble:
            self._trouble = ""
            news.append(SourceWarning(text=f"{self._name} names hosts again"))
        found = slots_by_name(hosts)
        if found == slots_by_name(self.hosts):
            self._candidate = None
        elif found != self._candidate:
            self._candidate = found
        else:
            self._candidate = None
            before, self.hosts = self.hosts, known_first(hosts, self.hosts)
            news.append(HostsChanged(before=before, hosts=self.hosts))
        return tuple(news)

    def take_failure(self, error: RefusedError) -> tuple[HostNews, ...]:
        """Take an attempt that brought no answer; return what follows from it."""
        self._candidate = None
        text, self._trouble = self._trouble, str(error)
        if text == self._trouble:
            return ()
        names = ", ".join(host.name for host in self.hosts) or "no host"
        return (SourceWarning(text=f"{error}\n    → what it said last still counts: {names}"),)


def hosts_in(text: str, where: str) -> tuple[Host, ...]:
    """Read what a discovery script printed: ``host``, ``host:2`` or ``host slots=2``, one a line.

    No line is no fault: there is no host now. HostSourceError with every line that names no host, as
    ``where:line``.
    """
    parsed = parse_hostfile(text, where)
    if not parsed.hosts and [fault.where for fault in parsed.faults] == [where]:
        return ()
    if parsed.faults:
        raise HostSourceError(parsed.faults)
    return parsed.hosts


def usable(hosts: Sequence[Host], where: str) -> tuple[Host, ...]:
    """Return the hosts of an answer; HostSourceError where one has more slots than a job may have ranks."""
    faults = [
        Fault(
            where=where,
            what=f"{host.name} has {host.slots} slots; an elastic job has at most {MOST_RANKS} ranks",
            hint="correct the number of slots",
        )
        for host in hosts
        if (host.slots or 0) > MOST_RANKS
    ]
    if faults:
        raise HostSourceError(faults)
    return tuple(hosts)


def known_first(hosts: Sequence[Host], before: Sequence[Host]) -> tuple[Host, ...]:
    """Return ``hosts``, those that were there before first: the oldest keep the lowest ranks."""
    now = {host.name: host for host in hosts}
    kept = [now.pop(host.name) for host in before if host.name in now]
    return (*kept, *now.values())


def slots_by_name(hosts: Sequence[Host]) -> dict[str, int | None]:
    """Return the slots of each host; ``None``: as many as it has cores."""
    return {host.name: host.slots for host in hosts}


def with_default_slots(hosts: Sequence[Host], slots: int | None) -> tuple[Host, ...]:
    """Give ``slots`` to each host whose source did not say how many it has."""
    return tuple(replace(host, slots=slots) if host.slots is None else host for host in hosts)


def no_answer(where: str, what: str, hint: str = "") -> HostSourceError:
    """Return the error of a source that could not be asked."""
    return HostSourceError(Fault(where=where, what=what, hint=hint))


def _more(slots: int | None, others: int | None) -> bool:
    """Say whether a host has more slots than another answer gave it; unknown counts differ, in both ways."""
    if slots is None or others is None:
        return slots != others
    return slots > others

"""Hosts that failed stay out for a while, longer each time, and come back. Pure: time and chance come in.

Without a range of seconds a host that failed stays out to the end of the job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

from ringleader.job import Host
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class CooldownRange:
    """How long a host that failed stays out; ``ElasticOptions.faults`` says which ranges there are."""

    shortest: float
    """Seconds after its first failure; doubled with each one that follows."""
    longest: float
    """Seconds that no stay exceeds."""

    def seconds(self, failures: int, jitter: float) -> float:
        """Return how long a host stays out after so many failures (from 1).

        ``jitter``: a number from 0 to 1, by which up to one shortest stay is added: hosts that failed
        together do not all come back at once.
        """
        doubled = self.shortest * 2.0 ** min(failures - 1, 60)
        return min(self.longest, doubled + jitter * self.shortest)


@dataclass(frozen=True, kw_only=True)
class HostFailures:
    """A host that failed at least once."""

    failures: int
    until: float | None
    """When it may come back, by the clock of whoever asks; ``None``: never."""


@dataclass(frozen=True, kw_only=True)
class HostBlacklist:
    """Which hosts stay out, and until when. Every change is a new value."""

    cooldown: CooldownRange | None = None
    """``None``: for good."""
    entries: Mapping[str, HostFailures] = field(default_factory=dict)
    """By the host's name; one that came back keeps its count."""

    def after_failure(self, host: str, *, now: float, jitter: float) -> HostBlacklist:
        """Return the list with one more failure of a host; while it is out anyway nothing changes."""
        if self.is_out(host, now):
            return self
        known = self.entries.get(host)
        failures = 1 if known is None else known.failures + 1
        until = None if self.cooldown is None else now + self.cooldown.seconds(failures, jitter)
        entry = HostFailures(failures=failures, until=until)
        return HostBlacklist(cooldown=self.cooldown, entries={**self.entries, host: entry})

    def is_out(self, host: str, now: float) -> bool:
        """Say whether a host may not be used now."""
        entry = self.entries.get(host)
        return entry is not None and (entry.until is None or now < entry.until)

    def allowed(self, hosts: Sequence[Host], now: float) -> tuple[Host, ...]:
        """Return those of the hosts that may be used, in their order."""
        return tuple(host for host in hosts if not self.is_out(host.name, now))

    def next_return(self, now: float) -> float | None:
        """Return when the next host may come back; ``None``: none will."""
        times = [
            entry.until for entry in self.entries.values() if entry.until is not None and entry.until > now
        ]
        return min(times, default=None)

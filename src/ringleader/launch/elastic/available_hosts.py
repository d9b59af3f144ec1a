"""Hosts that an elastic job may use now: what its source names, less a blacklist of those that failed lately.

An answer of the source that differs from the one before counts once the next answer is the same: a source
that flaps, or is read while somebody writes it, changes nothing. One that fails later than the first time
keeps its last answer; the user is warned once, and again when it answers. Sources are in ``host_sources``.
"""

from __future__ import annotations

import contextlib
import os
import random
import select
import threading
from collections import deque
from collections.abc import Callable, Sequence

from ringleader.errors import RefusedError
from ringleader.launch.elastic.host_sources import HostSource, HostSourceError, no_answer
from ringleader.plan.job import Host

CONFIRM_SECONDS = 1.0
"""Between an answer that is another one and the look that confirms it."""
_CLOSE_SECONDS = 10.0
HostNews = tuple[Host, ...] | str
"""Hosts that count from now on, or a warning: the source's last answer still counts."""


class AvailableHosts:
    """A source that is probed again and again, from its first answer to ``close``; less what is out.

    A source may wait (a script, a file system, an API server), and the launcher's loop must not: a thread
    probes it and hands over values through a queue; a descriptor is readable while there is something in it.
    """

    def __init__(
        self,
        source: HostSource,
        hosts: tuple[Host, ...],
        *,
        cooldown: tuple[float, float] | None = None,
        period: float | None = None,
    ) -> None:
        """``hosts``: what the source said first. ``cooldown``: see ``HostBlacklist``. ``period``: seconds
        between two looks, instead of the source's own."""
        self._source = source
        self.source = source.name
        """What messages call the source."""
        self._hosts, self._answers = hosts, HostAnswers(source.name, hosts)
        self._blacklist = HostBlacklist(cooldown)
        self._now, self._changed = 0.0, False
        self._period = period or source.period or CONFIRM_SECONDS
        self._queue: deque[HostNews] = deque()
        self._thread: threading.Thread | None = None
        if source.period is not None:
            flags = os.EFD_CLOEXEC | os.EFD_NONBLOCK
            self._told, self._stop, self._refresh = (os.eventfd(0, flags) for _ in range(3))
            self._thread = threading.Thread(target=self._run, name=f"hosts of {source.name}", daemon=True)
            self._thread.start()

    def fileno(self) -> int | None:
        """Return a descriptor that is readable while there is news; ``None``: there never is."""
        return self._told if self._thread is not None else None

    def usable(self) -> list[tuple[str, int]]:
        """Return the hosts that may be used now, and their slots; 0: as many as they have."""
        hosts = [host for host in self._hosts if not self._blacklist.is_out(host.name, self._now)]
        return [(host.name, host.slots or 0) for host in hosts]

    def exclude(self, name: str) -> None:
        """Leave a host out for a while: it failed the job."""
        self._blacklist.add_failure(name, now=self._now, jitter=random.random())
        self._changed = True

    def news(self, now: float) -> tuple[list[tuple[str, int]] | None, list[str]]:
        """Return what is ``usable``, where that has changed, and what the user should know; never waits."""
        back = self._blacklist.next_return(self._now)
        changed = self._changed or (back is not None and now >= back)
        self._now, self._changed = now, False
        if self._thread is not None:
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self._told)
        warnings = []
        for _ in range(len(self._queue)):
            one = self._queue.popleft()
            if isinstance(one, str):
                warnings.append(one)
            else:
                self._hosts, changed = one, True
        return (self.usable() if changed else None), warnings

    def refresh(self) -> bool:
        """Have the source probed now, not only when the period is over; False: its hosts never change."""
        if self._thread is not None:
            os.eventfd_write(self._refresh, 1)
        return self._thread is not None

    def close(self) -> None:
        """End the thread and what it runs; a second time nothing happens."""
        if self._thread is None:
            return
        os.eventfd_write(self._stop, 1)
        thread, self._thread = self._thread, None
        thread.join(_CLOSE_SECONDS)
        if thread.is_alive():
            return  # a file system that does not answer: its descriptors are left to it, it ends with us
        for fd in (self._told, self._stop, self._refresh):
            os.close(fd)

    # --- in the thread ------------------------------------------------------------------------------------

    def _run(self) -> None:
        with contextlib.suppress(KeyboardInterrupt):  # raised by ``look`` where ``close`` ends it
            while self._pause():
                if news := self._look():
                    self._queue.extend(news)
                    os.eventfd_write(self._told, 1)

    def _pause(self) -> bool:
        """Wait until the next look is due; False: the end."""
        poll = select.poll()
        poll.register(self._stop, select.POLLIN)
        poll.register(self._refresh, select.POLLIN)
        seconds = min(self._period, CONFIRM_SECONDS) if self._answers.in_doubt else self._period
        for fd, _ in poll.poll(seconds * 1000):
            if fd == self._stop:
                return False
            os.eventfd_read(self._refresh)
        return True

    def _look(self) -> list[HostNews]:
        try:
            return self._answers.take(self._source.look(self._stop))
        except RefusedError as error:
            return self._answers.take_failure(error)
        except Exception as error:  # a thread that ends in silence would leave the job without news for good
            what = f"could not be probed: {type(error).__name__}: {error}"
            return self._answers.take_failure(no_answer(self._source.name, what))


def first_hosts(source: HostSource, stop: int | None, *, warn: Callable[[str], None]) -> tuple[Host, ...]:
    """Return what a source says at the start; arguments and errors are ``HostSource.look``'s.

    Slurm's controller may be out of reach from here, in a container without its programs: Slurm's own
    variables have told the nodes, so that the job can begin. ``warn`` hears of it.
    """
    try:
        return source.look(stop)
    except HostSourceError as error:
        if not source.known:
            raise
        warn(f"{error}\n    → the job begins on the nodes that Slurm's variables name")
        return source.known


# --- which answers count ----------------------------------------------------------------------------------


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

    def take(self, hosts: tuple[Host, ...]) -> list[HostNews]:
        """Take an answer; return what follows from it."""
        news: list[HostNews] = [f"{self._name} names hosts again"] if self._trouble else []
        self._trouble = ""
        found = _slots_by_name(hosts)
        changed = found != _slots_by_name(self.hosts)
        if changed and found == self._candidate:
            now = {host.name: host for host in hosts}
            kept = [now.pop(host.name) for host in self.hosts if host.name in now]
            self.hosts = (*kept, *now.values())  # the oldest keep the lowest ranks
            news.append(self.hosts)
            changed = False
        self._candidate = found if changed else None
        return news

    def take_failure(self, error: RefusedError) -> list[HostNews]:
        """Take an attempt that brought no answer; return what follows from it."""
        self._candidate = None
        text, self._trouble = self._trouble, str(error)
        if text == self._trouble:
            return []
        names = ", ".join(host.name for host in self.hosts) or "no host"
        return [f"{error}\n    → what it said last still counts: {names}"]


def _slots_by_name(hosts: Sequence[Host]) -> dict[str, int | None]:
    """Return the slots of each host; ``None``: as many as it has cores."""
    return {host.name: host.slots for host in hosts}


# --- which hosts stay out ---------------------------------------------------------------------------------


class HostBlacklist:
    """Hosts that failed: each stays out for a while, longer each time, and returns."""

    def __init__(self, cooldown: tuple[float, float] | None = None) -> None:
        """``cooldown``: see ``ElasticOptions``; without it a host that failed stays out to the end."""
        self._cooldown = cooldown
        self._failures: dict[str, int] = {}
        """A host that came back keeps its count."""
        self._until: dict[str, float] = {}

    def add_failure(self, host: str, *, now: float, jitter: float) -> None:
        """Take one more failure of a host; while it is out anyway nothing changes."""
        if not self.is_out(host, now):
            self._failures[host] = failures = self._failures.get(host, 0) + 1
            stay = float("inf") if self._cooldown is None else stay_seconds(self._cooldown, failures, jitter)
            self._until[host] = now + stay

    def is_out(self, host: str, now: float) -> bool:
        """Say whether a host may not be used now."""
        return now < self._until.get(host, now)

    def next_return(self, now: float) -> float | None:
        """Return when the next host may return; ``None``: none will."""
        return min((until for until in self._until.values() if now < until < float("inf")), default=None)


def stay_seconds(cooldown: tuple[float, float], failures: int, jitter: float) -> float:
    """Return how long a host stays out after this many failures (from 1): doubled each time, up to the
    longest.

    ``jitter``: a number from 0 to 1, by which up to one shortest stay is added: hosts that failed together do
    not all return at once.
    """
    shortest, longest = cooldown
    return min(longest, shortest * 2.0 ** min(failures - 1, 60) + jitter * shortest)

"""Hosts and their slots: which rank is where, and which hosts of an elastic job there are and may be used.

Horovod's paths are ``hosts`` and ``host_hash`` of ``runner.common.util``, ``discovery`` and ``worker`` of
``runner.elastic``; names and meanings are Horovod's. A host that failed stays out for good, or with a range
of seconds for a while that doubles each time.
"""

from __future__ import annotations

import hashlib
import random
import socket
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringleader.adapters.elastic import HostUpdateResult
from ringleader.agents.rank_identity import host_identity
from ringleader.horovod_run import LONGEST_STAY, SHORTEST_STAY, WrongOptionError
from ringleader.launch.elastic.available_hosts import stay_seconds
from ringleader.launch.elastic.host_sources import SCRIPT_SECONDS, command_words, hosts_in, output_of
from ringleader.plan.host_list import parse_host_list, parse_hostfile
from ringleader.text_files import read_text

DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS, DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS = SHORTEST_STAY, LONGEST_STAY


@dataclass
class HostInfo:
    """A host and how many ranks it takes."""

    hostname: str
    slots: int

    @staticmethod
    def from_string(host_string: str) -> HostInfo:
        """Read ``host:slots``. ValueError for anything else."""
        (host,) = _hosts(host_string)
        return host


@dataclass
class SlotInfo:
    """A rank's place."""

    hostname: str
    rank: int
    local_rank: int
    cross_rank: int
    size: int
    local_size: int
    cross_size: int

    def to_response_string(self) -> str:
        """Return rank, size, local rank and size, cross rank and size, with commas between."""
        numbers = (self.rank, self.size, self.local_rank, self.local_size, self.cross_rank, self.cross_size)
        return ",".join(str(number) for number in numbers)


def parse_hosts(hosts_string: str) -> list[HostInfo]:
    """Read ``h1:2,h2:4``. ValueError with everything wrong in it."""
    return _hosts(hosts_string)


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """Return the names of ``h1:2,h2:4``, and the slots by name. ValueError with everything wrong in it."""
    found = _hosts(hosts)
    return [host.hostname for host in found], {host.hostname: host.slots for host in found}


def parse_host_files(filename: str) -> str:
    """Return the hosts of a file (``h1 slots=2``, one a line) as ``h1:2,h2:4``.

    OSError where it cannot be read, ValueError with everything wrong in it.
    """
    parsed = parse_hostfile(read_text(filename), filename)
    if parsed.faults:
        raise WrongOptionError(parsed.faults)
    return ",".join(f"{host.name}:{1 if host.slots is None else host.slots}" for host in parsed.hosts)


def get_host_assignments(
    hosts: Sequence[HostInfo], min_num_proc: int, max_num_proc: int | None = None
) -> list[SlotInfo]:
    """Return the place of each rank: all slots of a host before the next host.

    As many ranks as there are slots, at most ``max_num_proc``. ValueError for less than ``min_num_proc``.
    """
    slots = [(host, local) for host in hosts for local in range(host.slots)][:max_num_proc]
    if len(slots) < min_num_proc:
        what = f"{min_num_proc} ranks asked for, {len(slots)} slots there"
        raise WrongOptionError(what, where="hosts", hint="name more hosts, or give them more slots")
    local_sizes = Counter(id(host) for host, _ in slots)
    cross_sizes = Counter(local for _, local in slots)
    before: Counter[int] = Counter()
    places = []
    for rank, (host, local) in enumerate(slots):
        places.append(
            SlotInfo(
                hostname=host.hostname,
                rank=rank,
                local_rank=local,
                cross_rank=before[local],
                size=len(slots),
                local_size=local_sizes[id(host)],
                cross_size=cross_sizes[local],
            )
        )
        before[local] += 1
    return places


def _hosts(text: str) -> list[HostInfo]:
    parsed = parse_host_list(text, "hosts")
    if parsed.faults:
        raise WrongOptionError(parsed.faults)
    return [HostInfo(host.name, host.slots or 1) for host in parsed.hosts]


def host_hash(salt: object | None = None) -> str:
    """Return the machine's name and a checksum of what it is; another one for each ``salt``."""
    name = socket.gethostname()
    text = f"{name}-{host_identity()}" + (f"-{salt}" if salt else "")
    return f"{name.partition('.')[0]}-{_hash(text)}"


def _hash(string: str) -> str:
    return hashlib.md5(string.encode(), usedforsecurity=False).hexdigest()


class HostState:
    """Whether one host may be used."""

    def __init__(self, cooldown_range: Sequence[float] | None = None) -> None:
        """Begin usable. ValueError for a range outside of the limits."""
        if cooldown_range and (least := cooldown_range[0]) < DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS:
            limit = DEFAULT_COOLDOWN_LOWER_LIMIT_SECONDS
            raise ValueError(f"Provided cooldown lower limit: {least} cannot be lower than {limit} s")
        if cooldown_range and (most := cooldown_range[1]) > DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS:
            limit = DEFAULT_COOLDOWN_UPPER_LIMIT_SECONDS
            raise ValueError(f"Provided cooldown upper limit: {most} cannot be higher than {limit} s")
        self._cooldown = (cooldown_range[0], cooldown_range[1]) if cooldown_range else None
        self._blacklisted = False
        self._failures = 0
        self._until = 0.0
        self._event = threading.Event()

    def get_event(self) -> threading.Event:
        """Return the event that the host's next failure sets."""
        if self._event.is_set():
            self._event = threading.Event()
        return self._event

    def set_event(self) -> None:
        """Tell whoever holds the event that the host has failed."""
        self._event.set()

    def blacklist(self) -> None:
        """Note a failure: the host stays out. Another one during its stay does not count."""
        self._blacklisted = True
        now = time.time()
        if now < self._until:
            return
        if self._cooldown is not None:
            self._failures += 1
            self._until = now + stay_seconds(self._cooldown, self._failures, random.random())
        self.set_event()

    def whitelist(self) -> None:
        """Let the host take part again."""
        self._until = 0.0
        self._blacklisted = False

    def is_blacklisted(self) -> bool:
        """Say whether the host stays out."""
        return self._blacklisted

    def is_resurrected(self) -> bool:
        """Say whether the host was out and its time is over."""
        return 0 < self._until <= time.time()


@dataclass(frozen=True, eq=False)
class DiscoveredHosts:
    """Hosts, their slots and their order, at one moment."""

    host_slots: dict[str, int]
    """Slots by host, of hosts that stay out as well."""
    host_assignment_order: list[str]
    """Hosts that may be used, the oldest first: it gets the lowest ranks."""

    @property
    def available_hosts(self) -> set[str]:
        """Hosts that may be used."""
        return set(self.host_assignment_order)

    def get_slots(self, host: str) -> int:
        """Return a host's slots; 0 for one that is unknown."""
        return self.host_slots.get(host, 0)

    def count_available_slots(self) -> int:
        """Return the slots of all hosts that may be used."""
        return sum(self.get_slots(host) for host in self.host_assignment_order)

    def __str__(self) -> str:
        return f"slots: {self.host_slots} order: {self.host_assignment_order}"


class HostDiscovery:
    """Whoever knows the hosts."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return slots by host."""
        raise NotImplementedError


class HostDiscoveryScript(HostDiscovery):
    """A program that prints ``host`` or ``host:slots``, one a line. No shell is involved."""

    def __init__(self, discovery_script: str, slots: int) -> None:
        """``slots``: for lines that have none."""
        self._discovery_script = discovery_script
        self._default_slots = slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Run the program. RingleaderError where it fails, hangs, or prints something else."""
        hosts = hosts_in(self._execute_discovery_script(), str(self._discovery_script))
        return {host.name: self._default_slots if host.slots is None else host.slots for host in hosts}

    def _execute_discovery_script(self) -> str:
        words = command_words(self._discovery_script, "host discovery script")
        return output_of(words, seconds=SCRIPT_SECONDS)


class FixedHosts(HostDiscovery):
    """Hosts that change only by ``set``."""

    def __init__(self, host_slots: dict[str, int]) -> None:
        """``host_slots``: slots by host."""
        self._host_slots = host_slots

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Return what was set last."""
        return self._host_slots

    def set(self, host_slots: dict[str, int]) -> None:
        """Change the hosts."""
        self._host_slots = host_slots


class HostManager:
    """The hosts of a job: what a discovery says, without those that failed."""

    def __init__(self, discovery: HostDiscovery, cooldown_range: Sequence[float] | None = None) -> None:
        """Know no host yet. ``cooldown_range``: seconds that a host that failed stays out; None: for good."""
        self._discovery = discovery
        self._states: defaultdict[str, HostState] = defaultdict(lambda: HostState(cooldown_range))
        self._hosts = DiscoveredHosts({}, [])

    def update_available_hosts(self) -> HostUpdateResult:
        """Ask the discovery; return what has changed. Hosts whose stay is over are added again."""
        before, slots = self._hosts, dict(self._discovery.find_available_hosts_and_slots())
        back = {host for host in slots if self._states[host].is_resurrected()}
        if slots == before.host_slots and not back:
            return HostUpdateResult.no_update
        for host in back:
            self._states[host].whitelist()
        usable = [host for host in slots if not self.is_blacklisted(host)]
        order = self.order_available_hosts(usable, before.host_assignment_order)
        self._hosts = DiscoveredHosts(slots, order)
        result = HostUpdateResult.no_update
        if any(slots.get(host, 0) < count for host, count in before.host_slots.items()):
            result |= HostUpdateResult.removed
        if any(host in back or count > before.get_slots(host) for host, count in slots.items()):
            result |= HostUpdateResult.added
        return result

    @property
    def current_hosts(self) -> DiscoveredHosts:
        """The hosts as of the last update, without those that failed since: a new object each time."""
        order = [host for host in self._hosts.host_assignment_order if not self.is_blacklisted(host)]
        return DiscoveredHosts(dict(self._hosts.host_slots), order)

    def blacklist(self, host: str) -> None:
        """Note a failure of a host."""
        self._states[host].blacklist()

    def is_blacklisted(self, host: str) -> bool:
        """Say whether a host stays out."""
        return self._states[host].is_blacklisted()

    def get_host_event(self, host: str) -> threading.Event:
        """Return the event that a host's next failure sets."""
        return self._states[host].get_event()

    @staticmethod
    def order_available_hosts(
        available_hosts: Iterable[str], prev_host_assignment_order: Sequence[str]
    ) -> list[str]:
        """Return the hosts, those of before first and in their order."""
        now = dict.fromkeys(available_hosts)
        kept = [host for host in prev_host_assignment_order if host in now]
        return kept + [host for host in now if host not in kept]

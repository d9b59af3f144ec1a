"""Hosts, their slots, and which rank is where. Path, names and meanings are Horovod's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.horovod_run import WrongOptionError
from ringleader.plan.host_list import parse_host_list, parse_hostfile
from ringleader.text_files import read_text


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

"""The communicators of a group, who this rank is in it, and the shared memory of its hosts.

They are made by `init` and given up by `shutdown`; nothing of them outlives that, so others can follow in the
same process, and smaller ones can replace them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ringleader.agents import usable_cores
from ringleader.engine.agreement_barrier import PAGE_BYTES, SharedFlags
from ringleader.engine.communicator import Call, Communicator, Segment, World
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.peer_wait import PeerWait
from ringleader.engine.traffic import CommunicatorTraffic, GroupTraffic

MARGIN_BYTES = 8 << 20
"""Room in /dev/shm that is left for the MPI's own segments."""


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """Who this rank is."""

    rank: int = 0
    """Number of this rank among all."""
    size: int = 1
    """Number of ranks."""
    local_rank: int = 0
    """Number of this rank among those of its host."""
    local_size: int = 1
    """Ranks on this host."""
    slot: int = 0
    """Number of this rank's slot on its host, by which scripts take a GPU. The local rank, but where ranks
    of an elastic job are in another order than their slots, or a slot is left out."""
    cross_rank: int = 0
    """Number of this host among those that have this local rank."""
    cross_size: int = 1
    """Hosts that have this local rank."""
    hosts: int = 1
    """Hosts in all."""
    homogeneous: bool = True
    """Whether every host has the same number of ranks."""
    host_ranks: tuple[int, ...] = (0,)
    """Numbers of the ranks on this host."""
    most_local: int = 1
    """Most ranks on any host."""
    least_local: int = 1
    """Fewest ranks on any host."""
    oversubscribed: bool = False
    """Whether a host has more ranks, with MPI proxies that are at work, than processors that they may use, by
    affinity and control groups."""


def count_over(
    ranks: RankLayout, traffic: GroupTraffic, library: str, job_ranks: Sequence[int] = ()
) -> CommunicatorTraffic:
    """Return what counts the bytes that a library carries between all ranks of a group.

    ``job_ranks``: the numbers of the ranks in the job; empty: which of them it is does not count.
    """
    return CommunicatorTraffic(
        traffic.of_library(library),
        rank=ranks.rank,
        size=ranks.size,
        host_ranks=ranks.host_ranks,
        hosts=ranks.hosts,
        peers=[traffic.peers.setdefault(number, [0, 0]) for number in job_ranks],
    )


@dataclass(kw_only=True)
class Communicators:
    """Communicators and shared memory of one life of an engine, under MPI."""

    world: World
    comm: Communicator
    """All ranks of the engine's group; its own communicator."""
    host: Communicator
    """The ranks of this host."""
    cross: Communicator
    """The ranks with this local rank on all hosts."""
    ranks: RankLayout
    segments: list[Segment] = field(default_factory=list)
    """Everything in shared memory that was allocated and not given back."""
    traffic: GroupTraffic = field(default_factory=GroupTraffic)
    """What the group's operations exchange."""
    _allocated: int = 0

    def mpi_calls(self, peer_wait: PeerWait) -> MpiCalls:
        """Return MPI's calls over the whole group."""
        polling = self.ranks.hosts > 1 or self.ranks.oversubscribed or self.comm.proxied
        job_ranks = self.comm.numbers_in(self.world.everybody)
        traffic = count_over(self.ranks, self.traffic, "mpi", job_ranks)
        return MpiCalls(self.comm, peer_wait, polling=polling, traffic=traffic)

    def cross_calls(self, peer_wait: PeerWait) -> MpiCalls:
        """Return MPI's calls over the ranks with this local rank, one on each host."""
        rank, size = self.ranks.cross_rank, self.ranks.cross_size
        line = RankLayout(rank=rank, size=size, host_ranks=(rank,), hosts=size)
        traffic = count_over(line, self.traffic, "mpi", self.cross.numbers_in(self.world.everybody))
        return MpiCalls(self.cross, peer_wait, polling=True, traffic=traffic)

    def new_segment(self, nbytes: int) -> Segment | None:
        """Allocate shared memory on every host, None where one has no room. Collective."""
        if not enough_memory(self.comm, self.host, nbytes):
            return None
        self._allocated += 1
        segment = self.host.shared_memory(nbytes)
        segment.number = self._allocated
        self.segments.append(segment)
        return segment

    def give_back(self, segment: Segment) -> None:
        """Free one segment that nobody looks at any more. Collective."""
        self.segments.remove(segment)
        segment.free()

    def free(self) -> list[Segment]:
        """Give communicators and memory back, together with all peers; return segments still in use."""
        in_use = [int(segment.looked_at()) for segment in self.segments]
        everywhere = [max(column) for column in zip(*self.host.gather(in_use), strict=True)]
        kept: list[Segment] = []
        for segment, used in zip(self.segments, everywhere, strict=True):
            if used:
                kept.append(segment)
            else:
                segment.free()
        self.segments = []
        for comm in (self.cross, self.host, self.comm):
            comm.free()
        return kept


def open_communicators(
    world: World,
    comm: Communicator,
    *,
    numbers: Sequence[int],
    ranks_per_host: int | None = None,
    oversubscribed: bool | None = None,
) -> Communicators:
    """Make the communicators of a group over the ranks of ``comm``. Collective over them.

    ``comm`` goes to the result, which frees it. ``numbers`` are those of its ranks among all.
    ``ranks_per_host`` cuts a host into several. ``oversubscribed`` is known where there is a group of all
    ranks already.
    """
    host = comm.on_host()
    if ranks_per_host is not None:
        whole = host
        host = whole.split([numbers[rank] // ranks_per_host for rank in whole.numbers_in(comm)])
        whole.free()
    local_ranks = host.numbers_in(comm)
    firsts = comm.firsts_on_hosts() if ranks_per_host is None else None
    if firsts is None or oversubscribed is None:
        # One exchange tells who is on which host, and whether one has more ranks than processors.
        own = usable_cores.rank_processors().values() if oversubscribed is None else None
        told = comm.gather([local_ranks[0], own])
        firsts = [first for first, _ in told]
        if oversubscribed is None:
            may_use = [usable_cores.RankProcessors.of(one) for _, one in told]
            oversubscribed = any_oversubscribed(firsts, may_use, proxied=comm.proxied)
    sizes, places = Counter[int](), []
    for first in firsts:
        places.append(sizes[first])
        sizes[first] += 1
    cross = comm.split(places)
    ranks = RankLayout(
        rank=comm.rank,
        size=comm.size,
        local_rank=host.rank,
        local_size=host.size,
        slot=host.rank if world.slot is None else world.slot,
        cross_rank=cross.rank,
        cross_size=cross.size,
        hosts=len(sizes),
        homogeneous=len(set(sizes.values())) == 1,
        host_ranks=tuple(local_ranks),
        most_local=max(sizes.values()),
        least_local=min(sizes.values()),
        oversubscribed=oversubscribed,
    )
    return Communicators(world=world, comm=comm, host=host, cross=cross, ranks=ranks)


def any_oversubscribed(
    hosts: Sequence[int], own: Sequence[usable_cores.RankProcessors], *, proxied: bool
) -> bool:
    """Return whether a host has fewer processors than ranks and the MPI proxies that work for them.

    Proxies do where there are several hosts. ``hosts``: by rank its host; ``own``: by rank what it may use.
    """
    on_host: dict[int, list[usable_cores.RankProcessors]] = {}
    for host, one in zip(hosts, own, strict=True):
        on_host.setdefault(host, []).append(one)
    processes = 2 if proxied and len(on_host) > 1 else 1
    return any(usable_cores.oversubscribed(found * processes) for found in on_host.values())


def open_shared_flags(
    comms: Communicators, peer_wait: PeerWait, numbers: Sequence[int]
) -> SharedFlags | None:
    """Make the flags of this host, None where a host has no room for them. Collective.

    ``numbers`` are those of the group's ranks among all: peers are known by them.
    """
    segment = comms.new_segment(PAGE_BYTES)
    if segment is None:
        return None
    if not segment.zeros:  # a peer must not see what lay there before
        memoryview(segment.parts[comms.ranks.local_rank]).cast("B")[:] = bytes(PAGE_BYTES)
        if segment.fence is not None:
            segment.fence()
        comms.host.run(Call.BARRIER)  # orders what comes after it
    return SharedFlags(
        segment,
        me=comms.ranks.local_rank,
        ranks=[numbers[rank] for rank in comms.ranks.host_ranks],
        mpi_calls=comms.mpi_calls(peer_wait),
        peer_wait=peer_wait,
        oversubscribed=comms.ranks.oversubscribed,
    )


def checked_ranks(ranks: Sequence[int], everybody: Communicator) -> list[int]:
    """Return the ranks in order; `ValueError` where they are not some of all, or without this one."""
    numbers = sorted(ranks)
    if len(set(numbers)) < len(numbers) or numbers[0] < 0 or numbers[-1] >= everybody.size:
        raise ValueError(f"hvd.init: {numbers} are not ranks of this job, which has {everybody.size}.")
    if everybody.rank not in numbers:
        raise ValueError(f"hvd.init: rank {everybody.rank} of the job is not among the ranks {numbers}.")
    return numbers


def free_bytes(directory: Path = Path("/dev/shm")) -> int | None:
    """Return the room for shared memory on this host, None where that is not known."""
    try:
        facts = os.statvfs(directory)
    except OSError:
        return None
    return facts.f_bavail * facts.f_frsize


def enough_memory(
    comm: Communicator, host: Communicator, nbytes: int, directory: Path = Path("/dev/shm")
) -> bool:
    """Agree over all ranks whether every host has room for ``nbytes`` of each of its ranks. Collective.

    What the host agent of an elastic job gives is not in /dev/shm, so there is no limit to look at.
    """
    if comm.proxied:
        return True
    free = free_bytes(directory)
    fits = free is None or free >= nbytes * host.size + MARGIN_BYTES
    return all(comm.gather(fits))

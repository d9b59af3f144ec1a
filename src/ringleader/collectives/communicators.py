"""The communicators of a group, who this rank is in it, and the shared memory of its hosts.

They are made by `init` and given up by `shutdown`; nothing of them outlives that, so others can follow in the
same process, and smaller ones can replace them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ringleader.collectives import mpi_or_proxy
from ringleader.collectives.digest_barrier import PAGE_BYTES, SharedFlags
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.shared_memory import Segment, enough_memory
from ringleader.collectives.traffic import CommunicatorTraffic, GroupTraffic
from ringleader.ranks import processors


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

    mpi: Any
    comm: Any
    """All ranks of the engine's group; a communicator of its own."""
    host: Any
    """The ranks of this host."""
    cross: Any
    """The ranks with this local rank on all hosts."""
    ranks: RankLayout
    segments: list[Segment] = field(default_factory=list)
    """Everything in shared memory that was allocated and not given back."""
    traffic: GroupTraffic = field(default_factory=GroupTraffic)
    """What the group's operations exchange."""
    job_ranks: Sequence[int] = ()
    """By rank of ``comm``, its number in the job."""
    cross_job_ranks: Sequence[int] = ()
    """By rank of ``cross``, its number in the job."""
    _allocated: int = 0

    def mpi_calls(self, peer_wait: PeerWait) -> MpiCalls:
        """Return MPI's calls over the whole group."""
        polling = self.ranks.hosts > 1 or self.ranks.oversubscribed or mpi_or_proxy.proxied(self.mpi)
        traffic = count_over(self.ranks, self.traffic, "mpi", self.job_ranks)
        return MpiCalls(self.mpi, self.comm, peer_wait, polling=polling, traffic=traffic)

    def cross_calls(self, peer_wait: PeerWait) -> MpiCalls:
        """Return MPI's calls over the ranks with this local rank, one on each host."""
        traffic = CommunicatorTraffic(
            self.traffic.of_library("mpi"),
            rank=self.ranks.cross_rank,
            size=self.ranks.cross_size,
            host_ranks=(self.ranks.cross_rank,),
            hosts=self.ranks.cross_size,
            peers=[self.traffic.peers.setdefault(number, [0, 0]) for number in self.cross_job_ranks],
        )
        return MpiCalls(self.mpi, self.cross, peer_wait, polling=True, traffic=traffic)

    def new_segment(self, nbytes: int) -> Segment | None:
        """Allocate shared memory on every host, None where one has no room. Collective."""
        if not enough_memory(self.mpi, self.comm, self.host, nbytes):
            return None
        self._allocated += 1
        segment = Segment(self.mpi, self.host, nbytes, number=self._allocated)
        self.segments.append(segment)
        return segment

    def give_back(self, segment: Segment) -> None:
        """Free one segment that nobody looks at any more. Collective."""
        self.segments.remove(segment)
        segment.free()

    def free(self) -> list[Segment]:
        """Give communicators and memory back, together with all peers; return segments still in use."""
        in_use = [int(segment.looked_at()) for segment in self.segments]
        everywhere = [max(column) for column in zip(*self.host.allgather(in_use), strict=True)]
        kept: list[Segment] = []
        for segment, used in zip(self.segments, everywhere, strict=True):
            if used:
                kept.append(segment)
            else:
                segment.free()
        self.segments = []
        for comm in (self.cross, self.host, self.comm):
            comm.Free()
        return kept


def open_communicators(
    mpi: Any,
    comm: Any,
    *,
    number: int | None = None,
    ranks_per_host: int | None = None,
    oversubscribed: bool | None = None,
) -> Communicators:
    """Make the communicators of a group over the ranks of ``comm``. Collective over them.

    ``comm`` goes to the result, which frees it. ``number`` is that of this rank among all, where those of
    ``comm`` are a part of them. ``ranks_per_host`` cuts a host into several. ``oversubscribed`` is known
    where there is a group of all ranks already.
    """
    number = comm.rank if number is None else number
    host = comm.Split_type(mpi.COMM_TYPE_SHARED, key=comm.rank)
    if mpi_or_proxy.proxied(mpi) and ranks_per_host is None:
        # Who is where is known, so that nobody need ask for it.
        cross = comm.across_hosts()
        places = comm.places_on_hosts()
        local_ranks = [rank for rank, (first, _) in enumerate(places) if first == places[comm.rank][0]]
        sizes = Counter(first for first, _ in places)
        if oversubscribed is None:
            oversubscribed = any_oversubscribed(places, comm.allgather(processors.rank_processors()))
        facts: Sequence[tuple[int, int]] = [(place, sizes[first]) for first, place in places]
    else:
        if ranks_per_host is not None:
            whole = host
            host = whole.Split(color=number // ranks_per_host, key=comm.rank)
            whole.Free()
        cross = comm.Split(color=host.rank, key=comm.rank)
        told = host.allgather((comm.rank, processors.rank_processors()))
        local_ranks, too_many = (
            [rank for rank, _ in told],
            processors.oversubscribed([own for _, own in told]),
        )
        # One exchange tells the size of every host, and whether one has more ranks than processors.
        everybody: Sequence[tuple[int, int, bool]] = comm.allgather((host.rank, host.size, too_many))
        if oversubscribed is None:
            oversubscribed = any(too_many for _, _, too_many in everybody)
        facts = [(place, size) for place, size, _ in everybody]
    slot = mpi_or_proxy.slot(mpi)
    ranks = RankLayout(
        rank=comm.rank,
        size=comm.size,
        local_rank=host.rank,
        local_size=host.size,
        slot=host.rank if slot is None else slot,
        cross_rank=cross.rank,
        cross_size=cross.size,
        hosts=sum(local_rank == 0 for local_rank, _ in facts),
        homogeneous=len({size for _, size in facts}) == 1,
        host_ranks=tuple(local_ranks),
        most_local=max(size for _, size in facts),
        least_local=min(size for _, size in facts),
        oversubscribed=oversubscribed,
    )
    return Communicators(
        mpi=mpi,
        comm=comm,
        host=host,
        cross=cross,
        ranks=ranks,
        job_ranks=numbers_in(comm, mpi.COMM_WORLD),
        cross_job_ranks=numbers_in(cross, mpi.COMM_WORLD),
    )


def any_oversubscribed(places: Sequence[tuple[int, int]], own: Sequence[processors.RankProcessors]) -> bool:
    """Return whether a host has fewer processors than ranks and the MPI proxies that work for them.

    Proxies do where there are several hosts. ``places``: by rank its host and its number there; ``own``: by
    rank what it may use.
    """
    on_host: dict[int, list[processors.RankProcessors]] = {}
    for (host, _), one in zip(places, own, strict=True):
        on_host.setdefault(host, []).append(one)
    processes = 1 if len(on_host) == 1 else 2
    return any(processors.oversubscribed(found * processes) for found in on_host.values())


def open_shared_flags(
    comms: Communicators, peer_wait: PeerWait, numbers: Sequence[int]
) -> SharedFlags | None:
    """Make the flags of this host, None where a host has no room for them. Collective.

    ``numbers`` are those of the group's ranks among all: peers are known by them.
    """
    segment = comms.new_segment(PAGE_BYTES)
    if segment is None:
        return None
    if not mpi_or_proxy.proxied(comms.mpi):  # the host agent's memory is new, and full of zeros
        # MPI does not promise zeros, and a peer must not see what lay there before.
        memoryview(segment.parts[comms.ranks.local_rank]).cast("B")[:] = bytes(PAGE_BYTES)
        if segment.fence is not None:
            segment.fence()
        comms.host.Barrier()  # orders what comes after it
    return SharedFlags(
        segment,
        me=comms.ranks.local_rank,
        ranks=[numbers[rank] for rank in comms.ranks.host_ranks],
        mpi_calls=comms.mpi_calls(peer_wait),
        peer_wait=peer_wait,
        oversubscribed=comms.ranks.oversubscribed,
    )


def checked_ranks(ranks: Sequence[int], comms: Any) -> list[int]:
    """Return the ranks in order; `ValueError` where they are not some of ``world``'s, or without this one."""
    numbers = sorted(ranks)
    if len(set(numbers)) < len(numbers) or numbers[0] < 0 or numbers[-1] >= comms.size:
        raise ValueError(f"hvd.init: {numbers} are not ranks of this job, which has {comms.size}.")
    if comms.rank not in numbers:
        raise ValueError(f"hvd.init: rank {comms.rank} of the job is not among the ranks {numbers}.")
    return numbers


def sub_communicator(comm: Any, ranks: Sequence[int], *, tag: int) -> Any:
    """Return a communicator of some of the ranks. Collective over these alone."""
    whole = comm.Get_group()
    group = whole.Incl(list(ranks))
    part = comm.Create_group(group, tag=tag)
    group.Free()
    whole.Free()
    return part


def numbers_in(comm: Any, comms: Any) -> list[int]:
    """Return the numbers in ``comms`` of the communicator's ranks."""
    ours, theirs = comm.Get_group(), comms.Get_group()
    numbers = list(ours.Translate_ranks(list(range(ours.size)), theirs))
    ours.Free()
    theirs.Free()
    return numbers

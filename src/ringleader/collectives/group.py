"""A communicator group: ranks that do operations together, with an engine and everything under it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ringleader.collectives.communicators import (
    Communicators,
    RankLayout,
    open_communicators,
    open_mpi_calls,
    open_shared_flags,
)
from ringleader.collectives.digest_barrier import DigestBarrier, HostsBarrier, SharedFlags, SingleRankBarrier
from ringleader.collectives.engine import Engine
from ringleader.collectives.environment import EngineSettings
from ringleader.collectives.framework_adapter import FrameworkAdapter, TransportContext
from ringleader.collectives.fusion_buffer import FusionBuffer, FusionLimits
from ringleader.collectives.liveness import End, EndMessages, LivenessSource, PeerEnd
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.stall_check import Limits
from ringleader.collectives.transports.algorithm_table import HierarchicalTable
from ringleader.collectives.transports.hierarchical import HierarchicalTransport
from ringleader.collectives.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.collectives.transports.one_host import CHUNK_BYTES, OneHostTransport
from ringleader.collectives.transports.plain_mpi import MpiReducer, MpiTransport
from ringleader.collectives.transports.registered_memory import RegisteredMemory
from ringleader.collectives.transports.staging_buffers import STAGING_BYTES
from ringleader.collectives.transports.transport import Transport

LONGEST_SECONDS = 1800.0
"""The most that a framework's own transport, which begins when all ranks are there, may take for one step."""
BROKEN_SECONDS = 0.2
"""So long an engine that ends by itself sees to it that the other hosts hear of it."""
HOSTS_FUSION = FusionLimits(small_bytes=2 << 20, most_bytes=8 << 20)
"""Between hosts a meeting costs hundreds of microseconds, so that more is packed."""


@dataclass(kw_only=True)
class Group:
    """One group of ranks: all of them, or a process set."""

    engine: Engine
    """Does the operations of the group, and of no other."""
    broadcaster: Engine
    """Does the broadcasts: the same engine, except among uncoupled ranks. These exchange nothing else, but a
    script cannot go on without what another rank has read or the parameters that it began with."""
    ranks: RankLayout
    """Who this rank is within the group: numbers go from 0 to the size of the group."""
    global_ranks: tuple[int, ...]
    """Numbers among all ranks of those in the group, ascending: the rank that is i within the group is
    ``global_ranks[i]`` among all."""
    peer_wait: PeerWait
    """How this rank waits in it."""
    comms: Communicators | None = None
    """Communicators and memory, None where this rank is alone without MPI."""
    flags: SharedFlags | None = None
    """The flags of this host, where there is shared memory."""

    @property
    def engines(self) -> tuple[Engine, ...]:
        """Return each engine once."""
        return (self.engine,) if self.broadcaster is self.engine else (self.engine, self.broadcaster)

    @cached_property
    def _rank_within(self) -> dict[int, int]:
        return {rank: number for number, rank in enumerate(self.global_ranks)}

    def root(self, global_rank: int) -> int:
        """Return the number within the group of a rank; `ValueError` where it is not in the group."""
        number = self._rank_within.get(global_rank)
        if number is None:
            raise ValueError(
                f"Broadcast: root rank {global_rank} is not a member of the provided process set."
            )
        return number

    def close(self, *, why: str) -> bool:
        """End the engine; return whether it was in the middle of nothing."""
        return all([engine.close(why=why) for engine in self.engines])

    def free(self, *, together: bool) -> list[Segment]:
        """Give everything back with the peers, after `close`; return memory that arrays still look at.

        Without ``together`` only what is this rank's own is let go.
        """
        for engine in self.engines:
            if engine.devices is not None:
                engine.devices.close(together=together)
            engine.transport.close(together=together)
        if self.comms is None or not together:
            return []
        if self.flags is not None:
            self.flags.close()
        return self.comms.free()


def lone_group(kernels: FrameworkAdapter, settings: EngineSettings) -> Group:
    """Make the group of a rank that is alone."""
    peer_wait = _peer_wait(0, (), settings)
    engine = _engine(
        kernels,
        settings,
        RankLayout(),
        peer_wait,
        LoopbackTransport(kernels),
        SingleRankBarrier(),
        True,
        None,
    )
    return Group(
        engine=engine, broadcaster=engine, ranks=engine.ranks, global_ranks=(0,), peer_wait=peer_wait
    )


def open_group(
    mpi: Any,
    comm: Any,
    kernels: FrameworkAdapter,
    settings: EngineSettings,
    *,
    numbers: Sequence[int],
    liveness_sources: list[LivenessSource],
    end_messages: EndMessages,
    number: int = 0,
    oversubscribed: bool | None = None,
) -> Group:
    """Make the group of the ranks of ``comm``, which goes to it. Collective over them.

    ``numbers`` are the numbers of these ranks among all. ``liveness_sources`` are the caller's, who may add
    to them.
    ``end_messages`` go between all ranks; ``number`` is that of the process set.
    """
    comms = open_communicators(
        mpi,
        comm,
        number=numbers[comm.rank],
        ranks_per_host=settings.ranks_per_host,
        oversubscribed=oversubscribed,
    )

    def ended() -> dict[int, PeerEnd]:
        return {rank: how for source in liveness_sources for rank, how in source().items()}

    told: list[LivenessSource] = [lambda: end_messages.broken(number), ended]
    peer_wait = _peer_wait(numbers[comm.rank], told, settings)
    flags = None
    if comms.ranks.size > 1:
        flags = open_shared_flags(comms, peer_wait, numbers)
    if flags is not None:
        told.insert(0, flags.broken)
    here = {numbers[rank] for rank in comms.ranks.host_ranks} if flags is not None else {numbers[comm.rank]}
    away = [rank for rank in numbers if rank not in here]

    def announce_broken() -> None:
        if flags is not None:
            flags.announce_broken()
        end_messages.send(End.BROKEN, away, number=number)
        end_messages.drain(BROKEN_SECONDS)

    transport, barrier = _choose_transport(comms, kernels, peer_wait, flags, settings)
    threads = mpi.Query_thread() == mpi.THREAD_MULTIPLE
    mpi_calls = open_mpi_calls(comms, peer_wait)
    engine = _engine(
        kernels, settings, comms.ranks, peer_wait, transport, barrier, threads, mpi_calls, announce_broken
    )
    broadcaster = engine
    if settings.uncoupled and comms.ranks.size > 1:
        coupled = replace(settings, uncoupled=False, transport="mpi")
        way, flat = _choose_transport(comms, kernels, peer_wait, None, coupled)
        broadcaster = _engine(
            kernels, coupled, comms.ranks, peer_wait, way, flat, threads, mpi_calls, announce_broken
        )
    return Group(
        engine=engine,
        broadcaster=broadcaster,
        ranks=comms.ranks,
        global_ranks=tuple(numbers),
        peer_wait=peer_wait,
        comms=comms,
        flags=flags,
    )


def _peer_wait(rank: int, liveness_sources: Sequence[LivenessSource], settings: EngineSettings) -> PeerWait:
    return PeerWait(
        rank=rank,
        liveness_sources=liveness_sources,
        warn_seconds=settings.warn_seconds,
        deadline_seconds=settings.deadline_seconds,
    )


def _engine(
    kernels: FrameworkAdapter,
    settings: EngineSettings,
    ranks: RankLayout,
    peer_wait: PeerWait,
    transport: Transport,
    barrier: DigestBarrier,
    threads: bool,
    mpi_calls: MpiCalls | None,
    announce_broken: Callable[[], None] = lambda: None,
) -> Engine:
    limits = Limits(
        mismatch=settings.mismatch_seconds,
        warn=settings.warn_seconds,
        shutdown=settings.stall_seconds,
    )
    fusion = HOSTS_FUSION if ranks.hosts > 1 else FusionLimits()
    if settings.fusion_bytes is not None:
        most = min(fusion.most_bytes, settings.fusion_bytes)
        fusion = FusionLimits(small_bytes=min(fusion.small_bytes, most), most_bytes=most)
    packs = fusion.most_bytes > 0 and ranks.size > 1 and not settings.uncoupled
    return Engine(
        ranks=ranks,
        barrier=barrier,
        transport=transport,
        peer_wait=peer_wait,
        kernels=kernels,
        limits=limits,
        fusion_buffer=FusionBuffer(kernels, transport, fusion) if packs else None,
        threads=threads,
        announce_broken=announce_broken,
        devices=kernels.device_transport(
            _transport_context(ranks, peer_wait, settings, transport, mpi_calls)
        ),
    )


def _choose_transport(
    comms: Communicators,
    kernels: FrameworkAdapter,
    peer_wait: PeerWait,
    flags: SharedFlags | None,
    settings: EngineSettings,
) -> tuple[Transport, DigestBarrier]:
    """Return the transport and the barrier of a group: shared memory wherever ranks share a host."""
    ranks = comms.ranks
    if settings.uncoupled:
        return UncoupledTransport(kernels, ranks.size, ranks.rank), SingleRankBarrier()
    if ranks.size == 1:
        return LoopbackTransport(kernels), SingleRankBarrier()
    one_host = ranks.hosts == 1
    mpi_calls = open_mpi_calls(comms, peer_wait)
    plain = MpiTransport(mpi_calls, kernels, between_hosts=not one_host)
    flat = HostsBarrier(comms.mpi, mpi_calls=mpi_calls, cross=comms.comm, host=None, peer_wait=peer_wait)
    if settings.transport == "distributed":
        own = kernels.host_transport(_transport_context(ranks, peer_wait, settings, plain, mpi_calls))
        return own, (flags if flags is not None and one_host else flat)
    if flags is None or settings.transport == "mpi" or not ranks.homogeneous or ranks.most_local == 1:
        return plain, flat
    staging = comms.new_segment(STAGING_BYTES)
    if staging is None:
        _tell_small(ranks)
        return plain, flat
    registered = RegisteredMemory(
        kernels,
        me=ranks.local_rank,
        local_size=ranks.local_size,
        chunk_bytes=CHUNK_BYTES if one_host else HierarchicalTable().piece_bytes,
        new_segment=_told(comms),
        free_segment=comms.give_back,
    )
    if one_host:
        return OneHostTransport(
            kernels=kernels, flags=flags, staging=staging, registered=registered, plain=plain
        ), flags
    cross_calls = MpiCalls(comms.mpi, comms.cross, peer_wait, polling=True)
    return HierarchicalTransport(
        kernels=kernels,
        flags=flags,
        staging=staging,
        registered=registered,
        plain=plain,
        cross=MpiReducer(cross_calls, kernels, between_hosts=True),
    ), HostsBarrier(comms.mpi, mpi_calls=mpi_calls, cross=comms.cross, host=flags, peer_wait=peer_wait)


def _transport_context(
    ranks: RankLayout,
    peer_wait: PeerWait,
    settings: EngineSettings,
    host: Transport,
    mpi_calls: MpiCalls | None,
) -> TransportContext:
    return TransportContext(
        ranks=ranks,
        peer_wait=peer_wait,
        deadline_seconds=min(settings.deadline_seconds, LONGEST_SECONDS),
        mpi_calls=mpi_calls,
        host=host,
        requested=settings.transport,
    )


def _told(comms: Communicators) -> Callable[[int], Segment | None]:
    """Return the world's way to shared memory, with a word to the user where there is none left."""

    def new_segment(nbytes: int) -> Segment | None:
        segment = comms.new_segment(nbytes)
        if segment is None:
            _tell_small(comms.ranks)
        return segment

    return new_segment


def _tell_small(ranks: RankLayout) -> None:
    if ranks.rank == 0:
        print(  # noqa: T201
            "ringleader: /dev/shm is too small on one of the hosts, so gradients go through plain MPI, which "
            "is slower. Give it more room (docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory).",
            file=sys.stderr,
            flush=True,
        )

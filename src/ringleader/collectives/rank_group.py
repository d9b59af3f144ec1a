"""A communicator group: ranks that do operations together, with an engine and everything under it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ringleader.collectives.communicator import Communicator, World
from ringleader.collectives.communicators import (
    Communicators,
    RankLayout,
    open_communicators,
    open_shared_flags,
)
from ringleader.collectives.digest_barrier import DigestBarrier, SharedFlags, SingleRankBarrier
from ringleader.collectives.engine import Engine
from ringleader.collectives.engine_settings import EngineSettings
from ringleader.collectives.execution import EngineParts
from ringleader.collectives.framework_adapter import FrameworkAdapter
from ringleader.collectives.fusion_buffer import FusionBuffer, FusionLimits
from ringleader.collectives.launch_order import LaunchOrder
from ringleader.collectives.liveness import End, EndMessages, LivenessSource, PeerEnd
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.peer_wait import PeerWait, peer_wait_for
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.traffic import GroupTraffic
from ringleader.collectives.transport_selection import select_transport, transport_context
from ringleader.collectives.transports.loopback import LoopbackTransport
from ringleader.collectives.transports.transport import Transport

BROKEN_SECONDS = 0.2
"""So long an engine that ends by itself sees to it that the other hosts hear of it."""
HOSTS_FUSION = FusionLimits(small_bytes=2 << 20, most_bytes=8 << 20)
"""Between hosts a barrier costs hundreds of microseconds, so that more is packed."""


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
    reductions: dict[Any, Any] = field(default_factory=dict)
    """What an adapter keeps of reductions that it did in the group, to do the like of them with less ado."""

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
                f"Broadcast: root rank {global_rank!r} is not a member of the provided process set."
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
            if engine.queue.devices is not None:
                engine.queue.devices.close(together=together)
            engine.transport.close(together=together)
        if self.comms is None or not together:
            return []
        if self.flags is not None:
            self.flags.close()
        return self.comms.free()


def lone_group(kernels: FrameworkAdapter, settings: EngineSettings) -> Group:
    """Make the group of a rank that is alone."""
    peer_wait = peer_wait_for(0, (), settings)
    ranks = RankLayout()
    engine = _engine(
        kernels,
        settings,
        ranks,
        peer_wait,
        (LoopbackTransport(kernels), SingleRankBarrier()),
        threads=True,
        mpi_calls=None,
        traffic=GroupTraffic(),
    )
    return Group(engine=engine, broadcaster=engine, ranks=ranks, global_ranks=(0,), peer_wait=peer_wait)


def open_group(
    world: World,
    comm: Communicator,
    kernels: FrameworkAdapter,
    settings: EngineSettings,
    *,
    numbers: Sequence[int],
    liveness_sources: list[LivenessSource],
    end_messages: EndMessages,
    number: int = 0,
    oversubscribed: bool | None = None,
    traffic: GroupTraffic | None = None,
    launch_order: LaunchOrder | None = None,
) -> Group:
    """Make the group of the ranks of ``comm``, which goes to it. Collective over them.

    ``numbers`` are the numbers of these ranks among all. ``liveness_sources`` are the caller's, who may add
    to them. ``end_messages`` go between all ranks; ``number`` is that of the process set. ``traffic`` counts
    what the group's operations exchange. ``launch_order`` is that of the process.
    """
    me = numbers[comm.rank]
    comms = open_communicators(
        world,
        comm,
        numbers=numbers,
        ranks_per_host=settings.ranks_per_host,
        oversubscribed=oversubscribed,
    )
    comms.traffic = traffic if traffic is not None else comms.traffic
    ranks = comms.ranks

    def ended() -> dict[int, PeerEnd]:
        return {rank: how for source in liveness_sources for rank, how in source().items()}

    sources: list[LivenessSource] = [lambda: end_messages.broken(number), ended]
    peer_wait = peer_wait_for(me, sources, settings, world)
    flags = open_shared_flags(comms, peer_wait, numbers) if ranks.size > 1 else None
    if flags is not None:
        sources.insert(0, flags.broken)
    here = {numbers[rank] for rank in ranks.host_ranks} if flags is not None else {me}
    away = [rank for rank in numbers if rank not in here]

    def announce_broken() -> None:
        if flags is not None:
            flags.announce_broken()
        end_messages.send(End.BROKEN, away, number=number)
        end_messages.drain(BROKEN_SECONDS)

    def new_engine(settings: EngineSettings, flags: SharedFlags | None) -> Engine:
        return _engine(
            kernels,
            settings,
            ranks,
            peer_wait,
            select_transport(comms, kernels, peer_wait, flags, settings, number=number),
            threads=world.threads,
            mpi_calls=comms.mpi_calls(peer_wait),
            generation=world.generation,
            traffic=comms.traffic,
            announce_broken=announce_broken,
            number=number,
            launch_order=launch_order,
        )

    engine = broadcaster = new_engine(settings, flags)
    if settings.uncoupled and ranks.size > 1:
        broadcaster = new_engine(replace(settings, uncoupled=False, transport="mpi"), None)
    return Group(
        engine=engine,
        broadcaster=broadcaster,
        ranks=ranks,
        global_ranks=tuple(numbers),
        peer_wait=peer_wait,
        comms=comms,
        flags=flags,
    )


def _engine(
    kernels: FrameworkAdapter,
    settings: EngineSettings,
    ranks: RankLayout,
    peer_wait: PeerWait,
    carried_by: tuple[Transport, DigestBarrier],
    *,
    threads: bool,
    mpi_calls: MpiCalls | None,
    traffic: GroupTraffic,
    announce_broken: Callable[[], None] = lambda: None,
    number: int = 0,
    generation: int = 0,
    launch_order: LaunchOrder | None = None,
) -> Engine:
    transport, barrier = carried_by
    fusion = HOSTS_FUSION if ranks.hosts > 1 else FusionLimits()
    if settings.fusion_bytes is not None:
        most = min(fusion.most_bytes, settings.fusion_bytes)
        fusion = FusionLimits(small_bytes=min(fusion.small_bytes, most), most_bytes=most)
    packed = None
    if mpi_calls is not None and fusion.most_bytes > 0 and ranks.size > 1 and not settings.uncoupled:
        packed = FusionBuffer(kernels, transport, mpi_calls.comm, fusion)
    context = transport_context(
        ranks,
        peer_wait,
        settings,
        transport,
        mpi_calls,
        traffic,
        number=number,
        generation=generation,
        launch_order=launch_order,
    )
    return Engine(
        EngineParts(
            ranks=ranks,
            barrier=barrier,
            transport=transport,
            peer_wait=peer_wait,
            kernels=kernels,
            limits=settings.limits,
            fusion_buffer=packed,
            threads=threads,
            announce_broken=announce_broken,
            devices=kernels.device_transport(context),
        )
    )

"""A communicator group: ranks that do operations together, with an engine and everything under it.

Which transport carries the arrays of a group, and which barrier its ranks meet at, is chosen here: shared
memory where that is. Communicators come from `group_communicators`, a session keeps its groups in
`process_set_registry`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from ringleader.engine.agreement_barrier import DigestBarrier, HostsBarrier, SharedFlags
from ringleader.engine.communicator import Communicator, Segment, World
from ringleader.engine.engine_settings import EngineSettings
from ringleader.engine.execution import EngineParts
from ringleader.engine.framework_adapter import FrameworkAdapter, TransportContext
from ringleader.engine.fusion_buffer import FusionBuffer, FusionLimits
from ringleader.engine.group_communicators import (
    Communicators,
    RankLayout,
    open_communicators,
    open_shared_flags,
)
from ringleader.engine.group_engine import Engine
from ringleader.engine.launch_order import LaunchOrder
from ringleader.engine.peer_wait import End, EndMessages, LivenessSource, PeerEnd, PeerWait, peer_wait_for
from ringleader.engine.registered_memory import RegisteredMemory
from ringleader.engine.traffic import GroupTraffic
from ringleader.engine.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.engine.transports.pipeline import Pieces
from ringleader.engine.transports.plain_mpi import MpiReducer, MpiTransport
from ringleader.engine.transports.transport import Transport
from ringleader.engine.window.staged_reductions import STAGING_BYTES
from ringleader.engine.window.window_transport import WindowTransport

BROKEN_SECONDS = 0.2
"""So long an engine that ends by itself sees to it that the other hosts hear of it."""
HOSTS_FUSION = FusionLimits(small_bytes=2 << 20, most_bytes=8 << 20)
"""Between hosts a barrier costs hundreds of microseconds, so that more is packed."""
LONGEST_SECONDS = 1800.0
"""The most that a framework's own transport, which begins when all ranks are there, may take for one step."""


@dataclass(kw_only=True)
class SessionParts:
    """What all groups of a session have in common."""

    kernels: FrameworkAdapter
    settings: EngineSettings
    """What the environment said, as all ranks agreed."""
    world: World | None = None
    """The ranks that were started together, None for a rank that is alone."""
    end_messages: EndMessages | None = None
    """What ranks of several hosts tell each other of their ends, None for a rank that is alone."""
    liveness_sources: list[LivenessSource] = field(default_factory=list)
    """Tell which ranks have ended."""
    traffic: list[GroupTraffic] = field(default_factory=list)
    """What the operations of each group exchange, also of those that are gone; empty for a rank alone."""
    launch_order: LaunchOrder = field(default_factory=LaunchOrder)
    """In which order the operations of all groups are launched on devices."""


@dataclass(kw_only=True)
class Group:
    """One group of ranks: all of them, or a process set."""

    engine: Engine
    """Does the operations of the group, and of no other."""
    broadcaster: Engine
    """Does the broadcasts: the same engine, except among independent ranks. These exchange nothing else, but
    a script cannot continue without what another rank has read or the parameters that it began with."""
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
        self.reductions.clear()  # it looks at memory of the ranks
        for engine in self.engines:
            if engine.queue.devices is not None:
                engine.queue.devices.close(together=together)
            engine.transport.close(together=together)
        if self.comms is None or not together:
            return []
        if self.flags is not None:
            self.flags.close()
        return self.comms.free()


def lone_group(session: SessionParts) -> Group:
    """Make the group of a rank that is alone."""
    peer_wait, ranks = peer_wait_for(0, (), session.settings), RankLayout()
    transport = LoopbackTransport(session.kernels)
    context = _context(session, session.settings, ranks, peer_wait, transport)
    parts = EngineParts(
        ranks=ranks,
        barrier=DigestBarrier(),
        transport=transport,
        peer_wait=peer_wait,
        kernels=session.kernels,
        limits=session.settings.limits,
        threads=True,
        devices=session.kernels.device_transport(context),
    )
    engine = Engine(parts)
    return Group(engine=engine, broadcaster=engine, ranks=ranks, global_ranks=(0,), peer_wait=peer_wait)


def open_group(
    session: SessionParts,
    world: World,
    comm: Communicator,
    *,
    numbers: Sequence[int],
    number: int = 0,
    oversubscribed: bool | None = None,
) -> Group:
    """Make the group of the ranks of ``comm``, which goes to it. Collective over them.

    ``numbers`` are the numbers of these ranks among all; ``number`` is that of the process set.
    """
    settings, end_messages, me = session.settings, session.end_messages, numbers[comm.rank]
    liveness_sources = session.liveness_sources  # a session has its groups: no circle keeps memory
    assert end_messages is not None
    comms = open_communicators(
        world,
        comm,
        numbers=numbers,
        ranks_per_host=settings.ranks_per_host,
        oversubscribed=oversubscribed,
    )
    session.traffic.append(comms.traffic)
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
        plain = MpiTransport(comms.mpi_calls(peer_wait), session.kernels, between_hosts=ranks.hosts > 1)
        context = _context(session, settings, ranks, peer_wait, plain)
        context = replace(
            context,
            mpi_calls=plain.mpi_calls,
            traffic=comms.traffic,
            number=number,
            generation=world.generation,
        )
        transport, barrier = _transport(comms, session.kernels, flags, settings, context, plain)
        fusion = _fusion_limits(settings, ranks)
        packed = None
        if fusion.most_bytes > 0 and ranks.size > 1 and not settings.uncoupled:
            packed = FusionBuffer(session.kernels, transport, comm, fusion)
        parts = EngineParts(
            ranks=ranks,
            barrier=barrier,
            transport=transport,
            peer_wait=peer_wait,
            kernels=session.kernels,
            limits=settings.limits,
            fusion_buffer=packed,
            threads=world.threads,
            announce_broken=announce_broken,
            devices=session.kernels.device_transport(replace(context, host=transport)),
        )
        return Engine(parts)

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


def _context(
    session: SessionParts, settings: EngineSettings, ranks: RankLayout, peer_wait: PeerWait, host: Transport
) -> TransportContext:
    """Return what a framework's own transports get to know of a group."""
    return TransportContext(
        ranks=ranks,
        peer_wait=peer_wait,
        deadline_seconds=min(settings.deadline_seconds, LONGEST_SECONDS),
        host=host,
        requested=settings.transport,
        launch_order=session.launch_order,
    )


def _fusion_limits(settings: EngineSettings, ranks: RankLayout) -> FusionLimits:
    fusion = HOSTS_FUSION if ranks.hosts > 1 else FusionLimits()
    if settings.fusion_bytes is None:
        return fusion
    most = min(fusion.most_bytes, settings.fusion_bytes)
    return FusionLimits(small_bytes=min(fusion.small_bytes, most), most_bytes=most)


def _transport(
    comms: Communicators,
    kernels: FrameworkAdapter,
    flags: SharedFlags | None,
    settings: EngineSettings,
    context: TransportContext,
    plain: MpiTransport,
) -> tuple[Transport, DigestBarrier]:
    """Return what carries a group's arrays, and where its ranks meet. Collective.

    ``flags`` are None where ranks share no memory; ``plain`` carries everything by MPI.
    """
    ranks, peer_wait, one_host = comms.ranks, context.peer_wait, comms.ranks.hosts == 1
    if ranks.size == 1:
        alone = UncoupledTransport(kernels) if settings.uncoupled else LoopbackTransport(kernels)
        return alone, DigestBarrier()
    flat = HostsBarrier(plain.mpi_calls, cross=comms.comm, host=None, peer_wait=peer_wait)
    meeting: DigestBarrier = flat
    if flags is not None and one_host:
        meeting = flags
    elif flags is not None and ranks.homogeneous:
        meeting = HostsBarrier(plain.mpi_calls, cross=comms.cross, host=flags, peer_wait=peer_wait)
    if settings.uncoupled:
        barrier = meeting if settings.in_step else DigestBarrier()
        return UncoupledTransport(kernels, ranks.size, ranks.rank), barrier
    if settings.transport == "distributed":
        return kernels.host_transport(context), meeting if one_host else flat
    if flags is None or settings.transport == "mpi" or ranks.most_local == 1:
        return plain, flat
    staging = _new_segment(comms, STAGING_BYTES)
    if staging is None:
        return plain, flat
    registered = RegisteredMemory(
        kernels,
        me=ranks.local_rank,
        slices=ranks.least_local,
        new_segment=lambda nbytes: _new_segment(comms, nbytes),
        free_segment=comms.give_back,
    )
    cross = None
    if not one_host:
        cross = MpiReducer(
            comms.cross_calls(peer_wait),
            kernels,
            between_hosts=True,
            pieces=Pieces(),
            everybody=plain.mpi_calls,
            sends=ranks.local_rank < ranks.least_local,
        )
    window = WindowTransport(
        kernels=kernels,
        flags=flags,
        staging=staging,
        registered=registered,
        plain=plain,
        traffic=comms.traffic,
        cross=cross,
        equal=ranks.homogeneous,
    )
    return window, meeting


def _new_segment(comms: Communicators, nbytes: int) -> Segment | None:
    """Return shared memory, None where a host has none left, which is reported to the user."""
    segment = comms.new_segment(nbytes)
    if segment is None and comms.ranks.rank == 0:
        print(  # noqa: T201
            "ringleader: /dev/shm is too small on one of the hosts, so gradients go through plain MPI, which "
            "is slower. Give it more room (docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory).",
            file=sys.stderr,
            flush=True,
        )
    return segment

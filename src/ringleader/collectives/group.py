"""A team: ranks that do operations together, with an engine and everything under it that is theirs alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringleader.collectives.communicators import Ranks, World, open_board, open_wire, open_world
from ringleader.collectives.digest_barrier import Board, HostBoard, HostsBoard, LoneBoard
from ringleader.collectives.engine import Engine
from ringleader.collectives.environment import Surroundings
from ringleader.collectives.framework_adapter import Adapter, Group
from ringleader.collectives.fusion import Fusing
from ringleader.collectives.fusion_buffer import Packer
from ringleader.collectives.liveness import End, Goodbyes
from ringleader.collectives.mpi_calls import Wire
from ringleader.collectives.negotiation import Limits
from ringleader.collectives.peer_wait import Watch
from ringleader.collectives.process_sets import Member
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.transports import Transport
from ringleader.collectives.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.collectives.transports.one_host import WindowTransport
from ringleader.collectives.transports.plain_mpi import MpiReducer, MpiTransport
from ringleader.collectives.transports.staging_buffers import SLOTS_BYTES

Sign = Callable[[], Mapping[int, str]]
"""Tells ranks that have ended, and how."""
LONGEST_SECONDS = 1800.0
"""The most that a framework's own transport, which begins when all ranks are there, may take for one step."""
BROKEN_SECONDS = 0.2
"""So long an engine that ends by itself sees to it that the other hosts hear of it."""
HOSTS_FUSING = Fusing(small_bytes=2 << 20, most_bytes=8 << 20)
"""Between hosts a meeting costs hundreds of microseconds, so that more is packed."""


@dataclass(kw_only=True)
class Team:
    """One group of ranks: all of them, or a process set."""

    member: Member
    """This rank's part in it."""
    watch: Watch
    """How this rank waits in it."""
    world: World | None = None
    """Communicators and memory, None where this rank is alone without MPI."""
    board: HostBoard | None = None
    """The board of this host, where there is shared memory."""

    def close(self, *, why: str) -> bool:
        """End the engine; return whether it was in the middle of nothing."""
        return all([engine.close(why=why) for engine in self.member.engines])

    def free(self, *, together: bool) -> list[Segment]:
        """Give everything back with the peers, after `close`; return memory that arrays still look at.

        Without ``together`` only what is this rank's own is let go.
        """
        for engine in self.member.engines:
            if engine.devices is not None:
                engine.devices.close(together=together)
            engine.transport.close(together=together)
        if self.world is None or not together:
            return []
        if self.board is not None:
            self.board.close()
        return self.world.free()


def lone_team(kernels: Adapter, surroundings: Surroundings) -> Team:
    """Make the team of a rank that is alone."""
    watch = _watch(0, (), surroundings)
    engine = _engine(
        kernels, surroundings, Ranks(), watch, LoopbackTransport(kernels), LoneBoard(), True, None
    )
    member = Member(engine=engine, broadcaster=engine, ranks=engine.ranks, global_ranks=(0,))
    return Team(member=member, watch=watch)


def open_team(
    mpi: Any,
    comm: Any,
    kernels: Adapter,
    surroundings: Surroundings,
    *,
    numbers: Sequence[int],
    signs: list[Sign],
    goodbyes: Goodbyes,
    number: int = 0,
    crowded: bool | None = None,
) -> Team:
    """Make the team of the ranks of ``comm``, which goes to it. Collective over them.

    ``numbers`` are the numbers of these ranks among all. ``signs`` are the caller's, who may add to them.
    ``goodbyes`` go between all ranks; ``number`` is that of the process set.
    """
    world = open_world(
        mpi,
        comm,
        number=numbers[comm.rank],
        ranks_per_host=surroundings.ranks_per_host,
        crowded=crowded,
    )

    def ended() -> dict[int, str]:
        return {rank: how for sign in signs for rank, how in sign().items()}

    told: list[Sign] = [lambda: goodbyes.broken(number), ended]
    watch = _watch(numbers[comm.rank], told, surroundings)
    board = None
    if world.ranks.size > 1:
        board = open_board(world, watch, numbers)
    if board is not None:
        flags = board
        told.insert(0, lambda: dict.fromkeys(flags.broken(), End.BROKEN.words()))
    here = {numbers[rank] for rank in world.ranks.host_ranks} if board is not None else {numbers[comm.rank]}
    away = [rank for rank in numbers if rank not in here]

    def announce_broken() -> None:
        if board is not None:
            board.announce_broken()
        goodbyes.say(End.BROKEN, away, number=number)
        goodbyes.drain(BROKEN_SECONDS)

    transport, meeting = _choose(world, kernels, watch, board, surroundings)
    threads = mpi.Query_thread() == mpi.THREAD_MULTIPLE
    wire = open_wire(world, watch)
    engine = _engine(
        kernels, surroundings, world.ranks, watch, transport, meeting, threads, wire, announce_broken
    )
    broadcaster = engine
    if surroundings.uncoupled and world.ranks.size > 1:
        coupled = replace(surroundings, uncoupled=False, transport="mpi")
        way, flat = _choose(world, kernels, watch, None, coupled)
        broadcaster = _engine(kernels, coupled, world.ranks, watch, way, flat, threads, wire, announce_broken)
    member = Member(engine=engine, broadcaster=broadcaster, ranks=world.ranks, global_ranks=tuple(numbers))
    return Team(member=member, watch=watch, world=world, board=board)


def _watch(rank: int, signs: Sequence[Sign], surroundings: Surroundings) -> Watch:
    return Watch(
        rank=rank,
        signs=signs,
        warn_seconds=surroundings.warn_seconds,
        deadline_seconds=surroundings.deadline_seconds,
    )


def _engine(
    kernels: Adapter,
    surroundings: Surroundings,
    ranks: Ranks,
    watch: Watch,
    transport: Transport,
    board: Board,
    threads: bool,
    wire: Wire | None,
    announce_broken: Callable[[], None] = lambda: None,
) -> Engine:
    limits = Limits(
        patience=surroundings.patience_seconds,
        warn=surroundings.warn_seconds,
        shutdown=surroundings.stall_seconds,
    )
    fusing = HOSTS_FUSING if ranks.hosts > 1 else Fusing()
    if surroundings.fusion_bytes is not None:
        most = min(fusing.most_bytes, surroundings.fusion_bytes)
        fusing = Fusing(small_bytes=min(fusing.small_bytes, most), most_bytes=most)
    packs = fusing.most_bytes > 0 and ranks.size > 1 and not surroundings.uncoupled
    return Engine(
        ranks=ranks,
        board=board,
        transport=transport,
        watch=watch,
        kernels=kernels,
        limits=limits,
        packer=Packer(kernels, transport, fusing) if packs else None,
        threads=threads,
        announce_broken=announce_broken,
        devices=kernels.device_transport(_group(ranks, watch, surroundings, transport, wire)),
    )


def _choose(
    world: World,
    kernels: Adapter,
    watch: Watch,
    board: HostBoard | None,
    surroundings: Surroundings,
) -> tuple[Transport, Board]:
    """Return the transport and the board for this world: shared memory wherever ranks share a host."""
    ranks = world.ranks
    if surroundings.uncoupled:
        return UncoupledTransport(kernels, ranks.size, ranks.rank), LoneBoard()
    if ranks.size == 1:
        return LoopbackTransport(kernels), LoneBoard()
    one_host = ranks.hosts == 1
    wire = open_wire(world, watch)
    plain = MpiTransport(wire, kernels, between_hosts=not one_host)
    flat = HostsBoard(world.mpi, wire=wire, cross=world.comm, host=None, watch=watch)
    if surroundings.transport == "distributed":
        own = kernels.host_transport(_group(ranks, watch, surroundings, plain, wire))
        return own, (board if board is not None and one_host else flat)
    if board is None or surroundings.transport == "mpi" or not ranks.homogeneous or ranks.most_local == 1:
        return plain, flat
    slots = world.new_segment(SLOTS_BYTES)
    if slots is None:
        _tell_small(ranks)
        return plain, flat
    cross = None
    if not one_host:
        cross = MpiReducer(Wire(world.mpi, world.cross, watch, patient=True), kernels, between_hosts=True)
    window = WindowTransport(
        kernels=kernels,
        board=board,
        slots=slots,
        me=ranks.local_rank,
        plain=plain,
        size=ranks.size,
        new_segment=_told(world),
        free_segment=world.give_back,
        cross=cross,
    )
    if one_host:
        return window, board
    return window, HostsBoard(world.mpi, wire=wire, cross=world.cross, host=board, watch=watch)


def _group(
    ranks: Ranks, watch: Watch, surroundings: Surroundings, host: Transport, wire: Wire | None
) -> Group:
    return Group(
        ranks=ranks,
        watch=watch,
        deadline_seconds=min(surroundings.deadline_seconds, LONGEST_SECONDS),
        wire=wire,
        host=host,
        wanted=surroundings.transport,
    )


def _told(world: World) -> Callable[[int], Segment | None]:
    """Return the world's way to shared memory, with a word to the user where there is none left."""

    def new_segment(nbytes: int) -> Segment | None:
        segment = world.new_segment(nbytes)
        if segment is None:
            _tell_small(world.ranks)
        return segment

    return new_segment


def _tell_small(ranks: Ranks) -> None:
    if ranks.rank == 0:
        print(  # noqa: T201
            "ringleader: /dev/shm is too small on one of the hosts, so gradients go through plain MPI, which "
            "is slower. Give it more room (docker: --shm-size=1g; Kubernetes: an emptyDir of medium Memory).",
            file=sys.stderr,
            flush=True,
        )

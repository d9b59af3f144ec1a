"""The engines of this process: made by `init`, given up by `shutdown`, parted from at exit."""

from __future__ import annotations

import atexit
import os
import socket
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringleader.collectives import mpi_library as mpi_life
from ringleader.collectives.communicators import Ranks
from ringleader.collectives.digest_barrier import HostBoard
from ringleader.collectives.engine import Engine
from ringleader.collectives.environment import Surroundings, read_surroundings
from ringleader.collectives.exceptions import NotInitializedError, WorldError
from ringleader.collectives.framework_adapter import Adapter
from ringleader.collectives.group import Sign, Team, lone_team, open_team
from ringleader.collectives.liveness import End, Goodbyes, StatusFile
from ringleader.collectives.mpi_calls import Wire
from ringleader.collectives.peer_wait import Watch
from ringleader.collectives.process_set_registry import Registry
from ringleader.collectives.process_sets import Member
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.shutdown import Parting
from ringleader.collectives.timeline.recording import Timelines, read_wish


class Callbacks:
    """Methods to call at some moment, of objects that may be gone by then: nothing is kept alive for it."""

    def __init__(self) -> None:
        """Begin with none."""
        self._methods: list[weakref.WeakMethod[Callable[[], None]]] = []

    def add(self, method: Callable[[], None]) -> None:
        """Have a bound method called, once however often it is added."""
        known = [one for one in self._methods if one() is not None]
        new: weakref.WeakMethod[Callable[[], None]] = weakref.WeakMethod(method)
        self._methods = known if new in known else [*known, new]

    @property
    def count(self) -> int:
        """Return how many objects that are still there have one."""
        return sum(one() is not None for one in self._methods)

    def call(self) -> None:
        """Call the methods of all objects that are still there, in the order in which they were added."""
        for one in self._methods:
            method = one()
            if method is not None:
                method()


@dataclass(kw_only=True)
class Session:
    """What lives between ``init`` and ``shutdown``."""

    everybody: Team
    """All ranks."""
    kernels: Adapter
    surroundings: Surroundings
    """What the environment said, as all ranks agreed."""
    base: Any = None
    """The communicator that the ranks' numbers are of, None in a world of one."""
    parting: Parting | None = None
    """How the ranks part, None in a world of one."""
    goodbyes: Goodbyes | None = None
    """What ranks of several hosts tell each other of their ends, None in a world of one."""
    at_shutdown: Callbacks = field(default_factory=Callbacks)
    """Called before the memory of this session goes: gradients move out of it."""
    at_join: Callbacks = field(default_factory=Callbacks)
    """Called when all ranks have joined: what they count together is not equal any more."""
    signs: list[Sign] = field(default_factory=list)
    """Tell which ranks have ended."""
    registry: Registry = field(init=False)
    """The process sets."""
    timelines: Timelines = field(init=False)
    """What operations go through is written there, where that is asked for; it watches all engines."""

    def __post_init__(self) -> None:
        self.registry = Registry(self.everybody, ask=self._ask(), open_team=self._open_set)
        self.timelines = Timelines(read_wish(os.environ), rank=self.ranks.rank, host=socket.gethostname())
        self.timelines.attach(self.engine)

    @property
    def member(self) -> Member:
        """Return this rank's part in the group of all ranks."""
        return self.everybody.member

    @property
    def engine(self) -> Engine:
        """Return the engine of all ranks."""
        return self.everybody.member.engine

    @property
    def ranks(self) -> Ranks:
        """Return who this rank is among all."""
        return self.everybody.member.ranks

    @property
    def board(self) -> HostBoard | None:
        """Return the board of this host, where there is shared memory."""
        return self.everybody.board

    def _ask(self) -> Callable[[bytes, str], list[bytes]]:
        world = self.everybody.world
        if world is None or self.parting is None:
            return lambda message, words: [message]
        watch = Watch(
            rank=self.ranks.rank,
            signs=self.signs,
            warn_seconds=self.surroundings.warn_seconds,
            deadline_seconds=self.surroundings.deadline_seconds,
        )
        wire = Wire(world.mpi, self.parting.control, watch, patient=True)

        def ask(message: bytes, words: str) -> list[bytes]:
            watch.subject = words
            return wire.messages(message)

        return ask

    def _open_set(self, number: int, ranks: tuple[int, ...]) -> Team:
        world = self.everybody.world
        if world is None or self.goodbyes is None:
            team = lone_team(self.kernels, self.surroundings)
        else:
            team = open_team(
                world.mpi,
                _part(self.base, ranks, tag=number),
                self.kernels,
                self.surroundings,
                numbers=ranks,
                signs=self.signs,
                goodbyes=self.goodbyes,
                number=number,
                crowded=self.ranks.crowded,
            )
        self.timelines.attach(team.member.engine, group=f"set {number}")
        return team

    def remove_set(self, number: int) -> bool:
        """Forget a process set; see `Registry.remove`."""
        self.timelines.detach(f"set {number}")
        return self.registry.remove(number)

    def ranks_of(self, comm: Any) -> list[int]:
        """Return the numbers of a communicator's ranks; `ValueError` where some are not in this world."""
        if self.base is None:
            return list(range(comm.size))
        numbers = _numbers(comm, self.base)
        if any(not 0 <= number < self.ranks.size for number in numbers):
            raise ValueError("The communicator of a process set has ranks that hvd.init was not given.")
        return numbers


def open_session(
    kernels: Adapter, *, environ: Mapping[str, str], comm: Any = None, dynamic: bool = False
) -> Session:
    """Make the engine of this process. Collective over the ranks.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks among those that the launcher started;
    None for all of them. ``dynamic``: process sets can be added later, whatever the environment says.
    `ValueError` where this rank is not among the ranks.
    """
    surroundings = read_surroundings(environ)
    if dynamic:
        surroundings = replace(surroundings, dynamic_sets=True)
    chosen = list(comm) if isinstance(comm, Sequence) else None
    if (comm is None or chosen in ([], [0])) and not surroundings.launched:
        return Session(everybody=lone_team(kernels, surroundings), kernels=kernels, surroundings=surroundings)
    mpi = mpi_life.load(surroundings)
    if chosen:
        base = _part(mpi.COMM_WORLD, _valid(chosen, mpi.COMM_WORLD), tag=0)
    else:
        base = (mpi.COMM_WORLD if comm is None or chosen is not None else comm).Dup()
    control = base.Dup()
    surroundings = _agreed(surroundings, control)
    signs: list[Sign] = []
    goodbyes = Goodbyes(mpi, control)
    everybody = open_team(
        mpi, base, kernels, surroundings, numbers=range(base.size), signs=signs, goodbyes=goodbyes
    )
    signs.append(goodbyes)
    gone: list[Sign] = []
    if surroundings.status_file:
        file = StatusFile(Path(surroundings.status_file))
        place = {number: rank for rank, number in enumerate(_numbers(base, mpi.COMM_WORLD))}
        gone.append(lambda: {place[number]: how for number, how in file().items() if number in place})
    signs.extend(gone)
    board = everybody.board
    if board is not None:
        signs.append(lambda: {rank: End(how).words() for rank, how in board.ended().items()})
    ranks = everybody.member.ranks
    watch = Watch(
        rank=ranks.rank,
        signs=gone,
        warn_seconds=surroundings.warn_seconds,
        deadline_seconds=surroundings.deadline_seconds,
    )
    return Session(
        everybody=everybody,
        kernels=kernels,
        surroundings=surroundings,
        base=control,
        parting=Parting(mpi, control, ranks, goodbyes, watch),
        goodbyes=goodbyes,
        signs=signs,
    )


def _valid(ranks: Sequence[int], world: Any) -> list[int]:
    """Return the ranks in order; `ValueError` where they are not some of the world's, or without this one."""
    numbers = sorted(ranks)
    if len(set(numbers)) < len(numbers) or numbers[0] < 0 or numbers[-1] >= world.size:
        raise ValueError(f"hvd.init: {numbers} are not ranks of this job, which has {world.size}.")
    if world.rank not in numbers:
        raise ValueError(f"hvd.init: rank {world.rank} of the job is not among the ranks {numbers}.")
    return numbers


def _part(comm: Any, ranks: Sequence[int], *, tag: int) -> Any:
    """Return a communicator of some of the ranks. Collective over these alone."""
    whole = comm.Get_group()
    group = whole.Incl(list(ranks))
    part = comm.Create_group(group, tag=tag)
    group.Free()
    whole.Free()
    return part


def _numbers(comm: Any, world: Any) -> list[int]:
    """Return the numbers in ``world`` of the communicator's ranks."""
    ours, theirs = comm.Get_group(), world.Get_group()
    numbers = list(ours.Translate_ranks(list(range(ours.size)), theirs))
    ours.Free()
    theirs.Free()
    return numbers


def _agreed(surroundings: Surroundings, comm: Any) -> Surroundings:
    """Return the surroundings with rank 0's word on all that ranks must decide alike."""
    mine = (
        surroundings.patience_seconds,
        surroundings.warn_seconds,
        surroundings.stall_seconds,
        surroundings.fusion_bytes,
        surroundings.transport,
        surroundings.dynamic_sets,
    )
    patience, warn, stall, fusion, transport, dynamic = comm.bcast(mine, root=0)
    return replace(
        surroundings,
        patience_seconds=patience,
        warn_seconds=warn,
        stall_seconds=stall,
        fusion_bytes=fusion,
        transport=transport,
        dynamic_sets=dynamic,
    )


def close_session(session: Session, how: End) -> tuple[bool, list[Segment]]:
    """End a session; return whether all peers took part, and shared memory that arrays still look at."""
    session.at_shutdown.call()
    clean = session.registry.close(
        why=f"Horovod has been shut down: rank {session.ranks.rank} called hvd.shutdown() or ended."
    )
    session.timelines.stop()
    if session.parting is None:
        return True, []
    together, give_back = session.parting.farewell(how, session.board, clean=clean)
    left = session.registry.free(together=give_back)
    if give_back:
        session.parting.free()
    return together, left


FORKED = (
    "This process was forked from a rank after hvd.init and is not a rank itself: MPI and the memory between "
    "the ranks are its parent's. Start it before hvd.init, or as a new Python (multiprocessing's 'spawn')."
)


class Process:
    """The one session of this process, and what is left of earlier ones."""

    def __init__(self) -> None:
        """Begin without a session."""
        self.session: Session | None = None
        self._left: list[Segment] = []
        self._at_exit = False
        self._pid = 0
        self._left_alone = False

    def init(self, kernels: Adapter, comm: Any = None, *, dynamic: bool = False) -> None:
        """Open a session, unless there is one. See `open_session`."""
        if self.session is not None:
            return
        if self._pid not in (0, os.getpid()) and (
            read_surroundings(os.environ).launched or mpi_life.inherited()
        ):
            raise WorldError(FORKED)
        if not self._at_exit:
            atexit.register(self._exit)
            os.register_at_fork(after_in_child=self._forked)
            self._at_exit = True
        self._pid = os.getpid()
        self.session = open_session(kernels, environ=os.environ, comm=comm, dynamic=dynamic)
        self.session.timelines.begin()

    def shutdown(self) -> None:
        """Close the session, if there is one."""
        session, self.session = self.session, None
        if session is not None and self._pid == os.getpid():
            self._left.extend(close_session(session, End.SHUT_DOWN)[1])

    def get(self) -> Session:
        """Return the session; `ValueError` where there is none."""
        if self.session is None:
            raise NotInitializedError
        return self.session

    def _forked(self) -> None:
        """In a forked child: the session is the parent's, and so are MPI and the memory between the ranks."""
        session = self.session
        if session is None:
            return
        alone = session.parting is None
        session.timelines.forked()
        session.registry.forked("" if alone else FORKED)
        if alone:
            self._pid = os.getpid()

    def _exit(self) -> None:
        if self._pid != os.getpid():
            return
        # The interpreter keeps the exception that ended it here before handlers of exit run.
        raised = getattr(sys, "last_value", None) is not None
        session, self.session = self.session, None
        if session is not None:
            try:
                together, _ = close_session(session, End.RAISED if raised else End.FINISHED)
            except Exception as error:
                # A signal's handler, such as the DataLoader's when its workers are ended; the peers know.
                text = f"ringleader: rank {session.ranks.rank} ends without the others: {error}"
                print(text, file=sys.stderr, flush=True)  # noqa: T201
                together = False
            self._left_alone = not raised and not together
            raised = raised or not together
        # A rank that raised, or was left by one, does not wait in MPI for peers that will not come.
        if not raised:
            mpi_life.finalize()

    def leave(self) -> None:
        """Be the last exit handler: where ranks have left this one, MPI's own end would wait for them."""
        if self._left_alone and self._pid == os.getpid() and mpi_life.runs():
            for stream in (sys.stdout, sys.stderr):
                with suppress(AttributeError, OSError, ValueError):
                    stream.flush()
            os._exit(0)


PROCESS = Process()
"""MPI and the launcher know one world per process, so there is one holder of it."""
atexit.register(PROCESS.leave)  # what is registered early is called late

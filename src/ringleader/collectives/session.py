"""The engines of this process: made by `init`, given up by `shutdown`, parted from at exit."""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringleader.collectives import mpi_library as mpi_life
from ringleader.collectives.communicators import RankLayout
from ringleader.collectives.digest_barrier import SharedFlags
from ringleader.collectives.engine import Engine
from ringleader.collectives.environment import EngineSettings, read_settings
from ringleader.collectives.exceptions import NotInitializedError, WorldError
from ringleader.collectives.framework_adapter import FrameworkAdapter
from ringleader.collectives.group import Group, lone_group, open_group
from ringleader.collectives.liveness import End, EndMessages, LivenessSource, StatusFile
from ringleader.collectives.mpi_calls import MpiCalls
from ringleader.collectives.peer_wait import PeerWait
from ringleader.collectives.process_set_registry import ProcessSetRegistry
from ringleader.collectives.shared_memory import Segment
from ringleader.collectives.shutdown import ShutdownBarrier
from ringleader.collectives.timeline.recording import Timelines, read_timeline_options


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

    group: Group
    """All ranks."""
    kernels: FrameworkAdapter
    settings: EngineSettings
    """What the environment said, as all ranks agreed."""
    base: Any = None
    """The communicator that the ranks' numbers are of, None in a world of one."""
    shutdown_barrier: ShutdownBarrier | None = None
    """How the ranks part, None in a world of one."""
    end_messages: EndMessages | None = None
    """What ranks of several hosts tell each other of their ends, None in a world of one."""
    at_shutdown: Callbacks = field(default_factory=Callbacks)
    """Called before the memory of this session goes: gradients move out of it."""
    at_join: Callbacks = field(default_factory=Callbacks)
    """Called when all ranks have joined: what they count together is not equal any more."""
    liveness_sources: list[LivenessSource] = field(default_factory=list)
    """Tell which ranks have ended."""
    registry: ProcessSetRegistry = field(init=False)
    """The process sets."""
    timelines: Timelines = field(init=False)
    """What operations go through is written there, where that is asked for; it watches all engines."""

    def __post_init__(self) -> None:
        self.registry = ProcessSetRegistry(self.group, exchange=self._exchange(), open_group=self._open_set)
        self.timelines = Timelines(
            read_timeline_options(os.environ), rank=self.ranks.rank, host=socket.gethostname()
        )
        self.timelines.attach(self.engine)

    @property
    def engine(self) -> Engine:
        """Return the engine of all ranks."""
        return self.group.engine

    @property
    def ranks(self) -> RankLayout:
        """Return who this rank is among all."""
        return self.group.ranks

    @property
    def flags(self) -> SharedFlags | None:
        """Return the board of this host, where there is shared memory."""
        return self.group.flags

    def _exchange(self) -> Callable[[bytes, str], list[bytes]]:
        comms = self.group.comms
        if comms is None or self.shutdown_barrier is None:
            return lambda message, words: [message]
        peer_wait = PeerWait(
            rank=self.ranks.rank,
            liveness_sources=self.liveness_sources,
            warn_seconds=self.settings.warn_seconds,
            deadline_seconds=self.settings.deadline_seconds,
        )
        mpi_calls = MpiCalls(comms.mpi, self.shutdown_barrier.control, peer_wait, polling=True)

        def exchange(message: bytes, words: str) -> list[bytes]:
            peer_wait.subject = words
            return mpi_calls.messages(message)

        return exchange

    def _open_set(self, number: int, ranks: tuple[int, ...]) -> Group:
        comms = self.group.comms
        if comms is None or self.end_messages is None:
            group = lone_group(self.kernels, self.settings)
        else:
            group = open_group(
                comms.mpi,
                _part(self.base, ranks, tag=number),
                self.kernels,
                self.settings,
                numbers=ranks,
                liveness_sources=self.liveness_sources,
                end_messages=self.end_messages,
                number=number,
                oversubscribed=self.ranks.oversubscribed,
            )
        self.timelines.attach(group.engine, group=f"set {number}")
        return group

    def remove_set(self, number: int) -> bool:
        """Forget a process set; see `ProcessSetRegistry.remove`."""
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
    kernels: FrameworkAdapter, *, environ: Mapping[str, str], comm: Any = None, dynamic: bool = False
) -> Session:
    """Make the engine of this process. Collective over the ranks.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks among those that the launcher started;
    None for all of them. ``dynamic``: process sets can be added later, whatever the environment says.
    `ValueError` where this rank is not among the ranks.
    """
    settings = read_settings(environ)
    if dynamic:
        settings = replace(settings, dynamic_sets=True)
    chosen = list(comm) if isinstance(comm, Sequence) else None
    if (comm is None or chosen in ([], [0])) and not settings.launched:
        return Session(group=lone_group(kernels, settings), kernels=kernels, settings=settings)
    mpi = mpi_life.load(settings)
    if chosen:
        base = _part(mpi.COMM_WORLD, _valid(chosen, mpi.COMM_WORLD), tag=0)
    else:
        base = (mpi.COMM_WORLD if comm is None or chosen is not None else comm).Dup()
    control = base.Dup()
    settings = _agreed(settings, control)
    liveness_sources: list[LivenessSource] = []
    end_messages = EndMessages(mpi, control)
    group = open_group(
        mpi,
        base,
        kernels,
        settings,
        numbers=range(base.size),
        liveness_sources=liveness_sources,
        end_messages=end_messages,
    )
    liveness_sources.append(end_messages)
    gone: list[LivenessSource] = []
    if settings.status_file:
        file = StatusFile(Path(settings.status_file))
        place = {number: rank for rank, number in enumerate(_numbers(base, mpi.COMM_WORLD))}
        gone.append(lambda: {place[number]: how for number, how in file().items() if number in place})
    liveness_sources.extend(gone)
    flags = group.flags
    if flags is not None:
        liveness_sources.append(flags.ended)
    ranks = group.ranks
    peer_wait = PeerWait(
        rank=ranks.rank,
        liveness_sources=gone,
        warn_seconds=settings.warn_seconds,
        deadline_seconds=settings.deadline_seconds,
    )
    return Session(
        group=group,
        kernels=kernels,
        settings=settings,
        base=control,
        shutdown_barrier=ShutdownBarrier(mpi, control, ranks, end_messages, peer_wait),
        end_messages=end_messages,
        liveness_sources=liveness_sources,
    )


def _valid(ranks: Sequence[int], comms: Any) -> list[int]:
    """Return the ranks in order; `ValueError` where they are not some of the world's, or without this one."""
    numbers = sorted(ranks)
    if len(set(numbers)) < len(numbers) or numbers[0] < 0 or numbers[-1] >= comms.size:
        raise ValueError(f"hvd.init: {numbers} are not ranks of this job, which has {comms.size}.")
    if comms.rank not in numbers:
        raise ValueError(f"hvd.init: rank {comms.rank} of the job is not among the ranks {numbers}.")
    return numbers


def _part(comm: Any, ranks: Sequence[int], *, tag: int) -> Any:
    """Return a communicator of some of the ranks. Collective over these alone."""
    whole = comm.Get_group()
    group = whole.Incl(list(ranks))
    part = comm.Create_group(group, tag=tag)
    group.Free()
    whole.Free()
    return part


def _numbers(comm: Any, comms: Any) -> list[int]:
    """Return the numbers in ``comms`` of the communicator's ranks."""
    ours, theirs = comm.Get_group(), comms.Get_group()
    numbers = list(ours.Translate_ranks(list(range(ours.size)), theirs))
    ours.Free()
    theirs.Free()
    return numbers


def _agreed(settings: EngineSettings, comm: Any) -> EngineSettings:
    """Return the surroundings with rank 0's word on all that ranks must decide alike."""
    mine = (
        settings.mismatch_seconds,
        settings.warn_seconds,
        settings.stall_seconds,
        settings.fusion_bytes,
        settings.transport,
        settings.dynamic_sets,
    )
    patience, warn, stall, fusion, transport, dynamic = comm.bcast(mine, root=0)
    return replace(
        settings,
        mismatch_seconds=patience,
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
    if session.shutdown_barrier is None:
        return True, []
    together, give_back = session.shutdown_barrier.meet(how, session.flags, clean=clean)
    left = session.registry.free(together=give_back)
    if give_back:
        session.shutdown_barrier.free()
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
        self._interrupted = False

    def init(self, kernels: FrameworkAdapter, comm: Any = None, *, dynamic: bool = False) -> None:
        """Open a session, unless there is one. See `open_session`."""
        if self.session is not None:
            return
        if self._pid not in (0, os.getpid()) and (read_settings(os.environ).launched or mpi_life.inherited()):
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
        alone = session.shutdown_barrier is None
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
            except KeyboardInterrupt:
                # An exit handler's exception changes no exit code, but the others wait for this rank.
                together, self._interrupted = False, True
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
            if self._interrupted:  # the end of a process that SIGINT ends: the launcher stops the others
                signal.signal(signal.SIGINT, signal.SIG_DFL)
                os.kill(os.getpid(), signal.SIGINT)
            os._exit(0)


PROCESS = Process()
"""MPI and the launcher know one world per process, so there is one holder of it."""
atexit.register(PROCESS.leave)  # what is registered early is called late

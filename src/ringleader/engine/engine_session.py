"""What lives between ``init`` and ``shutdown``: the group of all ranks, process sets, timelines."""

from __future__ import annotations

import os
import socket
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ringleader.agents import usable_cores
from ringleader.engine import loaded_mpi
from ringleader.engine.communicator import Communicator, World
from ringleader.engine.deadlock_check import DeadlockCheck, GroupWait, script_stands_still
from ringleader.engine.engine_settings import EngineSettings, Limits, read_settings
from ringleader.engine.framework_adapter import FrameworkAdapter
from ringleader.engine.group_communicators import RankLayout, any_oversubscribed, checked_ranks
from ringleader.engine.group_engine import Engine
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.mpi_communicator import mpi_world
from ringleader.engine.operations import Work
from ringleader.engine.peer_wait import EndMessages, LivenessSource, PeerWait, StatusFile, peer_wait_for
from ringleader.engine.process_set_registry import ProcessSetRegistry
from ringleader.engine.rank_group import Group, SessionParts, lone_group, open_group
from ringleader.engine.timeline import Timelines, read_timeline_options


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
class Session(SessionParts):
    """What lives between ``init`` and ``shutdown``."""

    requested: Any = None
    """The communicator or ranks that ``init`` was given, None for all."""
    base: Communicator | None = None
    """The communicator that the ranks' numbers are of, for what they tell each other outside of operations;
    None for a rank that is alone."""
    end_wait: PeerWait | None = None
    """How this rank waits for the ends of the others: it knows which processes are gone, and by nothing else
    that ranks have ended. None for a rank that is alone."""
    at_shutdown: Callbacks = field(default_factory=Callbacks)
    """Called before the memory of this session goes: gradients move out of it."""
    short_of_memory: Callbacks = field(default_factory=Callbacks)
    """Called where the host refuses memory: what is only kept for later goes."""
    at_join: Callbacks = field(default_factory=Callbacks)
    """Called when all ranks have joined: what they count together is not equal any more."""
    sets_to_register: bool = True
    """Whether a rank may have given process sets to ``init``; False where all said that they have none."""
    group: Group = field(init=False)
    """All ranks."""
    registry: ProcessSetRegistry = field(init=False)
    """The process sets."""
    deadlock_check: DeadlockCheck | None = field(init=False, default=None)
    """Reports ranks that wait for each other in different groups, None for a rank that is alone."""
    timelines: Timelines = field(init=False)
    """What operations go through is written there, where that is asked for; it watches all engines."""

    @property
    def membership(self) -> Any:
        """Return this rank's part in the present generation of an elastic job, None in other jobs."""
        return None if self.world is None else self.world.membership

    def begin(self, group: Group) -> None:
        """Begin with the group of all ranks."""
        self.group = group
        self.registry = ProcessSetRegistry(self.group, exchange=self._exchange(), open_group=self._open_set)
        self.timelines = Timelines(
            read_timeline_options(os.environ), rank=self.ranks.rank, host=socket.gethostname()
        )
        self.timelines.attach(self.engine.queue)
        # Independent ranks synchronize for broadcasts alone.
        if self.base is not None and not self.settings.uncoupled:
            self.deadlock_check = DeadlockCheck(
                self.base, patience=self.settings.limits.mismatch, sets=self.registry.table.all
            )
            self._tell_deadlocks(self.deadlock_check, self.group, 0)

    def _tell_deadlocks(self, check: DeadlockCheck, group: Group, number: int) -> None:
        """Have waits in a group look for ranks that wait for each other in different groups."""
        where = f"process set {number}" if number else "all ranks"
        registry = self.registry  # which lets go of its groups at the end, so that no circle keeps them

        def deadlock(since: float, subject: object) -> str:
            if time.monotonic() - since < check.patience:
                return ""
            if not script_stands_still(group.engine.queue.waiting_threads):
                return ""
            engines = {known: one.engine for known, one in registry.groups().items()}
            came = {known: (one.meetings, bool(one.queue.works)) for known, one in engines.items()}
            if number not in came:
                return ""
            asked = subject
            if isinstance(subject, Work) and subject.signature.kind == "process_set":
                asked = subject.signature.note
            return check.look(GroupWait(group=number, since=since, words=f"{asked} of {where}", groups=came))

        group.peer_wait.deadlock = deadlock

    @property
    def engine(self) -> Engine:
        """Return the engine of all ranks."""
        return self.group.engine

    @property
    def ranks(self) -> RankLayout:
        """Return who this rank is among all."""
        return self.group.ranks

    def _exchange(self) -> Callable[[bytes, str], list[bytes]]:
        if self.base is None:
            return lambda message, words: [message]
        peer_wait = peer_wait_for(self.ranks.rank, self.liveness_sources, self.settings, self.world)
        mpi_calls = MpiCalls(self.base, peer_wait, polling=True)

        def exchange(message: bytes, words: str) -> list[bytes]:
            peer_wait.subject = words
            return mpi_calls.messages(message)

        return exchange

    def _open_set(self, number: int, ranks: tuple[int, ...]) -> Group:
        if self.world is None or self.base is None:
            group = lone_group(self)
        else:
            comm, oversubscribed = self.base.part(ranks, tag=number), self.ranks.oversubscribed
            group = open_group(
                self, self.world, comm, numbers=ranks, number=number, oversubscribed=oversubscribed
            )
        if self.deadlock_check is not None:
            self._tell_deadlocks(self.deadlock_check, group, number)
        self.timelines.attach(group.engine.queue, group=f"set {number}")
        return group

    def remove_set(self, number: int) -> bool:
        """Forget a process set; see `ProcessSetRegistry.remove`."""
        self.timelines.detach(f"set {number}")
        return self.registry.remove(number)

    def ranks_of(self, comm: Any) -> list[int]:
        """Return the numbers of a communicator's ranks; `ValueError` where some are not in this job."""
        if self.base is None:
            return list(range(comm.size))
        numbers = self.base.of(comm).numbers_in(self.base)
        if any(not 0 <= number < self.ranks.size for number in numbers):
            raise ValueError("The communicator of a process set has ranks that hvd.init was not given.")
        return numbers


def open_session(
    kernels: FrameworkAdapter,
    *,
    environ: Mapping[str, str],
    comm: Any = None,
    dynamic: bool = False,
    with_sets: bool = True,
    entry: Sequence[int] | None = None,
) -> Session:
    """Make the engine of this process. Collective over the ranks.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks among those that the launcher started;
    None for all of them. ``dynamic``: process sets can be added later, whatever the environment says.
    ``with_sets``: whether this rank has process sets to register. ``entry``: plain numbers that in an elastic
    job the loop around training gives to those of the other ranks.
    `ValueError` where this rank is not among the ranks.
    """
    settings = read_settings(environ)
    if dynamic:
        settings = replace(settings, dynamic_sets=True)
    chosen = list(comm) if isinstance(comm, Sequence) else None
    if (comm is None or chosen in ([], [0])) and not settings.launched:
        session = Session(kernels=kernels, settings=settings, requested=comm)
        session.begin(lone_group(session))
        return session
    if settings.elastic:
        from ringleader.engine.mpi_proxy.membership import ELASTIC  # other jobs need nothing of it

        arrival = {
            "settings": _shared(settings),
            "processors": usable_cores.rank_processors().values(),
            "sets": with_sets,
            "entry": entry,
        }
        world = ELASTIC.join(environ, arrival)
    else:
        world = mpi_world(loaded_mpi.load(settings))
    everybody = world.everybody
    if chosen:
        base = everybody.part(checked_ranks(chosen, everybody), tag=0)
    elif everybody.proxied:
        base = everybody  # of one generation, in which there is one session
    else:
        base = (everybody if comm is None or chosen is not None else everybody.of(comm)).duplicate()
    control = base.duplicate()
    settings, oversubscribed, with_sets = _agreed(settings, world, control)
    session = Session(
        kernels=kernels,
        settings=settings,
        world=world,
        requested=comm,
        base=control,
        end_messages=EndMessages(control),
        sets_to_register=with_sets,
    )
    group = open_group(session, world, base, numbers=range(base.size), oversubscribed=oversubscribed)
    gone: list[LivenessSource] = []
    if settings.status_file and not settings.elastic:  # it counts ranks as the launcher started them
        file = StatusFile(Path(settings.status_file))
        place = {number: rank for rank, number in enumerate(base.numbers_in(everybody))}
        gone.append(lambda: {place[number]: how for number, how in file().items() if number in place})
    end_messages = session.end_messages
    assert end_messages is not None
    session.liveness_sources.extend([end_messages, *gone])
    if group.flags is not None:
        session.liveness_sources.append(group.flags.ended)
    session.end_wait = peer_wait_for(group.ranks.rank, gone, settings, world)
    session.begin(group)
    return session


def _shared(settings: EngineSettings) -> dict[str, Any]:
    """Return, as plain values, the settings of which rank 0's are those of all ranks."""
    return {
        "limits": vars(settings.limits),
        "fusion_bytes": settings.fusion_bytes,
        "transport": settings.transport,
        "dynamic_sets": settings.dynamic_sets,
        "consistency": settings.consistency,
    }


def _agreed(
    settings: EngineSettings, world: World, comm: Communicator
) -> tuple[EngineSettings, bool | None, bool]:
    """Return the settings, with rank 0's where ranks must decide alike.

    In an elastic job also whether a host has fewer processors than it needs, and whether any rank has process
    sets to register; it has brought all of that to the ranks with the beginning of the generation.
    """
    arrivals = [] if world.membership is None else world.membership.arrivals
    shared = arrivals[0]["settings"] if arrivals else comm.gather(_shared(settings))[0]
    settings = replace(settings, **{**shared, "limits": Limits(**shared["limits"])})
    hosts = comm.firsts_on_hosts()
    if hosts is None or settings.ranks_per_host is not None:
        return settings, None, True
    own = [usable_cores.RankProcessors.of(one["processors"]) for one in arrivals]
    oversubscribed = any_oversubscribed(hosts, own, proxied=True)
    return settings, oversubscribed, any(one["sets"] for one in arrivals)

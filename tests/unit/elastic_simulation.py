"""Hosts, ranks and proxies that obey the decider of elastic jobs, in any order, and fail as they are told."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, NamedTuple

from ringleader.launch.elastic.layout import size_of, slots_of
from ringleader.launch.elastic.membership import deadlines_of, decide
from ringleader.launch.elastic.membership_state import Limits, Message, Order, RankStatus, State, WorldStatus
from ringleader.launch.elastic_history import Event


class Member(NamedTuple):
    """A rank of a generation, as agents are told."""

    incarnation: int
    world_rank: int
    host_index: int
    arrival: int = 0


def message(do: str, **words: Any) -> Message:
    """Return something that the decider is told."""
    return {"do": do, **words}


class Phase(StrEnum):
    """Where a job stands."""

    GATHERING = "gathering"
    STARTING = "starting"
    REPAIRING = "repairing"
    ATTACHING = "attaching"
    RUNNING = "running"
    PREPARING = "preparing"
    STOPPING = "stopping"
    OVER = "over"


def phase_of(state: State) -> Phase:
    """Return where a job stands."""
    if state.over:
        return Phase.OVER
    if state.result is not None:
        return Phase.STOPPING
    generation = state.generation
    if generation is not None:
        if generation.deadline is not None:
            return Phase.ATTACHING
        return Phase.PREPARING if state.next_world else Phase.RUNNING
    if not state.world:
        return Phase.GATHERING if state.gather_until is not None else Phase.STARTING
    ready = state.worlds[state.world].status is WorldStatus.READY
    return Phase.REPAIRING if ready else Phase.STARTING


@dataclass
class Rank:
    """A process: what it would do next."""

    host: str
    generation: int = 0
    """In which it takes part; 0: none."""
    left: int = 0
    """The generation that it left at its script's end."""
    waits: bool = False
    past: bool = False
    """It has made its last commit: it heeds nothing any more, and returns."""


@dataclass
class Simulation:
    """The decider, and everything that it decides about."""

    limits: Limits = field(default_factory=Limits)
    state: State = field(default_factory=State)
    now: float = 0.0
    hosts: dict[str, bool] = field(default_factory=dict)
    """Hosts whose agent runs → whether the host is there."""
    machines: dict[str, str] = field(default_factory=dict)
    """Hosts that are names of one machine → that machine."""
    ranks: dict[int, Rank] = field(default_factory=dict)
    worlds: dict[int, Any] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    told: dict[int, Any] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    commits: dict[str, set[int]] = field(default_factory=dict)
    notified: bool = False
    finished: bool = False
    returning: list[int] = field(default_factory=list)
    """Ranks that have returned, of which only their sockets' ends were told."""
    events: list[Event] = field(default_factory=list)
    pending: list[Callable[[], Message | None]] = field(default_factory=list)
    """Answers that are on their way."""
    excluded: list[str] = field(default_factory=list)
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = State(limits=self.limits)

    def tell(self, do: str, **words: Any) -> list[Order]:
        """Tell the decider, carry out what it orders, and check what must always hold."""
        told = message(do, **words)
        self.log.append(f"{self.now:.2f} {told}")
        finished = bool(self.state.returned)
        orders = decide(self.state, [told], self.now)
        if finished:
            started = [one for one in orders if one["do"] in ("spawn", "start_world", "generation")]
            assert not started, "nothing is started after a rank has returned"
        for order in orders:
            self.log.append(f"          {order}")
            self._obey(SimpleNamespace(**order))
        self._check()
        return orders

    def _obey(self, order: Any) -> None:  # noqa: C901 - one branch for each order
        if order.do == "start_host":
            self.pending.append(lambda: self._host_answer(order))
        elif order.do == "end_host":
            self.hosts.pop(order.host, None)
            for number in [number for number, rank in self.ranks.items() if rank.host == order.host]:
                del self.ranks[number]
        elif order.do == "exclude_host":
            self.excluded.append(order.host)
        elif order.do == "start_world":
            assert order.world not in self.worlds
            places = [self.machines.get(host, host) for host, _ in order.layout]
            changes = sum(one != other for one, other in pairwise(places))
            assert changes == max(len(set(places)) - 1, 0), "the names of a machine follow one another"
            self.worlds[order.world] = order
            for rank in range(size_of(order.layout)):
                self.pending.append(lambda rank=rank: self._proxy_answer(order, rank))
        elif order.do == "end_world":
            self.ready.discard(order.world)
            self.pending.append(lambda: self._world_answer(order.world))
        elif order.do == "spawn":
            assert order.incarnation not in self.ranks, "an incarnation is used once"
            assert order.host in self.hosts, "a rank is started where an agent runs"
            self.ranks[order.incarnation] = Rank(host=order.host)
            self.pending.append(lambda: self._rank_waits(order.incarnation, 0))
        elif order.do in ("kill", "leave"):
            self._end_rank(order.incarnation, 0 if order.do == "leave" else None)
        elif order.do == "generation":
            order.members = [Member(*one) for one in order.members]
            self._begin(order)
        elif order.do == "end_generation":
            self.ended.add(order.number)
            for number, rank in self.ranks.items():
                if rank.generation == order.number:
                    self._leave(number)
        elif order.do == "notify":
            self.notified = True
        elif order.do == "stop_ranks":
            for number in list(self.ranks):
                self._end_rank(number, None)
        elif order.do == "tell":
            self.events.append(order.event)
        elif order.do == "finish":
            self.finished = True

    def _begin(self, order: Any) -> None:
        limits = self.limits
        active = [one for one in self.told if one not in self.ended]
        for number in active:
            assert not any(rank.generation == number for rank in self.ranks.values()), "one generation only"
            self.ended.add(number)
        assert all(order.number > number for number in self.told), "generations are numbered upwards"
        assert order.world in self.ready, "its proxies are ready"
        slots = slots_of(self.worlds[order.world].layout)
        size = len(order.members)
        assert size >= limits.min_np and (limits.max_np is None or size <= limits.max_np)
        assert limits.min_hosts <= len(order.hosts) <= (limits.max_hosts or len(order.hosts))
        indices = [member.host_index for member in order.members]
        assert list(dict.fromkeys(indices)) == list(range(len(order.hosts)))
        assert indices == sorted(indices), "ranks of a host are consecutive"
        assert len({member.world_rank for member in order.members}) == size
        for member in order.members:
            rank = self.ranks.get(member.incarnation)
            assert rank is None or rank.waits, "every member waited when it was told"
            assert slots[member.world_rank][0] == order.hosts[member.host_index]
            assert rank is None or rank.host == order.hosts[member.host_index]
        if order.restore:
            assert order.restore in self.commits[order.hosts[0]], "rank 0's host holds the commit"
        for host in list(self.commits):  # an agent that is told forgets newer ones
            self.commits[host] = {number for number in self.commits[host] if number <= order.restore}
        self.told[order.number] = order
        for member in order.members:
            if (rank := self.ranks.get(member.incarnation)) is not None:
                rank.waits, rank.generation = False, order.number
                self.pending.append(lambda number=member.incarnation: self._attach(number, order.number))

    def _host_answer(self, order: Any) -> Message | None:
        record = self.state.hosts.get(order.host)
        if record is None or order.host in self.hosts:
            return None
        self.hosts[order.host] = True
        machine = self.machines.get(order.host, "")
        return message("host_ready", host=order.host, slots=order.slots, machine=machine)

    def _proxy_answer(self, order: Any, rank: int) -> Message | None:
        if order.world not in self.worlds or slots_of(order.layout)[rank][0] not in self.hosts:
            return None
        record = self.state.worlds.get(order.world)
        if record is not None and len(record.ready | {rank}) == size_of(order.layout):
            self.ready.add(order.world)
        return message("proxy_ready", world=order.world, world_rank=rank)

    def _world_answer(self, number: int) -> Message | None:
        ended = self.worlds.pop(number, None)
        return message("world_ended", world=number, why="ended") if ended is not None else None

    def _rank_waits(self, number: int, after: int) -> Message | None:
        rank = self.ranks.get(number)
        if rank is None or rank.waits or rank.generation:
            return None
        rank.waits = True
        held = tuple(sorted(self.commits.get(rank.host, ())))[-2:]
        return message("rank_waiting", incarnation=number, after=after, commits=held)

    def _attach(self, number: int, generation: int) -> Message | None:
        rank = self.ranks.get(number)
        if rank is None or rank.generation != generation:
            return None
        return message("rank_attached", incarnation=number, generation=generation)

    def _leave(self, number: int) -> None:
        rank = self.ranks[number]
        if rank.past:
            return
        after, rank.generation = rank.generation, 0
        self.pending.append(lambda: self._rank_waits(number, after))

    def _end_rank(self, number: int, code: int | None) -> None:
        if self.ranks.pop(number, None) is not None:
            words = {"incarnation": number, "exit_code": code, "signal": 9 if code is None else None}
            self.pending.append(lambda: message("rank_ended", **words))

    def offer(self, **hosts: int) -> None:
        """The source of hosts says what there is."""
        self.tell("hosts_seen", hosts=tuple(hosts.items()))

    def kill_rank(self, number: int, code: int | None = None, words: str = "") -> None:
        """A rank dies; peers of its generation notice."""
        if self.ranks.pop(number, None) is None:
            return
        self.tell("rank_gone", incarnation=number)
        signal = 9 if code is None else None
        self.tell("rank_ended", incarnation=number, exit_code=code, signal=signal, words=words)

    def lose_host(self, name: str) -> None:
        """A host dies, and every world that is on it."""
        if name not in self.hosts:
            return
        del self.hosts[name]
        self.commits.pop(name, None)
        for number in [number for number, rank in self.ranks.items() if rank.host == name]:
            del self.ranks[number]
        worlds = [
            number for number, one in self.worlds.items() if any(host == name for host, _ in one.layout)
        ]
        facts: list[Message] = [message("host_lost", host=name, why="silent")]
        for number in worlds:
            self.ready.discard(number)
            del self.worlds[number]
            facts.append(message("world_ended", world=number, why="mpirun ended"))
        for fact in facts:
            self.tell(**fact)

    def lose_world(self, number: int) -> None:
        """A world's mpirun ends."""
        if self.worlds.pop(number, None) is not None:
            self.ready.discard(number)
            self.tell("world_ended", world=number, why="mpirun ended")

    def commit(self, number: int) -> None:
        """All ranks of the generation commit, and leave it where they were told that hosts changed."""
        generation = self.state.generation
        if generation is None or generation.deadline is not None:
            return
        order = self.told[generation.number]
        if any(member.incarnation not in self.ranks for member in order.members):
            return
        for host in order.hosts:
            self.commits[host] = set(sorted({*self.commits.get(host, ()), number})[-2:])
            self.tell("committed", host=host, number=number)
        if self.notified:
            self.notified = False
            for member in order.members:
                if (rank := self.ranks.get(member.incarnation)) and rank.generation == generation.number:
                    self._leave(member.incarnation)
                    self.tell("rank_detached", incarnation=member.incarnation, generation=generation.number)

    def commit_on(self, hosts: Collection[str], number: int) -> None:
        """All ranks write a commit, and it is complete on these hosts; then a rank of another one dies."""
        generation = self.state.generation
        if generation is None or generation.deadline is not None:
            return
        members = self.told[generation.number].members
        late = [one.incarnation for one in members if one.incarnation in self.ranks]
        late = [one for one in late if self.ranks[one].host not in hosts]
        if len(late) == 0 or any(member.incarnation not in self.ranks for member in members):
            return
        for host in self.told[generation.number].hosts:
            complete = {number} if host in hosts else set()
            self.commits[host] = {*sorted(self.commits.get(host, ()))[-1:], *complete}
            for one in complete:
                self.tell("committed", host=host, number=one)
        self.kill_rank(late[0])

    def give_back(self, number: int) -> None:
        """A rank's script ends by itself: it leaves its generation and returns."""
        for _ in range(3):
            self.finish_step(number)

    def finish_step(self, number: int) -> None:
        """A rank's script ends by itself: the next of three things that are told of it."""
        rank = self.ranks.get(number)
        if rank is not None and rank.generation:
            rank.left, rank.generation = rank.generation, 0
            self.tell("rank_detached", incarnation=number, generation=rank.left)
        elif rank is not None and rank.left and not rank.waits:
            del self.ranks[number]
            self.returning.append(number)
            self.tell("rank_gone", incarnation=number)
        elif number in self.returning:
            self.returning.remove(number)
            self.tell("rank_ended", incarnation=number, exit_code=0)

    def answer(self, index: int) -> None:
        """Let one of the answers that are on their way arrive."""
        if self.pending:
            fact = self.pending.pop(index % len(self.pending))()
            if fact is not None:
                self.tell(**fact)

    def settle(self, *, commits: bool = True, seconds: float = 3000.0) -> Phase:
        """Let everything answer in order and time pass until nothing changes any more."""
        until = self.now + seconds
        while not self.finished:
            while self.pending and not self.finished:
                self.answer(0)
            if commits and self.notified:
                self.commit(max((number for held in self.commits.values() for number in held), default=0) + 1)
                continue
            deadlines = [when for when in deadlines_of(self.state) if when < until]
            if not deadlines:
                break
            self.now = max(self.now, min(deadlines)) + 0.01
            self.tell("tick")
        return phase_of(self.state)

    def _check(self) -> None:
        state = self.state
        if state.over:
            assert not state.ranks and not state.hosts
            return
        ends = state.ranks and all(one.status is RankStatus.DETACHED for one in state.ranks.values())
        if state.generation is None and state.result is None and not ends:
            waited_for = [*deadlines_of(state), *(True for _ in self.pending)]
            assert waited_for or not state.wanted, f"{phase_of(state)} waits for nobody"
        for rank in state.ranks.values():
            assert rank.host in state.hosts
        for number in (state.world, state.next_world):
            assert not number or number in state.worlds
        assert state.world != state.next_world or not state.world
        if state.result is not None:
            assert state.stop_until is not None or state.over

"""The session of an elastic job: messages to the decider, its orders to hosts, worlds and ranks.

A rank here is an incarnation: the process of a slot from the order to start it to its last word. The one that
follows it on the slot is another. What the decider knows is ``membership_state``.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Iterable
from typing import Any

from ringleader.agents import protocol
from ringleader.agents.elastic.generation_client import INCARNATION, SLOT
from ringleader.launch import signals
from ringleader.launch.elastic.available_hosts import AvailableHosts
from ringleader.launch.elastic.elastic_hosts import ElasticHosts
from ringleader.launch.elastic.host_sources import MOST_RANKS
from ringleader.launch.elastic.job_context import ElasticContext
from ringleader.launch.elastic.membership import deadlines_of, decide
from ringleader.launch.elastic.membership_messages import NEWS
from ringleader.launch.elastic.membership_state import Limits, Message, Order, State
from ringleader.launch.elastic.worlds import Worlds
from ringleader.launch.elastic_history import Event, line_of
from ringleader.launch.exit_reason import TIMED_OUT, Cause, Why
from ringleader.launch.launch_plan import Prepared
from ringleader.launch.supervision.agent_connections import AgentConnection
from ringleader.launch.supervision.mpirun_session import LOST_SECONDS
from ringleader.launch.supervision.ranks import RankState
from ringleader.launch.supervision.session import FLUSH_SECONDS, Channels, Session
from ringleader.plan.rank_placement import RankPlace
from ringleader.render.rank_environment import FreePorts

LEAVE_SECONDS = 10.0
"""After the end: for host agents to have ended, and the ranks' last output to be read."""
FILES_SECONDS = 57.0
"""The same, where host agents may write the last commit to a file: longer than they try
(``host_agent_loop.FILE_SECONDS``), shorter than ``batch_script.SAVING`` before a time limit."""
_LONGEST_WORDS = 200
_TOGETHER = {
    **dict.fromkeys(("committed", "rank_attached"), 1),
    **dict.fromkeys(("rank_detached", "rank_gone", "rank_ended", "proxy_gone"), 2),
    **dict.fromkeys(("host_ready", "rank_waiting", "proxy_ready"), 3),
}
"""Messages that come from many at once. Those of one number are decided together, lower numbers first."""
_COMMITS = ("committed", "rank_waiting")
"""Both say which commits a host has."""
REST = 4.0
"""After a decision that took T seconds, messages from many wait 4 T: for thousands of ranks, all of which are
gone through, deciding takes a fifth of our time however few report at once."""


class ElasticRank(RankState):
    """One incarnation, from the order to start it to its last word."""

    def __init__(self, incarnation: int, slot: int, prepared: Prepared, place: RankPlace) -> None:
        """``place``: where it would be in the world for which it is started."""
        super().__init__(place=place, host=prepared.plan.hosts[place.host_index])
        self.incarnation, self.slot = incarnation, slot
        self.prepared = prepared
        self.last_words = b""
        """The last line that it wrote to its standard error."""
        self.begun = False


class ElasticJob(Session[ElasticRank]):
    """One elastic job, from the first look at its hosts to the end of everything."""

    def __init__(self, context: ElasticContext, channels: Channels, offers: AvailableHosts) -> None:
        """Nothing is started yet."""
        super().__init__(context.job, channels)
        self.context, self._offers = context, offers
        self.state = State(limits=limits_of(context))
        self.events: list[Event] = []
        self._messages: deque[Message] = deque()
        self._deciding = False
        self._rests_until = float("-inf")
        self._soonest: float | None = None
        """When something will be decided even if nothing is heard."""
        self._ready: dict[int, ElasticRank] = {}
        """Ranks whose agents are there and were not told to start, by their incarnations."""
        self._lowest: ElasticRank | None = None
        """The first living one, unless it has ended meanwhile."""
        self._timed_out = False
        self._finished_at: float | None = None
        self._leave_seconds = LEAVE_SECONDS
        self._ports: FreePorts | None = None
        self._stopping = False
        self._terminal = signals.has_terminal()
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.hosts = ElasticHosts(context, self.server, self.take, wake=self._wake)
        self.hosts.lacks_state = self._lacks_state
        self.worlds = Worlds(context, channels.selector, self.take)

    def _lacks_state(self) -> bool:
        """Say whether neither a rank nor a host has anything of the training."""
        trains = any(rank in self.state.ranks for rank in self.state.order)
        return not trains and not any(host.commits for host in self.state.hosts.values())

    # --- messages and orders ------------------------------------------------------------------------------

    def take(self, do: str, **words: Any) -> None:
        """Have a message decided, and what follows done; one that comes up meanwhile is next.

        What every rank, proxy or host reports is decided when all that have reported by now are heard.
        """
        self._messages.append({"do": do, **words})
        if do not in _TOGETHER:
            self._decide()

    def _decide(self) -> None:
        """Have all messages decided: those that many report alike together, any other by itself."""
        if self._deciding or not self._messages:
            return
        self._deciding, spent = True, 0.0
        try:
            while self._messages:
                some = [self._messages.popleft()]
                while self._messages and _number(some[-1]) and _number(self._messages[0]):
                    some.append(self._messages.popleft())
                for alike in alike_in_order(some):
                    began = time.monotonic()
                    orders = decide(self.state, alike, self.clock())
                    spent += time.monotonic() - began
                    for order in orders:
                        self._obey(order)
        finally:
            self._deciding = False
        self.hosts.look()
        self._soonest = min(deadlines_of(self.state), default=None)
        self._rests_until = self.clock() + REST * spent

    def _obey(self, order: Order) -> None:  # noqa: C901 - one branch for each order
        """Carry out an order; what is none of the launcher's goes to every host agent as it is."""
        agents = self.hosts.agents
        match order:
            case {"do": "start_host", "host": host, "slots": slots}:
                self.hosts.start(host, slots)
            case {"do": "end_host", "host": host}:
                result = self.state.result
                self.hosts.end(host, unfinished=result is not None and result.exit_code != 0)
            case {"do": "exclude_host", "host": host}:
                self._lose_ranks(host)
                self._offers.exclude(host)
            case {"do": "start_world", "world": world, "layout": layout}:
                self.worlds.start(world, layout, self.hosts.reports, self.hosts.ssh)
            case {"do": "end_world", "world": world, "hard": hard}:
                agents.tell_all(**order)
                self.worlds.end(world, hard=hard)
            case {"do": "spawn", "incarnation": incarnation, "host": host, "slot": slot, "world": world}:
                self._spawn(incarnation, host, slot, world)
            case {"do": "kill", "incarnation": incarnation, "host": host}:
                rank = self.ranks.get(incarnation)
                if rank is not None and rank.end is None:
                    agents.tell(host, **order)
                    self.tell(rank, do="stop", grace=0.0)
            case {"do": "leave", "host": host}:
                agents.tell(host, **order)
            case {"do": "stop_ranks"}:
                self.send_stop(self.job.grace)
            case {"do": "tell", "event": event}:
                self._event(event)
            case {"do": "finish"}:
                self._finished_at = self.clock()
                result = self.state.result
                if self.context.elastic.checkpoint_dir and result is not None and result.exit_code:
                    self._leave_seconds = FILES_SECONDS
            case {"do": "generation", "members": members}:
                for number, (incarnation, *_) in enumerate(members):
                    if (rank := self.ranks.get(incarnation)) is not None:
                        rank.rank = number
                self.listener.report(0, {"kind": "generation", "size": len(members)})
                agents.tell_all(**order)
            case _:
                agents.tell_all(**order)

    def _spawn(self, incarnation: int, host: str, slot: int, number: int) -> None:
        world = self.worlds.worlds.get(number)
        if world is None:  # its mpirun could not be started: the decider hears of it next
            self.take("rank_ended", incarnation=incarnation, words="its world did not start")
            return
        place = world.places[host, slot]
        self.add(ElasticRank(incarnation, slot, world.prepared, world.prepared.plan.ranks[place]))
        self.hosts.agents.tell(host, do="spawn", incarnation=incarnation)

    def _event(self, event: Event) -> None:
        self.events.append(event)
        if (record := self.channels.record) is not None and event.kind == "generation":
            order = [self.ranks[one] for one in self.state.order if one in self.ranks]
            living = {rank for rank in self.ranks.values() if not rank.done}
            record.started([rank.host.host.name for rank in order], event, living)
        elif record is not None:
            record.event(event)
        if event.kind == "generation" and event.generation == 1:
            self.listener.progress("")
        if text := line_of(event):
            self.listener.warning(text)

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self, *descriptors: int | None) -> None:
        """Serve everybody until all is over. ``descriptors``: of signals."""
        self.channels.selector.register(self._wake, selectors.EVENT_READ, os.eventfd_read)
        if (fd := self._offers.fileno()) is not None:
            self.channels.selector.register(fd, selectors.EVENT_READ, lambda fd: None)
        self.take("hosts_seen", hosts=self._offers.usable())
        super().run(*descriptors)

    def longest_wait(self) -> float:
        """Return the seconds to wait at most before looking at the clock again."""
        if self.flow.held:
            return 0.005
        if self._finished_at is not None:
            return 0.01
        if "stacks" in self.alarms:
            return 0.05
        patience, soonest = 0.25 if self.state.generation is not None else 0.05, self._soonest
        if self._messages:
            soonest = self._rests_until if soonest is None else min(soonest, self._rests_until)
        return patience if soonest is None else max(0.0, min(patience, soonest - self.clock() + 0.001))

    def tick(self, now: float) -> None:
        """Do what is due."""
        if now >= self._rests_until:
            self._decide()
        self.hosts.tick(time.monotonic())
        self.worlds.tick(time.monotonic())
        self.flow.tick()
        seen, warnings = self._offers.news(now)
        for text in (self.server.tick(), *warnings):
            if text:
                self.listener.warning(text)
        if seen is not None:
            self.take("hosts_seen", hosts=seen)
        timeout = self.job.timeout
        if timeout is not None and now > timeout and not self._timed_out and self.state.result is None:
            self._timed_out = True
            self.stop_after_stacks(now)
        self.watch_progress(now)
        if self.stacks_are_shown(now):
            text = f"the job was stopped after {timeout:g} s (--timeout)"
            self.take("stop_requested", exit_code=TIMED_OUT, whose="ringleader", reason=text)
        if self._soonest is not None and self._soonest < now:
            self.take("tick")

    def is_over(self) -> bool:
        """Say whether nothing is left to be served."""
        if self._finished_at is None:
            return False
        now = self.clock()
        if now > self._finished_at + self._leave_seconds:
            self.hosts.wake()
            return True
        quiet = not (self.hosts.agents.hosts or self.worlds.worlds) and all(
            rank.done or (rank.end is not None and rank.connection is None) for rank in self.ranks.values()
        )
        result = self.state.result
        cause = Cause(why=Why.RANK, at=now) if result is not None and result.exit_code else None
        return quiet and self.flow.is_over(now, cause)

    def close(self) -> None:
        """End whatever is left."""
        self.hosts.close()
        self.server.flush_all(FLUSH_SECONDS)
        self.worlds.close()
        self._offers.close()

    # --- connections --------------------------------------------------------------------------------------

    def frame(self, connection: AgentConnection, kind: int, payload: bytes) -> None:
        """Take one frame of a host agent or of a rank's agent."""
        if (host := self.hosts.agents.host(connection)) is None:
            super().frame(connection, kind, payload)
        elif (words := self.hosts.agents.frame(connection, kind, payload)) is not None:
            self._host_says(host, words)

    def lost(self, connection: AgentConnection) -> None:
        """A connection has ended: a host agent's, or a rank's agent's."""
        agents = self.hosts.agents
        if agents.host(connection) is None:
            super().lost(connection)
        elif (lost := agents.lost(connection)) is not None:
            if self.state.result is not None:
                self._lose_ranks(lost[0])
            self.hosts.lost(*lost)

    def hello(self, connection: AgentConnection, words: dict[str, Any]) -> None:
        """A host agent or a rank's agent has connected. Raises ProtocolError where nobody waits for it."""
        if words.get("do") in ("host_hello", "host_failed"):
            self.hosts.prepare(self.hosts.agents.hello(connection, words))
            return
        number = words.get("rank")
        rank = self.ranks.get(number) if type(number) is int else None
        if words.get("do") != "hello" or rank is None or rank.hello is not None:
            raise protocol.ProtocolError("an unplanned rank")
        connection.rank = number
        rank.connection, rank.hello = connection, dict(words)
        if self._stopping:
            self.tell(rank, do="stop", grace=0.0)
        else:
            self._ready[rank.incarnation] = rank
            self._start_ranks()

    def _host_says(self, host: str, words: dict[str, Any]) -> None:
        """Take what a host's agent says."""
        what = words["do"]
        if what == "committed" and self.channels.record is not None:
            self.channels.record.committed(int(words["number"]))
        if what in NEWS:
            self.take(**words | {"host": host})
        if what == "not_spawned":
            self._never_ended(words["incarnation"], words["why"])
        elif what == "rank_agent_ended":
            rank = self.ranks.get(words["incarnation"])
            if rank is not None and rank.connection is None:
                self._never_ended(words["incarnation"], "its agent ended without a word")
        else:
            self.hosts.heard(host, words)

    # --- ranks --------------------------------------------------------------------------------------------

    def add(self, rank: ElasticRank) -> None:
        """A rank agent is being started."""
        self.ranks[rank.incarnation] = rank
        if self._lowest is not None and rank.place.rank < self._lowest.place.rank:
            self._lowest = rank
        if self.files is not None:
            self.files.add(rank.place.rank)

    def _start_ranks(self) -> None:
        """Start the ranks whose agents are there, once the first living one has said which ports are free."""
        if self._stopping or not self._ready:
            return
        first = self._lowest
        if first is None or first.end is not None or first.done:
            living = (rank for rank in self.ranks.values() if rank.end is None and not rank.done)
            first = self._lowest = min(living, key=lambda rank: rank.place.rank, default=None)
        if first is not None and first.hello is not None and (self._ports is None or not first.begun):
            free = first.hello
            self._ports = FreePorts(master=int(free["free_port"]), jax=int(free["jax_port"]))
        if self._ports is not None:
            ready, self._ready = self._ready, {}
            for rank in ready.values():
                if rank.end is None and not rank.done:
                    self._start(rank, self._ports)

    def _start(self, rank: ElasticRank, ports: FreePorts) -> None:
        rank.begun = True
        reads = self.reads and rank.incarnation == 0
        elastic = self.context.elastic
        message = rank.prepared.start_message(
            rank.place.rank, ports, reads=reads, open_files=self.channels.open_files
        )
        env = message["env"] | {
            INCARNATION: str(rank.incarnation),
            SLOT: str(rank.slot),
            "RINGLEADER_ELASTIC_TIMEOUT": f"{max(elastic.timeout, self.job.start_timeout):g}",
        }
        if elastic.hang_seconds is not None:
            env.setdefault("RINGLEADER_DEADLINE", f"{elastic.hang_seconds:g}")
        self.start_rank(rank, message | {"env": env, "stdin": reads, "warm": True})

    def line(self, state: ElasticRank, stream: str, line: bytes) -> None:
        """Pass on a line of a rank; the last one of its standard error says why it failed."""
        if stream == "stderr" and line.strip():
            state.last_words = line.strip()[:_LONGEST_WORDS]
        super().line(state, stream, line)

    def rank_failing(self, state: ElasticRank) -> None:
        """A rank fails: it is replaced from now on."""
        self._tell_end(state, state.failing_code, None)
        self.tell(state, do="stop", grace=self.job.grace)

    def rank_ended(self, state: ElasticRank) -> None:
        """A rank has ended."""
        assert state.end is not None
        self._tell_end(state, state.end.exit_code, state.end.signal, state.end.reason)

    def _tell_end(self, state: ElasticRank, code: int | None, number: int | None, why: str = "") -> None:
        words = (why or state.last_words.decode(errors="replace")) if code else ""
        if self.host_faults is not None and (code or number):
            words = "; ".join(filter(None, (words, self.host_faults.latest(state.host.host.name))))
        self.take("rank_ended", incarnation=state.incarnation, exit_code=code, signal=number, words=words)

    def on_done(self, state: ElasticRank, words: dict[str, Any]) -> None:
        """All output of a rank is here: its agent may go."""
        super().on_done(state, words)
        self.tell(state, do="bye")

    def rank_lost(self, state: ElasticRank, silent: bool) -> None:
        """A rank's agent is gone without its last word."""
        self._never_ended(state.incarnation, "its agent is gone without a word")

    def _never_ended(self, incarnation: int, why: str) -> None:
        """A rank is gone whose end nobody told."""
        rank = self.ranks.get(incarnation)
        if rank is None or rank.end is not None:
            return
        rank.end = self.unknown_end(rank, why, stopped="ringleader" if self._stopping else "")
        rank.done = True
        self.take("rank_ended", incarnation=incarnation, words=why)
        self._start_ranks()  # others may have waited for it

    def _lose_ranks(self, host: str) -> None:
        """Nothing comes from a host any more."""
        for rank in self.ranks.values():
            if rank.host.host.name == host and not rank.done:
                if rank.connection is not None:
                    connection, rank.connection = rank.connection, None
                    self.server.drop(connection)
                self._never_ended(rank.incarnation, "its host is lost")

    # --- the end ------------------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """True once the job has a result."""
        return self.state.result is not None

    def stop_for(self, cause: Cause) -> None:
        """Have the job end, as by a signal."""
        reason = f"stopped by {signal.Signals(cause.number).name}"
        self.take("stop_requested", exit_code=128 + cause.number, whose="ringleader", reason=reason)

    def send_stop(self, grace: float) -> None:
        """Have every rank end, SIGKILL after ``grace`` seconds."""
        self._stopping, self._leave_seconds = True, LEAVE_SECONDS
        for rank in self.ranks.values():
            if not rank.done:
                self.tell(rank, do="stop", grace=grace)

    def signal(self, number: int) -> None:
        """Serve a signal to the launcher; SIGHUP has the hosts probed, unless the terminal has closed."""
        hung_up = number == signal.SIGHUP and signals.terminal_closed(self._terminal)
        if number == signal.SIGHUP and not hung_up and self._offers.refresh():
            self.listener.warning(f"SIGHUP: {self._offers.source} is probed for hosts now")
        else:
            super().signal(number)


def _number(message: Message) -> int:
    return _TOGETHER.get(message["do"], 0)


def alike_in_order(messages: Iterable[Message]) -> list[list[Message]]:
    """Return what is decided together, in order.

    Messages about one rank, one world or the commits of one host keep their order.
    """
    latest: dict[tuple[str, Any], tuple[int, int]] = {}
    found: dict[tuple[int, int], list[Message]] = {}
    for message in messages:
        names = ["incarnation", "world", *(["host"] if message["do"] in _COMMITS else [])]
        about = [(name, message[name]) for name in names if name in message]
        number = _number(message)
        turn, last = max((latest.get(one, (0, 0)) for one in about), default=(0, 0))
        place = turn + (number < last), number
        latest.update(dict.fromkeys(about, place))
        found.setdefault(place, []).append(message)
    return [found[place] for place in sorted(found)]


def limits_of(context: ElasticContext) -> Limits:
    """Return what the decider is allowed."""
    job, elastic = context.job, context.elastic
    changing = elastic.discovery_script or elastic.hostfile or elastic.slurm_job
    options = vars(elastic) | {"max_np": elastic.max_np or MOST_RANKS}
    return Limits(
        **options,
        start_np=job.np,
        fixed_hosts=not changing,
        start_timeout=job.start_timeout,
        stop_seconds=job.grace + LOST_SECONDS,
    )

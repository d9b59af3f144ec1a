"""The launcher's loop of an elastic job: facts to the decider, its orders to hosts, worlds and ranks."""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from ringleader.launch import signals
from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic import orders as o
from ringleader.launch.elastic.elastic_hosts import ElasticHosts
from ringleader.launch.elastic.events_text import line_of
from ringleader.launch.elastic.host_offers import HostOffers
from ringleader.launch.elastic.host_sources import MOST_RANKS
from ringleader.launch.elastic.job_context import ElasticContext
from ringleader.launch.elastic.layout import slots_of
from ringleader.launch.elastic.membership import deadlines_of, decide
from ringleader.launch.elastic.membership_state import Limits, State
from ringleader.launch.elastic.rank_connections import RankConnections
from ringleader.launch.elastic.worlds import Worlds
from ringleader.launch.elastic_history import Event
from ringleader.launch.exit_reason import TIMED_OUT, Cause, Why
from ringleader.launch.mpirun.mpirun_process import MpirunProcess
from ringleader.launch.rank_output.output_files import OutputFiles
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.launch.supervision.running_job import LOST_SECONDS
from ringleader.launch.supervision.stdin_forwarding import StdinForwarding
from ringleader.ranks import protocol

STACK_SECONDS = 3.0
"""After a time-out: for the ranks to print their stacks."""
LEAVE_SECONDS = 10.0
"""After the end: for host agents to have ended, and the ranks' last output to be read."""


class ElasticJob:
    """One elastic job, from the first look at its hosts to the end of everything."""

    def __init__(
        self,
        context: ElasticContext,
        selector: selectors.BaseSelector,
        server: AgentServer,
        offers: HostOffers,
        *,
        files: OutputFiles | None,
        stdin: int | None,
        payload: bytes | None = None,
        open_files: int,
    ) -> None:
        """Nothing is started yet. ``stdin``: a descriptor that rank 0 reads at first. ``payload``: the call
        that every rank makes, pickled."""
        self.context, self._selector, self._server, self._offers = context, selector, server, offers
        self.began = time.monotonic()
        self.state = State(limits=limits_of(context))
        self.events: list[Event] = []
        self._facts: deque[f.Fact] = deque()
        self._deciding = False
        self._timed_out = False
        self._stop_at: float | None = None
        self._finished_at: float | None = None
        self._turned = self.began
        self._terminal = signals.has_terminal()
        self._wake, self._wake_there = os.pipe()
        for fd in (self._wake, self._wake_there):
            os.set_blocking(fd, False)
        self._stdin = StdinForwarding(selector, server, stdin)
        self.ranks = RankConnections(
            context,
            server,
            self._stdin,
            self.tell,
            files=files,
            reads=stdin is not None,
            payload=payload or b"",
            open_files=open_files,
            clock=self.clock,
        )
        self.hosts = ElasticHosts(context, server, self.tell, wake=self._wake_there)
        self.hosts.lacks_state = self._lacks_state
        self.worlds = Worlds(context, selector, self.tell)

    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def _lacks_state(self) -> bool:
        """Say whether neither a rank nor a host has anything of the training."""
        trains = any(rank in self.state.ranks for rank in self.state.order)
        return not trains and not any(host.commits for host in self.state.hosts.values())

    # --- facts and orders ---------------------------------------------------------------------------------

    def tell(self, fact: f.Fact) -> None:
        """Have a fact decided, and what follows done; one that comes up meanwhile is next.

        What every rank, proxy or host reports is decided when all that have reported by now are heard.
        """
        self._facts.append(fact)
        if type(fact) not in _TOGETHER:
            self._decide()

    def _decide(self) -> None:
        """Have all facts decided: those that many report alike together, any other by itself."""
        if self._deciding:
            return
        self._deciding = True
        try:
            while self._facts:
                some = [self._facts.popleft()]
                alike = _TOGETHER.get(type(some[0]))
                while alike and self._facts and _TOGETHER.get(type(self._facts[0])) == alike:
                    some.append(self._facts.popleft())
                for order in decide(self.state, some, self.clock()):
                    self._obey(order)
        finally:
            self._deciding = False

    def _obey(self, order: o.Order) -> None:  # noqa: C901 - one branch for each order
        """Carry out an order."""
        agents, ranks = self.hosts.agents, self.ranks
        match order:
            case o.StartHost():
                self.hosts.start(order.host, order.slots)
            case o.EndHost():
                self.hosts.end(order.host)
            case o.ExcludeHost():
                ranks.lose_host(order.host)
                self._offers.exclude(order.host)
            case o.StartWorld():
                self.worlds.start(order, self.hosts.reports, self.hosts.ssh)
            case o.EndWorld():
                agents.tell_all(do="end_world", world=order.world)
                self.worlds.end(order.world, hard=order.hard)
            case o.Spawn():
                self._spawn(order)
            case o.Kill():
                rank = ranks.ranks.get(order.incarnation)
                if rank is not None and rank.end is None:
                    agents.tell(rank.host.host.name, do="kill", incarnation=order.incarnation)
                    ranks.say(rank, do="stop", grace=0.0)
            case o.Leave():
                if (rank := ranks.ranks.get(order.incarnation)) is not None:
                    name = rank.host.host.name
                    agents.tell(name, do="leave", incarnation=order.incarnation, why=order.why)
            case o.BeginGeneration():
                for number, member in enumerate(order.members):
                    if (rank := ranks.ranks.get(member.incarnation)) is not None:
                        rank.number = number
                agents.tell_all(**o.wire(order))
            case o.EndGeneration() | o.Notify() | o.TellPreparing():
                agents.tell_all(**o.wire(order))
            case o.StopRanks():
                ranks.stop(self.context.job.grace)
            case o.Tell():
                self._event(order.event)
            case o.Finish():
                self._finished_at = self.clock()

    def _spawn(self, order: o.Spawn) -> None:
        world = self.worlds.worlds.get(order.world)
        if world is None:  # its mpirun could not be started: the decider hears of it next
            self.tell(f.RankEnded(incarnation=order.incarnation, words="its world did not start"))
            return
        layout = self.state.worlds[order.world].layout
        rank = slots_of(layout).index((order.host, order.slot))
        prepared = world.prepared.ranks
        self.ranks.add(order, prepared, prepared.plan.ranks[rank])
        self.hosts.agents.tell(order.host, do="spawn", incarnation=order.incarnation)

    def _event(self, event: Event) -> None:
        self.events.append(event)
        if event.kind == "generation" and event.generation == 1:
            self.context.listener.progress("")
        if text := line_of(event):
            self.context.listener.warning(text)

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self, *descriptors: int | None) -> None:
        """Serve everybody until all is over. ``descriptors``: of signals."""
        for fd in descriptors:
            if fd is not None:
                self._selector.register(fd, selectors.EVENT_READ, self._signals)
        self._selector.register(self._wake, selectors.EVENT_READ, self._woken)
        if (fd := self._offers.fileno()) is not None:
            self._selector.register(fd, selectors.EVENT_READ, lambda fd: None)
        self.tell(self._offers.first())
        while not self._over():
            for key, mask in self._selector.select(self._longest_wait()):
                self._serve(key, mask)
            self._decide()
            self._tick(self.clock())
            self._decide()
            self._turned = time.monotonic()

    def _serve(self, key: selectors.SelectorKey, mask: int) -> None:
        who: Any = key.data
        if isinstance(who, AgentConnection):
            self._serve_agent(who, mask)
        elif isinstance(who, MpirunProcess):
            who.serve(key.fd)
        elif isinstance(who, AgentServer):
            who.accept()
        elif isinstance(who, StdinForwarding):
            who.serve()
        else:
            serve: Callable[[int], None] = who
            serve(key.fd)

    def _serve_agent(self, connection: AgentConnection, mask: int) -> None:
        agents = self.hosts.agents
        try:
            for kind, payload in self._server.serve(connection, mask):
                if (host := agents.host(connection)) is not None:
                    if (words := agents.frame(connection, kind, payload)) is not None:
                        self._host_says(host, words)
                elif connection.rank is not None:
                    self.ranks.frame(connection, kind, payload)
                elif kind == protocol.MESSAGE:
                    self._hello(connection, protocol.read_message(payload))
        except protocol.ProtocolError:
            self._server.drop(connection)
        if self._server.lost(connection):
            if agents.host(connection) is None:
                self.ranks.lost(connection)
            elif (lost := agents.lost(connection)) is not None:
                if self.state.result is not None:
                    self.ranks.lose_host(lost[0])
                self.hosts.lost(*lost)

    def _hello(self, connection: AgentConnection, words: dict[str, Any]) -> None:
        if words.get("do") in ("host_hello", "host_failed"):
            self.hosts.prepare(self.hosts.agents.hello(connection, words))
        elif words.get("do") == "hello":
            self.ranks.hello(connection, words)
        else:
            raise protocol.ProtocolError("no hello")

    def _host_says(self, host: str, words: dict[str, Any]) -> None:
        """Take what a host's agent says."""
        what = words["do"]
        if what == "not_spawned":
            self.ranks.never_ended(words["incarnation"], words["why"])
        elif what == "rank_agent_ended":
            rank = self.ranks.ranks.get(words["incarnation"])
            if rank is not None and rank.connection is None:
                self.ranks.never_ended(rank.incarnation, "its agent ended without a word")
        else:
            self.hosts.heard(host, words)
        if (act := f.FACTS.get(what)) is not None:
            self.tell(act(host, words))

    def _woken(self, fd: int) -> None:
        os.read(fd, 4096)

    def _longest_wait(self) -> float:
        if self.ranks.flow.held:
            return 0.005
        if self._finished_at is not None:
            return 0.01
        soonest = min(deadlines_of(self.state), default=None)
        patience = 0.25 if soonest is None else max(0.0, min(0.25, soonest - self.clock() + 0.001))
        return min(patience, 0.05) if self.state.generation is None else patience

    def _tick(self, now: float) -> None:
        self.hosts.tick(time.monotonic())
        self.worlds.tick(time.monotonic())
        self.ranks.flow.tick()
        if text := self._server.tick():
            self.context.listener.warning(text)
        seen, warnings = self._offers.news(now)
        for text in warnings:
            self.context.listener.warning(text)
        if seen is not None:
            self.tell(seen)
        timeout = self.context.job.timeout
        if timeout is not None and now > timeout and not self._timed_out and self.state.result is None:
            self._timed_out, self._stop_at = True, now + STACK_SECONDS
            self._show_stacks()
        if self._stop_at is not None and now > self._stop_at:
            self._stop_at = None
            text = f"the job was stopped after {timeout:g} s (--timeout)"
            self.tell(f.StopRequested(exit_code=TIMED_OUT, whose="ringleader", reason=text))
        if any(when < now for when in deadlines_of(self.state)):
            self.tell(f.Tick())

    def _over(self) -> bool:
        if self._finished_at is None:
            return False
        now = self.clock()
        if now > self._finished_at + LEAVE_SECONDS:
            self.hosts.wake()
            return True
        quiet = not self.hosts.agents.hosts and self.ranks.are_over and not self.worlds.worlds
        result = self.state.result
        cause = Cause(why=Why.RANK, at=now) if result is not None and result.exit_code else None
        return quiet and self.ranks.flow.is_over(now, cause)

    # --- signals ------------------------------------------------------------------------------------------

    def _signals(self, fd: int) -> None:
        for number in os.read(fd, 64):
            self._signal(number)

    def _signal(self, number: int) -> None:
        if number == signal.SIGQUIT:
            self._show_stacks()
        elif number in signals.FORWARDED:
            told = self.ranks.running()
            for rank in told:
                self.ranks.say(rank, do="signal", number=number)
            if not told:
                name = signal.Signals(number).name
                self.context.listener.warning(f"{name} came while no rank ran: nobody was told")
        elif number == signal.SIGTSTP:
            self._suspend()
        elif number == signal.SIGCONT:
            self._continued()
        elif (
            number == signal.SIGHUP and not signals.terminal_closed(self._terminal) and self._offers.refresh()
        ):
            self.context.listener.warning(f"SIGHUP: {self._offers.source} is probed for hosts now")
        elif self.state.result is None:
            reason = f"stopped by {signal.Signals(number).name}"
            self.tell(f.StopRequested(exit_code=128 + number, whose="ringleader", reason=reason))
        elif number in (signal.SIGINT, signal.SIGTERM):
            self.ranks.flow.hurry()
            self.ranks.stop(0.0)

    def _show_stacks(self) -> None:
        for rank in self.ranks.running():
            self.ranks.say(rank, do="stacks")

    def _suspend(self) -> None:
        """Stop all ranks on all hosts, then ourselves; when we are continued, they are too."""
        if self.state.result is None:
            for rank in self.ranks.running():
                self.ranks.say(rank, do="pause")
            self._server.flush_all(1.0)
        signals.suspend_ourselves()
        self._continued()
        for rank in self.ranks.running():
            self.ranks.say(rank, do="continue")

    def _continued(self) -> None:
        """After a time in which we did not run: it counts for no deadline."""
        now = time.monotonic()
        self.began += now - self._turned
        self._turned = now
        self._stdin.continued()

    def close(self) -> None:
        """End whatever is left."""
        self.hosts.close()
        self._server.flush_all(1.0)
        self.worlds.close()
        self._offers.close()


def limits_of(context: ElasticContext) -> Limits:
    """Return what the decider is allowed."""
    job, elastic = context.job, context.elastic
    changing = elastic.discovery_script or elastic.hostfile or elastic.slurm_job
    return Limits(
        min_np=elastic.min_np,
        max_np=elastic.max_np or MOST_RANKS,
        start_np=job.np,
        min_hosts=elastic.min_hosts,
        max_hosts=elastic.max_hosts,
        fixed_hosts=not changing,
        hosts_return=elastic.cooldown is not None,
        rank_restarts=elastic.rank_restarts,
        exclude_hosts=elastic.exclude_hosts,
        reset_limit=elastic.reset_limit,
        timeout=elastic.timeout,
        hang_seconds=elastic.hang_seconds,
        start_timeout=job.start_timeout,
        stop_seconds=job.grace + LOST_SECONDS,
    )


_TOGETHER = {f.HostReady: 1, f.RankWaiting: 1, f.ProxyReady: 1, f.Committed: 1, f.RankAttached: 2}
"""Kinds of facts that come from many at once, and which of them are decided together."""

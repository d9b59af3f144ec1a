"""The rank agents of an elastic job: one connection for each incarnation, what it says, what it is told."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ringleader.launch.elastic import facts as f
from ringleader.launch.elastic.job_context import ElasticContext
from ringleader.launch.elastic.orders import Spawn
from ringleader.launch.outcome import RankEnd
from ringleader.launch.prepare import Prepared
from ringleader.launch.rank_output.lines import STREAMS
from ringleader.launch.rank_output.output_files import OutputFiles
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.launch.supervision.output_flow import OutputFlow
from ringleader.launch.supervision.rank_state import RankState
from ringleader.launch.supervision.stdin_forwarding import StdinForwarding
from ringleader.rank_placement import RankPlace
from ringleader.ranks import protocol
from ringleader.ranks.host_agent_client import INCARNATION, SLOT
from ringleader.render.rank_environment import FreePorts

_STREAM_OF = {protocol.STDOUT: "stdout", protocol.STDERR: "stderr"}
_LONGEST_WORDS = 200


class ElasticRank(RankState):
    """One incarnation, from the order to start it to its last word."""

    def __init__(self, order: Spawn, prepared: Prepared, place: RankPlace) -> None:
        """``place``: where it would be in the world for which it is started."""
        super().__init__(place=place, host=prepared.plan.hosts[place.host_index])
        self.incarnation, self.slot = order.incarnation, order.slot
        self.number = place.rank
        """Its rank in the newest generation, until then the one that it will probably have."""
        self.prepared = prepared
        self.last_words = b""
        """The last line that it wrote to its standard error."""
        self.begun = False
        self.seconds = 0.0


class RankConnections:
    """All incarnations that there were."""

    def __init__(
        self,
        context: ElasticContext,
        server: AgentServer,
        stdin: StdinForwarding,
        tell: Callable[[f.Fact], None],
        *,
        files: OutputFiles | None,
        reads: bool,
        payload: bytes,
        open_files: int,
        clock: Callable[[], float],
    ) -> None:
        """``tell`` takes facts. ``reads``: there is a standard input. ``payload``: the call that each rank
        makes, pickled; empty for a command. ``clock``: seconds since the start."""
        self._context, self._server, self._stdin, self._tell = context, server, stdin, tell
        self._files, self._reads, self._open_files, self._clock = files, reads, open_files, clock
        self._payload = payload
        self.ranks: dict[int, ElasticRank] = {}
        self._ports: FreePorts | None = None
        self.stopping: float | None = None
        """The grace that ranks were given to end."""
        self.flow = OutputFlow(context.listener, files, 1, self.say)

    # --- starting -----------------------------------------------------------------------------------------

    def add(self, order: Spawn, prepared: Prepared, place: RankPlace) -> None:
        """A rank agent is being started."""
        self.ranks[order.incarnation] = ElasticRank(order, prepared, place)
        if self._files is not None:
            self._files.add(place.rank)

    def hello(self, connection: AgentConnection, words: Mapping[str, Any]) -> None:
        """A rank's agent has connected. Raises ProtocolError where nobody waits for it."""
        rank = self.ranks.get(words["rank"]) if type(words.get("rank")) is int else None
        if rank is None or rank.hello is not None:
            raise protocol.ProtocolError("an unplanned rank")
        connection.rank = rank.incarnation
        rank.connection, rank.hello = connection, dict(words)
        if self.stopping is not None:
            self.say(rank, do="stop", grace=0.0)
            return
        self._start_ranks()

    def _start_ranks(self) -> None:
        """Start the ranks whose agents are there, once the first living one has said which ports are free."""
        if self.stopping is not None:
            return
        living = [rank for rank in self.ranks.values() if rank.end is None and not rank.done]
        first = min(living, key=lambda rank: rank.place.rank, default=None)
        if first is not None and first.hello is not None and (self._ports is None or not first.begun):
            free = first.hello
            self._ports = FreePorts(master=int(free["free_port"]), jax=int(free["jax_port"]))
        if self._ports is not None:
            for rank in living:
                if rank.hello is not None and not rank.begun:
                    self._start(rank, self._ports)

    def _start(self, rank: ElasticRank, ports: FreePorts) -> None:
        rank.begun = True
        reads = self._reads and rank.incarnation == 0
        elastic = self._context.elastic
        message = rank.prepared.start_message(
            rank.place.rank, ports, reads=reads, open_files=self._open_files
        )
        env = message["env"] | {
            INCARNATION: str(rank.incarnation),
            SLOT: str(rank.slot),
            "RINGLEADER_ELASTIC_TIMEOUT": f"{max(elastic.timeout, self._context.job.start_timeout):g}",
        }
        if elastic.hang_seconds is not None:
            env.setdefault("RINGLEADER_DEADLINE", f"{elastic.hang_seconds:g}")
        if rank.connection is not None:
            for start in range(0, len(self._payload), protocol.PIECE):
                piece = self._payload[start : start + protocol.PIECE]
                self._server.send(rank.connection, protocol.frame(protocol.BLOB, piece))
        self.say(rank, do="start", **message | {"env": env, "stdin": reads, "warm": True})

    # --- what agents say ----------------------------------------------------------------------------------

    def frame(self, connection: AgentConnection, kind: int, payload: bytes) -> None:
        """Take one frame of a rank's agent."""
        assert connection.rank is not None
        rank = self.ranks[connection.rank]
        if kind == protocol.MESSAGE:
            words = protocol.read_message(payload)
            act = MESSAGES.get(str(words.get("do")))
            if act is not None:
                act(self, rank, words)
        elif kind in _STREAM_OF:
            self._output(rank, _STREAM_OF[kind], payload)
        elif kind == protocol.BLOB:
            rank.result += payload

    def _output(self, rank: ElasticRank, stream: str, data: bytes) -> None:
        if self._files is not None:
            self._files.write(rank.place.rank, stream, data)
        self._show(rank, stream, rank.cutters[stream].feed(data))
        self.flow.took(rank, len(data))

    def _show(self, rank: ElasticRank, stream: str, lines: Iterable[bytes]) -> None:
        listener = self._context.listener
        for line in lines:
            if stream == "stderr" and line.strip():
                rank.last_words = line.strip()[:_LONGEST_WORDS]
            if not self._context.job.quiet:
                listener.output(rank.number, stream, line)
        try:
            listener.flush()
        except BrokenPipeError:
            code = 128 + signal.SIGPIPE
            self._tell(f.StopRequested(exit_code=code, whose="ringleader", reason="stopped by SIGPIPE"))

    def _failing(self, rank: ElasticRank, words: dict[str, Any]) -> None:
        """An exception has left a rank's script: peers wait for it while its exit handlers run."""
        rank.failed_at, rank.failing_code = self._clock(), words["exit_code"]
        self._ended_with(rank, words["exit_code"], None)
        self.say(rank, do="stop", grace=self._context.job.grace)

    def _ended(self, rank: ElasticRank, words: dict[str, Any]) -> None:
        rank.end = RankEnd(
            rank=rank.number,
            host=rank.host.host.name,
            exit_code=words["exit_code"],
            signal=words["signal"],
            seconds=words["seconds"],
            at=self._clock(),
            stopped=words["stopped"],
            reason=words["reason"],
            log=self._files.path(rank.place.rank, "stderr") if self._files is not None else "",
        )
        if rank.incarnation == 0:
            self._stdin.close()
        self._ended_with(rank, words["exit_code"], words["signal"], words["reason"])

    def _ended_with(self, rank: ElasticRank, code: int | None, number: int | None, why: str = "") -> None:
        said = why or rank.last_words.decode(errors="replace")
        self._tell(
            f.RankEnded(
                incarnation=rank.incarnation, exit_code=code, signal=number, words=said if code else ""
            )
        )

    def _done(self, rank: ElasticRank) -> None:
        rank.done = True
        for stream in STREAMS:
            if rest := rank.cutters[stream].rest():
                self._show(rank, stream, (rest,))
        self.say(rank, do="bye")

    def _report(self, rank: ElasticRank, words: dict[str, Any]) -> None:
        report = words["report"]
        if report.get("kind") == "traffic":
            rank.traffic = [*rank.traffic, report][-10:]
            return
        rank.differences += [report] if report.get("kind") == "consistency" else []
        self._context.listener.report(rank.number, report)

    def lost(self, connection: AgentConnection) -> None:
        """A connection has ended: fine after the agent's last word."""
        rank = self.ranks.get(connection.rank) if connection.rank is not None else None
        if rank is None or rank.connection is not connection:
            return
        rank.connection = None
        if not rank.done:
            self._done(rank)
        if rank.end is None:
            self.never_ended(rank.incarnation, "its agent is gone without a word")

    def never_ended(self, incarnation: int, why: str) -> None:
        """A rank is gone whose end nobody told."""
        rank = self.ranks.get(incarnation)
        if rank is None or rank.end is not None:
            return
        rank.end = RankEnd(
            rank=rank.number,
            host=rank.host.host.name,
            exit_code=None,
            signal=None,
            seconds=0.0,
            at=self._clock(),
            stopped="ringleader" if self.stopping is not None else "",
            reason=why,
        )
        rank.done = True
        self._tell(f.RankEnded(incarnation=incarnation, words=why))
        self._start_ranks()  # others may have waited for it

    def lose_host(self, name: str) -> None:
        """Nothing comes from a host any more."""
        for rank in self.ranks.values():
            if rank.host.host.name == name and not rank.done:
                if rank.connection is not None:
                    connection, rank.connection = rank.connection, None
                    self._server.drop(connection)
                self.never_ended(rank.incarnation, "its host is lost")

    # --- what they are told -------------------------------------------------------------------------------

    def say(self, rank: RankState, **words: Any) -> None:
        """Send a message to a rank's agent, if it is there."""
        if rank.connection is not None:
            self._server.send(rank.connection, protocol.message(**words))

    def running(self) -> list[ElasticRank]:
        """Return the ranks whose command runs."""
        return [rank for rank in self.ranks.values() if rank.running and rank.end is None]

    def stop(self, grace: float) -> None:
        """Have all ranks end."""
        self.stopping = grace
        for rank in self.ranks.values():
            if not rank.done:
                self.say(rank, do="stop", grace=grace)

    @property
    def are_over(self) -> bool:
        """True when every rank that was started has had its last word."""
        return all(
            rank.done or (rank.end is not None and rank.connection is None) for rank in self.ranks.values()
        )


def _started(own: RankConnections, rank: ElasticRank, words: dict[str, Any]) -> None:
    rank.running = True


MESSAGES: dict[str, Callable[[RankConnections, ElasticRank, dict[str, Any]], None]] = {
    "started": _started,
    "report": RankConnections._report,
    "failing": RankConnections._failing,
    "ended": RankConnections._ended,
    "done": lambda own, rank, words: own._done(rank),
    "more_input": lambda own, rank, words: own._stdin.asked(rank.connection),
}
"""What a rank's agent says → what follows."""

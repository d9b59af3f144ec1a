"""What the agents tell the launcher, and what follows from it."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ringleader.errors import Fault
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.lost_components import Lost
from ringleader.launch.mpirun.mpirun_output import abort_code
from ringleader.launch.outcome import RankEnd
from ringleader.launch.rank_output.lines import STREAMS
from ringleader.launch.supervision.agent_connections import AgentConnection
from ringleader.launch.supervision.loss_detection import LossDetection
from ringleader.launch.supervision.output_flow import OutputFlow
from ringleader.launch.supervision.rank_state import RankState
from ringleader.launch.supervision.running_job import RunningJob
from ringleader.launch.supervision.start_failures import misplaced
from ringleader.launch.supervision.stdin_forwarding import StdinForwarding
from ringleader.ranks import protocol
from ringleader.render.mpirun_command import same_library
from ringleader.render.rank_environment import FreePorts

MOST_LIVES = 1000
"""Reports of traffic that are kept of a rank: one for each life of its engine."""
_STREAM_OF = {protocol.STDOUT: "stdout", protocol.STDERR: "stderr"}


class AgentMessages:
    """Turns frames into changes of the ranks' states and words to the listener."""

    def __init__(
        self, job: RunningJob, losses: LossDetection, stdin: StdinForwarding, flow: OutputFlow
    ) -> None:
        """Everything that the messages change belongs to these."""
        self.job = job
        self._losses = losses
        self._stdin = stdin
        self._flow = flow
        self._reported = 0

    def frame(self, connection: AgentConnection, kind: int, payload: bytes) -> None:
        """Take one frame of an agent that has proven itself."""
        if connection.rank is None:
            if kind == protocol.MESSAGE:
                self._hello(connection, protocol.read_message(payload))
            return
        state = self.job.ranks[connection.rank]
        if kind == protocol.MESSAGE:
            self._message(state, protocol.read_message(payload))
        elif kind in _STREAM_OF:
            self._output(state, _STREAM_OF[kind], payload)
        elif kind == protocol.BLOB:
            state.result += payload

    # --- starting -----------------------------------------------------------------------------------------

    def _hello(self, connection: AgentConnection, words: dict[str, Any]) -> None:
        job, rank, ranks = self.job, words.get("rank"), self.job.ranks
        if words.get("do") == "agent_killed" and type(rank) is int and 0 <= rank < len(ranks):
            self._losses.lose(Lost.AGENT, ranks[rank], number=int(words["signal"]))
            return
        if words.get("do") != "hello" or type(rank) is not int:
            raise protocol.ProtocolError("no hello")
        if not 0 <= rank < len(ranks) or ranks[rank].hello is not None:
            what = f"{job.context.mpi.mpirun} started a rank {rank} on {words.get('hostname')} "
            what += "that is already there" if 0 <= rank < len(ranks) else f"of {len(ranks)} planned"
            job.refuse(Fault(where="mpirun", what=what))
            raise protocol.ProtocolError("an unplanned rank")
        connection.rank = rank
        ranks[rank].connection, ranks[rank].hello = connection, words
        if job.cause is not None:
            job.tell(ranks[rank], do="stop", grace=0.0)
            return
        self._reported += 1
        if self._reported < len(ranks):
            job.listener.progress(f"{self._reported} of {len(ranks)} ranks have reported")
        else:
            self._start_all()

    def _start_all(self) -> None:
        """Check every agent against the plan, then start the ranks: the last one has reported."""
        job, context = self.job, self.job.context
        found = [misplaced(state, context.mpi, len(job.ranks)) for state in job.ranks]
        if wrong := [fault for fault in found if fault is not None]:
            job.refuse(*wrong)
            return
        first = job.ranks[0].hello
        assert first is not None
        payload = context.payload or b""
        for state in job.ranks:
            for start in range(0, len(payload), protocol.PIECE):
                piece = payload[start : start + protocol.PIECE]
                job.send(state, protocol.frame(protocol.BLOB, piece))
            # An uncoupled rank meets nobody else: JAX's service is its own then.
            hello = state.hello if context.job.uncoupled and state.hello is not None else first
            ports = FreePorts(master=int(first["free_port"]), jax=int(hello["jax_port"]))
            job.tell(state, do="start", **context.start(state.rank, ports))
        job.started_at = job.clock()
        job.listener.progress("")

    # --- while it runs ------------------------------------------------------------------------------------

    def _message(self, state: RankState, words: dict[str, Any]) -> None:
        act = MESSAGES.get(str(words.get("do")))
        if act is not None:
            act(self, state, words)

    def _started(self, state: RankState, words: dict[str, Any]) -> None:
        state.running = True
        if why := words.get("why_cold"):
            who = state.place.rank
            what = f"rank {who} starts by itself, as the warm Python of its host cannot fork it: {why}"
            self.job.listener.warning(what)

    def _failing(self, state: RankState, words: dict[str, Any]) -> None:
        state.failed_at, state.failing_code = self.job.clock(), words["exit_code"]
        self.job.stop(Cause(why=Why.RANK, at=state.failed_at))

    def _output(self, state: RankState, stream: str, data: bytes) -> None:
        if self.job.context.files is not None:
            self.job.context.files.write(state.rank, stream, data)
        self._show(state, stream, state.cutters[stream].feed(data))
        self._flow.took(state, len(data))

    def _show(self, state: RankState, stream: str, lines: Iterable[bytes]) -> None:
        """Pass lines on; where their reader has gone the job ends, as a program does by SIGPIPE."""
        job = self.job
        for line in lines:
            if line.startswith(b"Abort("):
                state.abort_code = abort_code(line.decode(errors="replace"))
            if not job.options.quiet:
                job.listener.output(state.rank, stream, line)
        try:
            job.listener.flush()
        except BrokenPipeError:
            job.stop(Cause(why=Why.SIGNAL, at=job.clock(), number=signal.SIGPIPE))

    def _report(self, state: RankState, words: dict[str, Any]) -> None:
        report = words["report"]
        if report.get("kind") == "traffic":
            state.traffic = [*state.traffic, report][-MOST_LIVES:]
            return
        state.differences += [report] if report.get("kind") == "consistency" else []
        self.job.listener.report(state.rank, report)

    def _evidence(self, state: RankState, words: dict[str, Any]) -> None:
        state.evidence = words

    def _library(self, state: RankState, path: str) -> None:
        """A rank has loaded an MPI library: it must be the one that goes with its mpirun."""
        mpi = self.job.context.mpi
        if not mpi.library:
            return
        planned = str(Path(mpi.library).resolve())
        if not same_library(path, planned) and not same_library(path, mpi.library):
            what = f"it loaded {path}, but {mpi.mpirun} ({mpi.name}) started it, "
            what += f"whose library is {mpi.library}"
            hint = "give the mpirun of the library that the program was built for with --mpi, "
            hint += "or take its own setting of MPI4PY_LIBMPI or LD_LIBRARY_PATH away"
            self.job.refuse(Fault(where=state.name, what=what, hint=hint))

    def _stacks(self, state: RankState, words: dict[str, Any]) -> None:
        state.stacks_requested = False
        for process in words["mute"]:
            where = f" in {process['waits_in']}" if process["waits_in"] else ""
            self.job.listener.warning(
                f"{state.name}: process {process['pid']} ({process['name']}) prints no Python stack; "
                f"its state is {process['state']}{where}"
            )

    # --- ends ---------------------------------------------------------------------------------------------

    def _ended(self, state: RankState, words: dict[str, Any]) -> None:
        job = self.job
        state.end = RankEnd(
            rank=state.rank,
            host=state.host.host.name,
            exit_code=words["exit_code"],
            signal=words["signal"],
            seconds=words["seconds"],
            at=job.clock() if state.failed_at is None else state.failed_at,
            stopped=words["stopped"],
            orphaned=words.get("orphaned", False),
            reason=words["reason"],
            log=job.log_of(state.rank),
        )
        if state.rank == 0:
            self._stdin.close()
        job.notices.add(state)
        if state.end.failed:
            job.stop(Cause(why=Why.RANK, at=state.end.at))
        elif state.end.stopped:
            job.stop(Cause(why=Why.MPI, at=state.end.at, text=f"{state.name}: {state.end.stopped}"))
        elif job.warn_at is None and any(other.end is None for other in job.ranks):
            job.warn_at = job.clock() + job.context.early

    def _done(self, state: RankState) -> None:
        """All output of a rank is here: pass on its last line, which may lack its line feed."""
        state.done = True
        for stream in STREAMS:
            if rest := state.cutters[stream].rest():
                self._show(state, stream, (rest,))

    def lost(self, connection: AgentConnection) -> None:
        """A connection has ended: fine after the agent's last word, else its rank is lost."""
        job = self.job
        if connection.rank is None or job.ranks[connection.rank].connection is not connection:
            return
        state = job.ranks[connection.rank]
        state.connection = None
        if state.done:
            return
        self._done(state)
        if state.end is None:
            reason = "its host is silent" if connection.silent else "its agent is gone without a word"
            # Who ends because the job does is not a failure; otherwise its silence is one.
            ours = job.cause is not None and job.cause.why not in (Why.MPI, Why.LOST)
            state.end = job.unknown_end(state, reason, stopped="ringleader" if ours else "")
            job.notices.add(state)
        self._losses.lose(Lost.SILENT if connection.silent else Lost.VANISHED, state)
        if connection.silent:  # all of that host: what was sent to the others starts their time anew
            self.give_up((other for other in job.ranks if other.host is state.host), silent=True)

    def give_up(self, states: Iterable[RankState], *, silent: bool = False) -> None:
        """Write off agents that have not had their last word; ``silent``: nothing comes from there."""
        for state in states:
            connection = state.connection
            if connection is not None and not state.done:
                connection.silent = connection.silent or silent
                self.job.server.drop(connection)
                self.lost(connection)

    def _lost_there(self, state: RankState, what: str) -> None:
        """An agent says that it is being ended, and what it knows of why."""
        if what == "daemon" and state.hello is not None and not state.hello["daemon"]:
            what = "mpirun"  # its own parent, on this machine: mpirun's supervisor tells
        kind = {"daemon": Lost.DAEMON, "agent": Lost.AGENT}.get(what, Lost.MPI)
        self._losses.lose(kind, state)


MESSAGES: dict[str, Callable[[AgentMessages, RankState, dict[str, Any]], None]] = {
    "started": AgentMessages._started,
    "report": AgentMessages._report,
    "evidence": AgentMessages._evidence,
    "failing": AgentMessages._failing,
    "lost": lambda own, state, words: own._lost_there(state, words["what"]),
    "ended": AgentMessages._ended,
    "done": lambda own, state, words: own._done(state),
    "library": lambda own, state, words: own._library(state, words["path"]),
    "stacks": AgentMessages._stacks,
    "more_input": lambda own, state, words: own._stdin.asked(state.connection),
}
"""What an agent says → what follows."""

"""What the agents tell the launcher, and what follows from it."""

from __future__ import annotations

import signal
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.errors import Fault
from ringleader.launch.exit_code import Cause, Why, abort_code, named
from ringleader.launch.outcome import RankEnd
from ringleader.launch.rank_output.lines import STREAMS
from ringleader.launch.root_cause import Lost
from ringleader.launch.supervision.agent_connections import Peer
from ringleader.launch.supervision.rank_state import RankState
from ringleader.ranks import protocol
from ringleader.render.mpirun_command import same_library

if TYPE_CHECKING:
    from ringleader.launch.supervision.supervisor import Supervisor

_STREAM_OF = {protocol.STDOUT: "stdout", protocol.STDERR: "stderr"}


class Events:
    """Turns frames into changes of the ranks' states and words to the listener."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Everything the events change belongs to ``supervisor``."""
        self.run = supervisor
        self._reported = 0

    def frame(self, peer: Peer, kind: int, payload: bytes) -> None:
        """Take one frame of an agent that has proven itself."""
        if kind == protocol.MESSAGE:
            words = protocol.read_message(payload)
            if peer.rank is None:
                self._hello(peer, words)
            else:
                self._message(self.run.ranks[peer.rank], words)
        elif peer.rank is not None and kind in _STREAM_OF:
            self._output(self.run.ranks[peer.rank], _STREAM_OF[kind], payload)
        elif peer.rank is not None and kind == protocol.BLOB:
            self.run.ranks[peer.rank].result += payload

    def _hello(self, peer: Peer, words: dict[str, Any]) -> None:
        rank, ranks = words.get("rank"), self.run.ranks
        if words.get("do") == "agent_killed" and type(rank) is int and 0 <= rank < len(ranks):
            self.run.lose(Lost.AGENT, ranks[rank], number=int(words["signal"]))
            return
        if words.get("do") != "hello" or type(rank) is not int:
            raise protocol.ProtocolError("no hello")
        if not 0 <= rank < len(ranks) or ranks[rank].hello is not None:
            what = f"{self.run.setting.mpi.mpirun} started a rank {rank} on {words.get('hostname')} "
            what += "that is already there" if 0 <= rank < len(ranks) else f"of {len(ranks)} planned"
            self.run.refuse(Fault(where="mpirun", what=what))
            raise protocol.ProtocolError("an unplanned rank")
        peer.rank = rank
        ranks[rank].peer, ranks[rank].hello = peer, words
        if self.run.cause is not None:
            self.run.tell(ranks[rank], do="stop", grace=0.0)
            return
        self._reported += 1
        if self._reported < len(ranks):
            self.run.listener.progress(f"{self._reported} of {len(ranks)} ranks have reported")
        else:
            self.run.all_reported()

    def _message(self, state: RankState, words: dict[str, Any]) -> None:
        what = words.get("do")
        if what == "started":
            state.running = True
        elif what == "report":
            self.run.listener.report(state.rank, words["report"])
        elif what == "failing":
            state.failed_at, state.failing_code = self.run.clock(), words["exit_code"]
            self.run.stop(Cause(why=Why.RANK, at=state.failed_at))
        elif what == "lost":
            self._lost_there(state, words["what"])
        elif what == "ended":
            self._ended(state, words)
        elif what == "done":
            self._done(state)
        elif what == "library":
            self._library(state, words["path"])
        elif what == "stacks":
            self._stacks(state, words)
        elif what == "more_input":
            self.run.feed.asked(state.peer)

    # --- output -------------------------------------------------------------------------------------------

    def _output(self, state: RankState, stream: str, data: bytes) -> None:
        if self.run.setting.files is not None:
            self.run.setting.files.write(state.rank, stream, data)
        self._show(state, stream, state.cutters[stream].feed(data))
        self.run.delivery.took(state, len(data))

    def _show(self, state: RankState, stream: str, lines: Iterable[bytes]) -> None:
        """Pass lines on; where their reader has gone the job ends, as a program does by SIGPIPE."""
        run = self.run
        for line in lines:
            if line.startswith(b"Abort("):
                state.abort_code = abort_code(line.decode(errors="replace"))
            if not run.job.quiet:
                run.listener.output(state.rank, stream, line)
        try:
            run.listener.flush()
        except BrokenPipeError:
            run.stop(Cause(why=Why.SIGNAL, at=run.clock(), number=signal.SIGPIPE))

    def _flush(self, state: RankState) -> None:
        for stream in STREAMS:
            if rest := state.cutters[stream].rest():
                self._show(state, stream, (rest,))

    # --- ends ---------------------------------------------------------------------------------------------

    def _ended(self, state: RankState, words: dict[str, Any]) -> None:
        run = self.run
        state.end = RankEnd(
            rank=state.rank,
            host=state.host.host.name,
            exit_code=words["exit_code"],
            signal=words["signal"],
            seconds=words["seconds"],
            at=run.clock() if state.failed_at is None else state.failed_at,
            stopped=words["stopped"],
            orphaned=words.get("orphaned", False),
            reason=words["reason"],
            log=run.log_of(state.rank),
        )
        if state.rank == 0:
            run.feed.close()
        self.run.notices.add(state)
        if state.end.failed:
            run.stop(Cause(why=Why.RANK, at=state.end.at))
        elif state.end.stopped:
            run.stop(Cause(why=Why.MPI, at=state.end.at, text=f"{state.name}: {state.end.stopped}"))
        elif any(other.end is None for other in run.ranks):
            run.expect_early_end()

    def _done(self, state: RankState) -> None:
        state.done = True
        self._flush(state)

    def lost(self, peer: Peer) -> None:
        """A connection has ended: fine after the agent's last word, else its rank is lost."""
        if peer.rank is None or self.run.ranks[peer.rank].peer is not peer:
            return
        state = self.run.ranks[peer.rank]
        state.peer = None
        if state.done:
            return
        state.done = True
        self._flush(state)
        if state.end is None:
            reason = "its host is silent" if peer.silent else "its agent is gone without a word"
            state.end = self.run.unknown_end(state, reason, stopped=self._who_stopped_it())
            self.run.notices.add(state)
        self.run.lose(Lost.SILENT if peer.silent else Lost.VANISHED, state)

    def _lost_there(self, state: RankState, what: str) -> None:
        """An agent says that it is being ended, and what it knows of why."""
        if what == "daemon" and state.hello is not None and not state.hello["daemon"]:
            what = "mpirun"  # its own parent, on this machine: the keeper tells
        kind = {"daemon": Lost.DAEMON, "agent": Lost.AGENT}.get(what, Lost.MPI)
        self.run.lose(kind, state)

    def _who_stopped_it(self) -> str:
        """Return why a silent rank is no failure; empty where its silence is the failure."""
        cause = self.run.cause
        return "" if cause is None or cause.why in (Why.MPI, Why.LOST) else "ringleader"

    # --- what agents see ----------------------------------------------------------------------------------

    def _library(self, state: RankState, path: str) -> None:
        """A rank has loaded an MPI library: it must be the one that goes with its mpirun."""
        mpi = self.run.setting.mpi
        if not mpi.library:
            return
        planned = str(Path(mpi.library).resolve())
        if not same_library(path, planned) and not same_library(path, mpi.library):
            self.run.refuse(
                Fault(
                    where=state.name,
                    what=f"it loaded {path}, but {mpi.mpirun} ({named(mpi)}) started it, "
                    f"whose library is {mpi.library}",
                    hint="give the mpirun of the library that the program was built for with --mpi, "
                    "or take its own setting of MPI4PY_LIBMPI or LD_LIBRARY_PATH away",
                )
            )

    def _stacks(self, state: RankState, words: dict[str, Any]) -> None:
        state.stacks_asked = False
        for process in words["mute"]:
            where = f" in {process['waits_in']}" if process["waits_in"] else ""
            self.run.listener.warning(
                f"{state.name}: process {process['pid']} ({process['name']}) prints no Python stack; "
                f"its state is {process['state']}{where}"
            )

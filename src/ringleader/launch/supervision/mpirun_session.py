"""The session of a job whose ranks an mpirun starts: one that fails stops all of them.

From mpirun's start until every rank, and mpirun, has ended. Everything that waits has a time by which it is
given up, and whoever was waited for is named. What was lost and how
the job ended is judged by ``launch/exit_reason``.

Longer than others: each deadline is set by one event and lifted by another, and is read beside both.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from ringleader.agents import protocol
from ringleader.errors import Fault, LaunchError
from ringleader.launch.exit_reason import (
    RACE,
    Cause,
    JobHosts,
    Loss,
    Lost,
    RootCause,
    Why,
    abort_code,
    aborts_in,
    daemons_lost_in,
    job_exit,
    relevant_lines,
    root_cause,
)
from ringleader.launch.launch_plan import Prepared
from ringleader.launch.mpirun.mpirun_process import MpirunProcess
from ringleader.launch.outcome import JobExit, RankEnd
from ringleader.launch.supervision.agent_connections import AgentConnection
from ringleader.launch.supervision.ranks import RankState
from ringleader.launch.supervision.session import Channels, Session
from ringleader.plan.job import Mpi
from ringleader.plan.rank_placement import listed, ranks_named
from ringleader.render.hostfile import bare_name
from ringleader.render.mpirun_command import same_library
from ringleader.render.rank_environment import FreePorts

NOTICE_SECONDS = 0.0005
"""For each rank of the job, from one round of notices of ends to the next."""
LOST_SECONDS = 8.0
"""After mpirun's end, or after the grace of ranks that were ordered to stop: for the agents' last words."""
REMIND_SECONDS = 3.0
"""After an order to stop: until the user hears whom it still waits for."""
MPIRUN_SECONDS = 3.0
"""After the last rank's end: for mpirun to end by itself. Open MPI 5 sometimes does not, where the end of a
very short process got lost between its daemons; how the job ended is known without it."""
TOLD_SECONDS = 1.0
"""The same where a signal or a time-out ends the job: what mpirun might say then is of no interest."""
ORPHAN_SECONDS = 1.5
"""After mpirun's end: for the agents to notice and say how their ranks ended."""
EARLY_SECONDS = 10.0
"""After which a rank that ended while others run is worth a warning."""


class Supervisor(Session[RankState]):
    """Serves everybody of one start of a job, and does what is due."""

    def __init__(
        self,
        prepared: Prepared,
        channels: Channels,
        mpirun: MpirunProcess,
        *,
        early: float = EARLY_SECONDS,
        earlier: float = 0.0,
        warnings: Callable[[], Sequence[str]] = tuple,
    ) -> None:
        """mpirun has been started, nobody has reported yet.

        ``early``: see ``launch``. ``earlier``: seconds that the job's ranks had been running, or starting
        again, before this start; for --timeout. ``warnings()``: what the user should know of other threads
        since the last call.
        """
        plan = prepared.plan
        super().__init__(prepared.job, channels)
        self.prepared, self.mpirun = prepared, mpirun
        self._early, self._earlier, self._warnings = early, earlier, warnings
        self.ranks = {
            place.rank: RankState(place=place, host=plan.hosts[place.host_index]) for place in plan.ranks
        }
        self.cause: Cause | None = None
        self.interrupted = False
        """Somebody told the job to end, be it that it was failing already."""
        self.refused: list[Fault] = []
        self.said_bye: float | None = None
        self.losses: list[Loss] = []
        """What ended while the job needed it."""
        self._mpirun_noted = False
        self._ended: list[RankState] = []
        """Ranks of whose end the others have not been notified."""
        self._next_notice = float("-inf")
        self._reported = 0
        self._serving: set[int] = set()
        """Ranks whose agents have reported and not had their last word."""
        self._mpirun_gone: float | None = None

    def run(self, *descriptors: int | None) -> None:
        """Serve everybody until all is over. Raises LaunchError where the MPI did not start the plan."""
        super().run(*descriptors)
        if self.refused:
            raise LaunchError(self.refused)

    # --- starting -----------------------------------------------------------------------------------------

    def hello(self, connection: AgentConnection, words: dict[str, Any]) -> None:
        """An agent has connected; the last one to report has all ranks start."""
        number = words.get("rank")
        state = self.ranks.get(number) if type(number) is int else None
        if words.get("do") == "agent_killed" and state is not None:
            self.lose(Lost.AGENT, state, number=int(words["signal"]))
            return
        if words.get("do") != "hello" or type(number) is not int:
            raise protocol.ProtocolError("no hello")
        if state is None or state.hello is not None:
            what = f"{self.prepared.mpi.mpirun} started a rank {number} on {words.get('hostname')} "
            what += "that is already there" if state is not None else f"of {len(self.ranks)} planned"
            self.refuse(Fault(where="mpirun", what=what))
            raise protocol.ProtocolError("an unplanned rank")
        connection.rank = number
        state.connection, state.hello = connection, words
        self._serving.add(number)
        if self.cause is not None:
            self.tell(state, do="stop", grace=0.0)
            return
        self._reported += 1
        if self._reported < len(self.ranks):
            self.listener.progress(f"{self._reported} of {len(self.ranks)} ranks have reported")
        else:
            self._start_all()

    def _start_all(self) -> None:
        """Check every agent against the plan, then start the ranks: the last one has reported."""
        found = [misplaced(state, self.prepared.mpi, len(self.ranks)) for state in self.ranks.values()]
        if wrong := [fault for fault in found if fault is not None]:
            self.refuse(*wrong)
            return
        first = self.ranks[0].hello
        assert first is not None
        for state in self.ranks.values():
            # An independent rank meets nobody else: JAX's service is its own then.
            hello = state.hello if self.job.uncoupled and state.hello is not None else first
            ports = FreePorts(master=int(first["free_port"]), jax=int(hello["jax_port"]))
            limit = self.channels.open_files
            message = self.prepared.start_message(state.rank, ports, reads=self.reads, open_files=limit)
            self.start_rank(state, message)
        self.started_at = self.clock()
        self.listener.progress("")
        if self.channels.record is not None:
            self.channels.record.started([state.host.host.name for state in self.ranks.values()])

    # --- stopping -----------------------------------------------------------------------------------------

    @property
    def is_stopping(self) -> bool:
        """True once the job has a cause to end."""
        return self.cause is not None

    def stop_for(self, cause: Cause) -> None:
        """Stop all ranks, for the first cause that came up."""
        if self.cause is None:
            self.cause = cause
            if cause.why is Why.RANK and any(state.has_groups for state in self.ranks.values()):
                self.stop_after_stacks(self.clock())  # it may have failed because of another
            else:
                self.send_stop(self.job.grace)

    def refuse(self, *faults: Fault) -> None:
        """Stop everything: what runs is not what was planned."""
        self.refused.extend(faults)
        self.stop_for(Cause(why=Why.REFUSED, at=self.clock()))

    def send_stop(self, grace: float) -> None:
        """Tell every agent to end its rank, SIGKILL after ``grace`` seconds."""
        now = self.clock()
        until = now + grace + LOST_SECONDS
        self.alarms["give up"] = min(until, self.alarms.get("give up", until))
        self.alarms["remind"] = now + REMIND_SECONDS if grace > 2 * REMIND_SECONDS else float("inf")
        for state in self.ranks.values():
            self.tell(state, do="stop", grace=grace)

    def signal(self, number: int) -> None:
        """Serve a signal to the launcher."""
        self.interrupted |= number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        super().signal(number)

    # --- what agents say ----------------------------------------------------------------------------------

    def line(self, state: RankState, stream: str, line: bytes) -> None:
        """Pass on a line of a rank."""
        if line.startswith(b"Abort("):
            state.abort_code = abort_code(line.decode(errors="replace"))
        super().line(state, stream, line)

    def on_library(self, state: RankState, words: dict[str, Any]) -> None:
        """A rank has loaded an MPI library: it must be the one that goes with its mpirun."""
        mpi, path = self.prepared.mpi, words["path"]
        if not mpi.library:
            return
        planned = str(Path(mpi.library).resolve())
        if not same_library(path, planned) and not same_library(path, mpi.library):
            what = f"it loaded {path}, but {mpi.mpirun} ({mpi.name}) started it, "
            what += f"whose library is {mpi.library}"
            hint = "give the mpirun of the library that the program was built for with --mpi, "
            hint += "or take its own setting of MPI4PY_LIBMPI or LD_LIBRARY_PATH away"
            self.refuse(Fault(where=state.name, what=what, hint=hint))

    def on_done(self, state: RankState, words: dict[str, Any]) -> None:
        """All output of a rank is here."""
        super().on_done(state, words)
        self._serving.discard(state.rank)

    def on_lost(self, state: RankState, words: dict[str, Any]) -> None:
        """An agent says that it is being ended, and what it knows of why."""
        what = words["what"]
        if what == "daemon" and state.hello is not None and not state.hello["daemon"]:
            what = "mpirun"  # its own parent, on this machine: mpirun's supervisor tells
        self.lose({"daemon": Lost.DAEMON, "agent": Lost.AGENT}.get(what, Lost.MPI), state)

    def rank_failing(self, state: RankState) -> None:
        """A rank fails: all are stopped."""
        self.stop_for(Cause(why=Why.RANK, at=self.clock() if state.failed_at is None else state.failed_at))

    def rank_ended(self, state: RankState) -> None:
        """A rank has ended: the others hear of it, or are stopped."""
        assert state.end is not None
        self._ended.append(state)
        if state.end.failed:
            self.note("rank_failed", state.name, state.how_it_ended)
            self.stop_for(Cause(why=Why.RANK, at=state.end.at))
        elif state.end.stopped:
            self.stop_for(Cause(why=Why.MPI, at=state.end.at, text=f"{state.name}: {state.end.stopped}"))
        elif "warn" not in self.alarms and any(other.end is None for other in self.ranks.values()):
            self.alarms["warn"] = self.clock() + self._early

    def rank_lost(self, state: RankState, silent: bool) -> None:
        """An agent is gone: its rank is lost, and with a silent host all that are there."""
        if state.end is None:
            reason = "its host is silent" if silent else "its agent is gone without a word"
            # Who ends because the job does is not a failure; otherwise its silence is one.
            ours = self.cause is not None and self.cause.why not in (Why.MPI, Why.LOST)
            state.end = self.unknown_end(state, reason, stopped="ringleader" if ours else "")
            self._ended.append(state)
        self.lose(Lost.SILENT if silent else Lost.VANISHED, state)
        if silent:  # all of that host: what was sent to the others starts their time anew
            others = [other for other in self.ranks.values() if other.host is state.host]
            self._give_up(others, silent=True)

    def _give_up(self, states: Iterable[RankState], *, silent: bool = False) -> None:
        """Write off agents that have not had their last word; ``silent``: nothing comes from there."""
        for state in states:
            connection = state.connection
            if connection is not None and not state.done:
                connection.silent = connection.silent or silent
                self.server.drop(connection)
                self.lost(connection)

    # --- what is due --------------------------------------------------------------------------------------

    @property
    def _agents_are_gone(self) -> bool:
        """True when every agent that ever reported has had its last word."""
        return not self._serving

    def longest_wait(self) -> float:
        """Return the seconds to wait at most before looking at the clock again."""
        if self.flow.held or (self.mpirun.ended and self.flow.waiting):
            return 0.005
        near = self._ended or self.said_bye is not None or self.mpirun.exit_code is not None
        return 0.05 if near or "stacks" in self.alarms or "give up" in self.alarms else 0.25

    def is_over(self) -> bool:
        """True when mpirun has ended, and every agent that ever reported has been heard to its last word."""
        return self.mpirun.ended and self._agents_are_gone and self.flow.is_over(self.clock(), self.cause)

    def tick(self, now: float) -> None:
        """Do what is due."""
        self.mpirun.watch()
        self.flow.tick()
        self._tell_ends(now)
        for text in (self.server.tick(), *self._warnings()):
            if text:
                self.listener.warning(text)
        self._watch_losses(now)
        if self.cause is None:
            if self.started_at is None:
                self._starting(now)
            else:
                self._running(now, self.started_at)
        self.watch_progress(now)
        if self.stacks_are_shown(now):
            self.send_stop(self.job.grace)
        if self.is_due("remind", now):
            self._remind()
        if self.is_due("give up", now):
            self.mpirun.stop(hard=True)
            self._give_up(self.ranks.values())  # they had to have had their last word
        self._leaving(now)

    def _starting(self, now: float) -> None:
        patience = self.job.start_timeout
        if not self.mpirun.ended and now <= patience:
            return
        missing = [state for state in self.ranks.values() if state.hello is None]
        if self.mpirun.ended:
            self.losses.append(Loss(what=Lost.MPI, at=now))
            if self.mpirun.supervisor_signaled is not None:  # mpirun obeyed it before `RACE` was over
                self.losses.append(Loss(what=Lost.SUPERVISOR, at=now))
            if self.root_cause() is not None:
                self.stop_for(Cause(why=Why.LOST, at=now))
                return
        self.refuse(never_reported(self.mpirun, self.prepared.mpi, missing, patience))

    def _running(self, now: float, started_at: float) -> None:
        timeout = self.job.timeout
        if self.mpirun.exit_code is not None and self._mpirun_gone is None:
            self._mpirun_gone = now
        gone, ranks = self._mpirun_gone, self.ranks.values()
        if gone is not None and now > gone + ORPHAN_SECONDS and not all(state.done for state in ranks):
            # By then the agents, told by the kernel, have ended their ranks and said so; some did not.
            self.losses.append(Loss(what=Lost.MPI, at=gone))
            self.stop_for(Cause(why=Why.MPI, at=now, text="mpirun ended while ranks were running"))
        elif timeout is not None and now - started_at + self._earlier > timeout:
            text = f"the job was stopped after {timeout:g} s (--timeout)"
            self.cause = Cause(why=Why.TIMEOUT, at=now, text=text)
            self.stop_after_stacks(now)
        if self.is_due("warn", now):
            self._warn_of_early_end()

    def _leaving(self, now: float) -> None:
        """When all have ended, let the agents go, then mpirun."""
        if self.said_bye is None:
            begun = self.started_at is not None or self.cause is not None
            if begun and self._agents_are_gone:
                self.said_bye = now
                for state in self.ranks.values():
                    self.tell(state, do="bye")
                if self.cause is not None and not all(state.hello for state in self.ranks.values()):
                    self.mpirun.stop()
        elif self.mpirun.exit_code is None:
            lost = bool(self.losses)
            told = self.cause is not None and self.cause.why in (Why.SIGNAL, Why.TIMEOUT)
            if now > self.said_bye + (0.5 if lost else TOLD_SECONDS if told else MPIRUN_SECONDS):
                self.mpirun.stop(hard=lost)  # one that waits for a lost host has nothing to tell
                self.said_bye = now

    def _remind(self) -> None:
        """Say for whom the end of a stopped job waits."""
        states = self.ranks.values()
        late = [state.name for state in states if state.connection is not None and not state.done]
        if late:
            them = "it" if len(late) == 1 else "them"
            what = f"waiting for {listed(late)} to end, at most {self.job.grace:g} s (--grace)"
            self.listener.warning(f"{what}; Ctrl-C ends {them} at once")

    def _warn_of_early_end(self) -> None:
        over = [state.rank for state in self.ranks.values() if state.end is not None]
        running = [state.name for state in self.ranks.values() if state.end is None]
        if over and running:
            what = f"{ranks_named(over)} ended with exit code 0 {self._early:g} s ago"
            waits = f"If these wait for {'it' if len(over) == 1 else 'them'}, they wait for ever"
            self.listener.warning(f"{what}, still running: {listed(running)}. {waits}")

    def _tell_ends(self, now: float) -> None:
        """Tell the ranks that run which others have ended, so that nobody waits for them.

        Ends that come together are reported together, and with many ranks less often: what is sent in a
        second does not grow with their number.
        """
        if not self._ended or now < self._next_notice:
            return
        self._next_notice = now + NOTICE_SECONDS * len(self.ranks)
        by_code: dict[int | None, list[int]] = {}
        for state in self._ended:
            end = state.end
            known = end is not None and (end.exit_code is not None or end.signal is not None)
            by_code.setdefault(end.code if known and end is not None else None, []).append(state.rank)
        self._ended.clear()
        lines = [{"ended": ranges(ranks), "exit_code": code} for code, ranks in by_code.items()]
        message = protocol.message(do="status", lines=lines)
        for state in self.ranks.values():
            if state.end is None:
                self._send(state, message)

    # --- what was lost ------------------------------------------------------------------------------------

    def lose(self, what: Lost, state: RankState | None = None, *, number: int = 0) -> None:
        """Note the end of something of a rank's (``state``) or of mpirun; ``number``: the signal.

        What ends once we let go of it is lost by nobody.
        """
        if self.said_bye is not None:
            return
        now = self.clock()
        host, rank, text = "", None, "mpirun ended"
        if state is not None:
            host, rank, text = state.host.host.name, state.rank, f"{state.name}: the MPI ended it"
        self.losses.append(Loss(what=what, at=now, host=host, rank=rank, signal=number))
        self.stop_for(Cause(why=Why.MPI if what is Lost.MPI else Why.LOST, at=now, text=text))

    def _watch_losses(self, now: float) -> None:
        """See whether mpirun, its supervisor or an ssh connection ended while the job needed them."""
        if self.said_bye is not None:
            return
        mpirun, ssh = self.mpirun, self.prepared.ssh
        if mpirun.exit_code is not None and not self._mpirun_noted:
            self._mpirun_noted = True
            if mpirun.supervisor_lost:
                self.lose(Lost.SUPERVISOR, number=-mpirun.exit_code)
            elif mpirun.exit_code < 0 and not mpirun.supervisor_signaled:
                self.lose(Lost.MPIRUN, number=-mpirun.exit_code)
        signaled = mpirun.supervisor_signaled
        if signaled is not None and now > signaled - self.began + RACE:
            mpirun.supervisor_signaled = None
            self.lose(Lost.SUPERVISOR)
        for host in ssh.lost() if ssh is not None else ():
            self.losses.append(Loss(what=Lost.SESSION, at=now, host=host))

    def root_cause(self) -> RootCause | None:
        """Return what the job was ended by, where that was no rank, no signal and no time-out."""
        ranks_of: dict[str, list[int]] = {}
        for state in self.ranks.values():
            ranks_of.setdefault(state.host.host.name, []).append(state.rank)
        hosts = self.prepared.plan.hosts
        around = JobHosts(
            ranks_of=ranks_of,
            remote=frozenset(host.host.name for host in hosts if not host.is_local),
            lost_after=self.job.lost_after,
            mpi=self.prepared.mpi.name,
        )
        # A daemon that mpirun says to have lost: one that is ordered to end does not break off.
        nodes = set(daemons_lost_in(self.mpirun.output()))
        at = min((loss.at for loss in self.losses), default=self.cause.at if self.cause else 0.0)
        daemons = [
            Loss(what=Lost.DAEMON, at=at, host=host.host.name)
            for host in hosts
            if nodes & {host.hostname, bare_name(host.host.name)}
        ]
        return root_cause([*self.losses, *daemons], around)

    # --- how it ended -------------------------------------------------------------------------------------

    def ends(self) -> tuple[RankEnd, ...]:
        """Return how each rank ended, by rank."""
        stopped = "ringleader" if self.cause is not None else ""
        return tuple(
            state.end or self.unknown_end(state, "never started", stopped=stopped)
            for state in self.ranks.values()
        )

    def job_exit(self) -> JobExit:
        """Return how the job ended with this start."""
        output = self.mpirun.output()
        told = {rank: state.abort_code for rank, state in self.ranks.items() if state.abort_code is not None}
        ended = job_exit(
            ends=self.ends(),
            cause=self.cause,
            mpirun_code=self.mpirun.exit_code,
            output=output,
            mpi=self.prepared.mpi,
            aborts=told | aborts_in(output),
            root_cause=self.root_cause(),
        )
        if self.host_faults is None:
            return ended
        first = ended.first_failure
        return self.host_faults.quoted(ended, None if first is None else self.ranks[first.rank].place.gpu)


# --- what can be wrong with a start -----------------------------------------------------------------------


def misplaced(state: RankState, mpi: Mpi, size: int) -> Fault | None:
    """Return what is wrong with where, or among how many, a rank that has reported was started."""
    hello = state.hello
    assert hello is not None
    who = f"{mpi.mpirun} ({mpi.name})"
    if hello["host"] != state.host.identity:
        return Fault(
            where=f"rank {state.rank}",
            what=f"{who} started it on {hello['hostname']}, not on {state.host.host.name} as planned",
            hint="this mpirun does not follow the hostfile it is given; use another with --mpi",
        )
    if hello["size"] not in (None, size):
        return Fault(where=f"rank {state.rank}", what=f"{who} says {hello['size']} ranks, {size} are planned")
    return None


def never_reported(mpirun: MpirunProcess, mpi: Mpi, missing: Sequence[RankState], patience: float) -> Fault:
    """Return the fault of ranks that had not reported when mpirun ended, or the time for a start was over."""
    ranks, said = ranks_named(state.rank for state in missing), relevant_lines(mpirun.output())
    if mpirun.ended:
        code = mpirun.exit_code
        how = f"was killed by signal {-code}" if code and code < 0 else f"ended with exit code {code}"
        what = mpirun.failure or f"{mpi.mpirun} ({mpi.name}) {how} before {ranks} had started"
        return Fault(where="mpirun", what=what + (f"; it said:\n{said}" if said else ""))
    hosts = ", ".join(dict.fromkeys(state.host.host.name for state in missing))
    what = f"{ranks} on {hosts} did not report within {patience:g} s"
    hint = "check that these hosts reach this one by TCP (firewall, --network-interface), or allow more time "
    hint += "with --start-timeout"
    return Fault(where="start", what=what + (f"; mpirun said:\n{said}" if said else ""), hint=hint)


def ranges(ranks: Iterable[int]) -> list[list[int]]:
    """Return ranks as pairs of first and last: ``[[0, 3], [7, 7]]``."""
    found: list[list[int]] = []
    for rank in sorted(ranks):
        if found and found[-1][1] == rank - 1:
            found[-1][1] = rank
        else:
            found.append([rank, rank])
    return found

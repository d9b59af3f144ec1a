"""One session with the agents of a job's ranks: the loop, messages both ways, signals, output, ends.

What follows from the end of a rank is a policy: ``mpirun_session`` stops all ranks (and the launcher may
start all of them again), ``launch/elastic/elastic_session`` has a rank replaced.

Longer than others: what an agent reports and what it is sent change the same few fields, so both stand here.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ringleader.agents import protocol
from ringleader.launch import signals
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.outcome import Listener, RankEnd
from ringleader.launch.rank_output import STREAMS, OutputFiles
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.launch.supervision.ranks import OutputFlow, RankState, StdinForwarding
from ringleader.plan.job import Job
from ringleader.plan.rank_placement import listed

if TYPE_CHECKING:
    from ringleader.launch.hang_verdict import Verdict
    from ringleader.launch.host_faults import HostFaults
    from ringleader.launch.job_record import JobRecord
    from ringleader.launch.stragglers import Straggler, Stragglers

STACK_SECONDS = 5.0
"""For ranks to say what they are doing."""
RECORD_SECONDS = 3.0
"""After the last agent's answer: for what the ranks themselves report."""
FIRST_SECONDS = 10.0
"""After the start: the listener hears once more that the ranks run, and may say what it has not heard."""
MOVES = frozenset(("progress", "steps", "step"))
"""Reports of ranks that make steps."""
FLUSH_SECONDS = 1.0
"""For words to the agents to leave this process before it stops."""
SAME_SECONDS = 2.0
"""After a SIGTERM: for the same one to come by another way."""
MOST_LIVES = 1000
"""Reports of traffic that are kept of a rank: one for each life of its engine."""
Rank = TypeVar("Rank", bound=RankState)
_STREAM_OF = {protocol.STDOUT: "stdout", protocol.STDERR: "stderr"}


@dataclass(kw_only=True)
class Channels:
    """What a session listens to and passes on to."""

    selector: selectors.BaseSelector
    server: AgentServer
    listener: Listener
    files: OutputFiles | None = None
    """Those of ``--output``."""
    stdin: int | None = None
    """The descriptor that the first rank reads, if any."""
    payload: bytes | None = None
    """The pickled call of ``ringleader.run``."""
    open_files: int = 0
    """The caller's soft limit, which ranks of this machine get back."""
    record: JobRecord | None = None
    """That of ``--report``."""


class Session(Generic[Rank]):
    """Serves everybody of one job until all is over."""

    def __init__(self, job: Job, channels: Channels) -> None:
        """Nobody has connected yet."""
        self.job, self.channels = job, channels
        self.listener, self.server, self.files = channels.listener, channels.server, channels.files
        self.ranks: dict[int, Rank] = {}
        """By the number that their agents give: a rank's, or that of an elastic job's incarnation."""
        self.began = time.monotonic()
        """All times of a session are seconds from then; time in which we were stopped does not count."""
        self._turned = self.began
        """When the loop last came round: from then on a process that SIGSTOP stopped did not run."""
        self.reads = channels.stdin is not None
        self.started_at: float | None = None
        """When all ranks were ordered to start, where that is one moment."""
        self.stdin = StdinForwarding(channels.selector, self.server, channels.stdin)
        self.flow = OutputFlow(self.listener, self.files, self.tell)
        self.alarms: dict[str, float] = {}
        """When something is due, by the session's clock: ``is_due`` says so, once."""
        self.hang: Verdict | None = None
        """What was said last of ranks that wait for each other."""
        self.stragglers: Stragglers | None = None
        """Those that report how they spend a step."""
        self.host_faults: HostFaults | None = None
        """What kernels of hosts have said; ``None``: nothing."""
        self._names, self._named_at = dict[int, str](), float("-inf")
        """Ranks that ran when they were looked through last, with their names."""
        self._asked_at = float("-inf")
        """When SIGTERM asked the job to end."""
        self._stops_after_stacks = False
        self._least_wait: float | None = None
        """From which a wait of ranks counts; ``None``: by what is usual."""
        self._moved_at: float | None = None
        """When the job made a step; where it has reported none, when it printed something."""
        self._makes_steps = self._has_started = False

    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    def is_due(self, what: str, now: float) -> bool:
        """Say, once, that the time for something has come."""
        if now <= self.alarms.get(what, now):
            return False
        del self.alarms[what]
        return True

    # --- what a policy decides ----------------------------------------------------------------------------

    def hello(self, connection: AgentConnection, words: dict[str, Any]) -> None:
        """Take the first message of a connection. Raises ProtocolError where nobody waits for it."""
        raise NotImplementedError

    def longest_wait(self) -> float:
        """Return the seconds to wait at most before looking at the clock again."""
        raise NotImplementedError

    def tick(self, now: float) -> None:
        """Do what is due."""
        raise NotImplementedError

    def is_over(self) -> bool:
        """Say whether nothing is left to be served."""
        raise NotImplementedError

    @property
    def is_stopping(self) -> bool:
        """True once ranks were ordered to end."""
        raise NotImplementedError

    def stop_for(self, cause: Cause) -> None:
        """Have the job end: a signal came, or nobody reads its output any more."""
        raise NotImplementedError

    def send_stop(self, grace: float) -> None:
        """Have every rank end, SIGKILL after ``grace`` seconds."""
        raise NotImplementedError

    def rank_failing(self, state: Rank) -> None:
        """An exception has left a rank's script: peers wait for it while its exit handlers run."""
        raise NotImplementedError

    def rank_ended(self, state: Rank) -> None:
        """A rank has ended, as ``state.end`` says."""
        raise NotImplementedError

    def rank_lost(self, state: Rank, silent: bool) -> None:
        """A rank's agent is gone without its last word; ``silent``: so is all of its host."""
        raise NotImplementedError

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self, *descriptors: int | None) -> None:
        """Serve everybody until all is over. ``descriptors``: of signals."""
        selector = self.channels.selector
        for fd in descriptors:
            if fd is not None:
                selector.register(fd, selectors.EVENT_READ, self._read_signals)
        while not self.is_over():
            for key, mask in selector.select(self.longest_wait()):
                if isinstance(key.data, AgentConnection):
                    self._serve_agent(key.data, mask)
                else:
                    key.data(key.fd)
            self.tick(self.clock())
            self._turned = time.monotonic()

    def _serve_agent(self, connection: AgentConnection, mask: int) -> None:
        try:
            for kind, payload in self.server.serve(connection, mask):
                self.frame(connection, kind, payload)
        except protocol.ProtocolError:
            self.server.drop(connection)  # it holds our token, and is none of the ranks that were planned
        if self.server.lost(connection):
            self.lost(connection)

    # --- to the agents ------------------------------------------------------------------------------------

    def tell(self, state: Rank, **words: Any) -> None:
        """Send a message to a rank's agent, if it is there."""
        self._send(state, protocol.message(**words))

    def _send(self, state: Rank, data: bytes) -> None:
        if state.connection is not None:
            self.server.send(state.connection, data)

    def start_rank(self, state: Rank, message: dict[str, Any]) -> None:
        """Have an agent start its rank, with the call that it makes."""
        payload = self.channels.payload or b""
        state.window = message.get("window", state.window)
        for start in range(0, len(payload), protocol.PIECE):
            self._send(state, protocol.frame(protocol.BLOB, payload[start : start + protocol.PIECE]))
        self.tell(state, do="start", **message)

    def running(self) -> list[Rank]:
        """Return the ranks whose command runs."""
        return [state for state in self.ranks.values() if state.running and state.end is None]

    def show_stacks(self, least: float | None = None) -> None:
        """Ask every rank where it is and what it waits for; ``stacks_are_shown`` shows it.

        ``least``: seconds from which a wait counts; ``None``: by what is usual.
        """
        self._least_wait = least
        self.alarms["stacks"] = self.clock() + STACK_SECONDS
        for state in self.ranks.values():
            state.pythons, state.mute, state.unshown = [], [], 0
            state.record = state.record if state.has_failed else None
        for state in self.running():
            state.stacks_requested = state.record_requested = True
            self.tell(state, do="stacks")

    def stop_after_stacks(self, now: float) -> None:
        """The job ends: show first where its ranks are; ``stacks_are_shown`` says when that is done."""
        self.show_stacks()
        self._stops_after_stacks = True

    def stacks_are_shown(self, now: float) -> bool:
        """Show where ranks are that were asked; say, once, that all may be stopped that wait for that."""
        if "stacks" not in self.alarms:
            return False
        asked = [state for state in self.ranks.values() if state.end is None and not state.done]
        if not any(state.stacks_requested for state in asked):
            is_all = not any(state.record_requested for state in asked)
            self.alarms["stacks"] = 0.0 if is_all else min(self.alarms["stacks"], now + RECORD_SECONDS)
        if not self.is_due("stacks", now):
            return False
        self._explain()
        stops, self._stops_after_stacks = self._stops_after_stacks, False
        return stops

    def _explain(self) -> None:
        """Say which rank the others wait for; show the stacks, too, unless a rank has failed."""
        from ringleader.launch.hang_verdict import Verdict, judge
        from ringleader.launch.python_stacks import groups, stacks_of, text_of

        # Of those that have ended only the failures that end the job count: an elastic job replaces others.
        every = self.ranks.values()
        states = [state for state in every if state.end is None or (state.has_failed and self.is_stopping)]
        stacks = [stack for state in states for stack in stacks_of(state.rank, state.pythons)]
        # In an elastic job another may have taken the place of one that has ended.
        alive = {state.rank for state in states if not state.how_it_ended}
        over = [state for state in every if state.rank not in alive]
        failed = {state.rank for state in over if state.has_failed and self.is_stopping}
        try:
            self.hang = judge(
                {state.rank: state.record for state in states if state.record or state.has_groups},
                stacks={stack.rank: stack for stack in stacks if stack.is_first},
                ended={state.rank: state.how_it_ended for state in over},
                failed=failed,
                least=self._least_wait,
            )
        except Exception as error:  # a fault of ours costs the verdict, never the job
            self.hang = Verdict(kind="none", text=f"no verdict: {type(error).__name__}: {error}")
        names = {state.rank: state.name for state in states}
        if len(alive | failed) > 1 and (self.hang.accuses or not failed):
            self.listener.warning(str(self.hang))
            self.note(
                "hang", listed(names[rank] for rank in self.hang.ranks if rank in names), self.hang.text
            )
        if failed:
            return
        for state in states:
            for process in state.mute:
                where = f" in {process['waits_in']}" if process["waits_in"] else ""
                self.listener.warning(
                    f"{state.name}: process {process['pid']} ({process['name']}) prints no Python stack; "
                    f"its state is {process['state']}{where}"
                )
            if state.unshown:
                self.listener.warning(f"{state.name}: {state.unshown} more Pythons are not shown")
        for found in groups(stacks):
            self.listener.warning(text_of(found, listed(names[stack.rank] for stack in found)))

    def note(self, kind: str, who: str, why: str) -> None:
        """Have an event in the record of the run, where there is one."""
        if self.channels.record is not None:
            self.channels.record.happened(kind, who, why)

    def slow_ranks(self) -> tuple[Straggler, ...]:
        """Return the ranks that were slow for long, by rank."""
        found = {} if self.stragglers is None else self.stragglers.found
        return tuple(one for _rank, one in sorted(found.items()))

    def watch_progress(self, now: float) -> None:
        """Ask the ranks where they are, once, if the job has made no step for ``--hang-seconds``."""
        if self.is_due("told", now):
            self.listener.progress("")
        patience = self.job.hang_seconds
        if patience is None or self._moved_at is None or now - self._moved_at < patience or self.is_stopping:
            return
        self._moved_at = None
        what = "made no step" if self._makes_steps else "printed nothing"
        self.listener.warning(f"the job has {what} for {patience:g} s (--hang-seconds)")
        self.show_stacks(min(3.0, patience / 2))

    def _moves(self, is_step: bool) -> None:
        """Note a step, or output of a job that has reported no step."""
        if is_step or not self._makes_steps:
            self._makes_steps = self._makes_steps or is_step
            self._moved_at = self.clock()

    # --- what agents say ----------------------------------------------------------------------------------

    def frame(self, connection: AgentConnection, kind: int, payload: bytes) -> None:
        """Take one frame of an agent that has proven itself; ``on_…`` takes a message of that name."""
        if connection.rank is None:
            if kind == protocol.MESSAGE:
                self.hello(connection, protocol.read_message(payload))
            return
        state = self.ranks[connection.rank]
        if kind == protocol.MESSAGE:
            words = protocol.read_message(payload)
            if (act := getattr(self, f"on_{words.get('do')}", None)) is not None:
                act(state, words)
        elif kind in _STREAM_OF:
            stream = _STREAM_OF[kind]
            if self.files is not None:
                self.files.write(state.place.rank, stream, payload)
            self._show(state, stream, state.cutters[stream].feed(payload))
            self.flow.took(state, len(payload))
        elif kind == protocol.BLOB and self.job.profile_dir is not None:
            state.keep_trace(Path(self.job.profile_dir), payload)
        elif kind == protocol.BLOB:
            state.result += payload

    def line(self, state: Rank, stream: str, line: bytes) -> None:
        """Pass on a line of a rank."""
        self._moves(False)
        if not self.job.quiet:
            self.listener.output(state.rank, stream, line)

    def _show(self, state: Rank, stream: str, lines: Iterable[bytes]) -> None:
        """Pass lines on; where their reader has gone the job ends, as a program does by SIGPIPE."""
        for line in lines:
            self.line(state, stream, line)
        try:
            self.listener.flush()
        except BrokenPipeError:
            self.stop_for(Cause(why=Why.SIGNAL, at=self.clock(), number=signal.SIGPIPE))

    def on_started(self, state: Rank, words: dict[str, Any]) -> None:
        """Its command runs."""
        state.running = True
        self._moves(False)
        if not self._has_started:
            self._has_started = True
            self.alarms["told"] = self.clock() + FIRST_SECONDS
        if why := words.get("why_cold"):
            what = "starts by itself, as the warm Python of its host cannot fork it"
            self.listener.warning(f"rank {state.rank} {what}: {why}")

    def on_report(self, state: Rank, words: dict[str, Any]) -> None:
        """It wrote to its report pipe."""
        report = words["report"]
        kind = report.get("kind")
        if not isinstance(kind, str) or kind == "host_sample":  # which agents alone send
            return
        if kind == "traffic":
            state.traffic = [*state.traffic, report][-MOST_LIVES:]
            return
        if kind in ("collectives", "watched"):
            state.has_groups = True
            if kind == "collectives":
                state.record, state.record_requested = report, False
            return
        if kind in MOVES:
            self._moves(True)
        if self.channels.record is not None:
            self.channels.record.report(state, state.rank, report)
        if kind in ("step", "own"):
            self._watch_stragglers(state, report)
            if kind == "own":
                return
        state.differences += [report] if kind == "consistency" else []
        self.listener.report(state.rank, report)

    def _watch_stragglers(self, state: Rank, report: dict[str, Any]) -> None:
        """Name a rank that the others wait for while it is slow."""
        if self.stragglers is None:
            from ringleader.launch.stragglers import Stragglers

            self.stragglers = Stragglers()
        now = self.clock()
        if now > self._named_at + 1.0:  # each of thousands of ranks reports every second
            self._names, self._named_at = {one.rank: one.name for one in self.running()}, now
        for found in self.stragglers.add(state.rank, report, now, len(self._names)):
            name = self._names.get(found.rank, f"rank {found.rank}")
            self.listener.warning(found.text(name))
            self.note("slow_rank", name, found.text(name))

    def on_evidence(self, state: Rank, words: dict[str, Any]) -> None:
        """Its agent has gathered what proves the transport."""
        state.evidence = words

    def on_host_sample(self, state: Rank, words: dict[str, Any]) -> None:
        """Its agent has read what the interfaces and RDMA ports of its host have carried by now."""
        names = ("at", "interfaces", "ports", "gpus", "fault")
        sample = {name: words[name] for name in names if name in words}
        report = {"kind": "host_sample", "host": state.host.host.name, **sample}
        if self.channels.record is not None:
            self.channels.record.report(state, state.rank, report)
        self.listener.report(state.rank, report)

    def on_kernel(self, state: Rank, words: dict[str, Any]) -> None:
        """The kernel of its host has said something of a device, or an RDMA port has counted errors."""
        if self.host_faults is None:
            from ringleader.launch.host_faults import HostFaults  # few jobs need it

            self.host_faults = HostFaults()
        for fault in self.host_faults.take(state.host.host.name, words, self.clock()):
            self.note("host_fault", fault.host, fault.text)
            if fault.kind != "kernel.oom":  # which may be of any program there
                self.listener.warning(str(fault))

    def on_stacks(self, state: Rank, words: dict[str, Any]) -> None:
        """Its Pythons have written their stacks; other processes of it cannot."""
        state.stacks_requested = False
        state.record_requested = state.record_requested and bool(words["asked"])
        state.pythons, state.mute, state.unshown = words["pythons"], words["mute"], words["unshown"]

    def on_more_input(self, state: Rank, words: dict[str, Any]) -> None:
        """It has room for more of our standard input."""
        self.stdin.asked(state.connection)

    def on_failing(self, state: Rank, words: dict[str, Any]) -> None:
        """An exception has left its script."""
        state.failed_at, state.failing_code = self.clock(), words["exit_code"]
        self.rank_failing(state)

    def on_ended(self, state: Rank, words: dict[str, Any]) -> None:
        """Its command has ended, or could not be started."""
        state.end = self._end(
            state,
            exit_code=words["exit_code"],
            signal=words["signal"],
            seconds=words["seconds"],
            stopped=words["stopped"],
            orphaned=words.get("orphaned", False),
            reason=words["reason"],
        )
        if state is next(iter(self.ranks.values())):
            self.stdin.close()
        self.rank_ended(state)

    def on_done(self, state: Rank, words: dict[str, Any]) -> None:
        """All its output is here: pass on its last line, which may lack its line feed."""
        state.done = True
        for stream in STREAMS:
            if rest := state.cutters[stream].rest():
                self._show(state, stream, (rest,))

    def unknown_end(self, state: Rank, reason: str, *, stopped: str) -> RankEnd:
        """Return the end of a rank that could not say how it ended."""
        return self._end(
            state,
            exit_code=state.failing_code,
            signal=None,
            seconds=self.clock() - self.started_at if self.started_at is not None else 0.0,
            stopped=stopped if state.failed_at is None else "",
            reason=reason,
        )

    def _end(self, state: Rank, **how: Any) -> RankEnd:
        return RankEnd(
            rank=state.rank,
            host=state.host.host.name,
            at=self.clock() if state.failed_at is None else state.failed_at,
            log=self.files.path(state.place.rank, "stderr") if self.files is not None else "",
            **how,
        )

    def lost(self, connection: AgentConnection) -> None:
        """A connection has ended: fine after the agent's last word."""
        state = self.ranks.get(connection.rank) if connection.rank is not None else None
        if state is None or state.connection is not connection:
            return
        state.connection = None
        if not state.done:
            self.on_done(state, {})
            self.rank_lost(state, connection.silent)

    # --- signals ------------------------------------------------------------------------------------------

    def _read_signals(self, fd: int) -> None:
        for number in os.read(fd, 64):
            self.signal(number)

    def signal(self, number: int) -> None:
        """Serve a signal to the launcher; those that end the job do so at once a second time.

        Not so a SIGTERM right after another: Slurm sends it to every process, and its script passes it on.
        """
        if number == signal.SIGQUIT:
            self.show_stacks()
        elif number in signals.FORWARDED:
            self._forward(number)
        elif number == signal.SIGTSTP:
            self._suspend()
        elif number == signal.SIGCONT:
            self._continued()
        elif not self.is_stopping:
            self._asked_at = self.clock() if number == signal.SIGTERM else self._asked_at
            self.stop_for(Cause(why=Why.SIGNAL, at=self.clock(), number=number))
        elif number == signal.SIGINT or (
            number == signal.SIGTERM and self.clock() > self._asked_at + SAME_SECONDS
        ):
            self.flow.hurry()
            self.send_stop(0.0)

    def _forward(self, number: int) -> None:
        """Pass a signal on to the command of every rank that runs."""
        told = self.running()
        for state in told:
            self.tell(state, do="signal", number=number)
        if not told:
            name = signal.Signals(number).name
            self.listener.warning(f"{name} came while no rank ran: it had no effect")

    def _suspend(self) -> None:
        """Stop all ranks on all hosts, then ourselves; when we are continued, they are too.

        Ranks that were ordered to end are left alone: their agents count how long they may take.
        """
        if not self.is_stopping:
            for state in self.ranks.values():
                self.tell(state, do="pause")
            self.server.flush_all(FLUSH_SECONDS)
        signals.suspend_ourselves()
        self._continued()
        for state in self.ranks.values():
            self.tell(state, do="continue")

    def _continued(self) -> None:
        """After a time in which we did not run: it counts for no deadline."""
        now = time.monotonic()
        self.began += now - self._turned
        self._turned = now
        self.stdin.continued()

"""The launcher's loop: from mpirun's start until every rank, and mpirun, has ended.

Everything that waits has a time by which it is given up, and whoever was waited for is named.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.errors import Fault, LaunchError
from ringleader.job import Job, Mpi
from ringleader.launch.exit_code import Cause, Why, aborts_in, daemons_lost_in, named, ranks_named
from ringleader.launch.mpirun.mpirun_process import Engine
from ringleader.launch.outcome import Listener, RankEnd
from ringleader.launch.rank_output.lines import RankFiles
from ringleader.launch.root_cause import RACE, Loss, Lost, Root, Surroundings, root
from ringleader.launch.signals import FORWARDED
from ringleader.launch.supervision.agent_connections import Control, Peer
from ringleader.launch.supervision.agent_messages import Events
from ringleader.launch.supervision.end_notices import EndNotices
from ringleader.launch.supervision.output_flow import Delivery
from ringleader.launch.supervision.rank_state import RankState
from ringleader.launch.supervision.signal_actions import JobControl
from ringleader.launch.supervision.start_failures import misplaced, mpirun_failed, never_reported
from ringleader.launch.supervision.stdin_forwarding import Feed
from ringleader.rank_placement import Plan
from ringleader.ranks import protocol
from ringleader.render.hostfile import bare_name

LOST_SECONDS = 8.0
"""After mpirun's end, or after the grace of ranks that were told to stop: for the agents' last words."""
MPIRUN_SECONDS = 3.0
"""After the last rank's end: for mpirun to end by itself. Open MPI 5 sometimes does not, where the end of a
very short process got lost between its daemons; how the job ended is known without it."""
ORPHAN_SECONDS = 1.5
"""After mpirun's end: for the agents to notice and say how their ranks ended."""
REMIND_SECONDS = 3.0
"""After an order to stop: until the user hears whom it still waits for."""
STACK_SECONDS = 3.0
"""After a time-out: for the ranks to print their stacks."""
STACK_PAUSE = 0.5
"""After the last agent's answer: for the stacks, already written, to arrive."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a run needs and does not change."""

    job: Job
    plan: Plan
    mpi: Mpi
    listener: Listener
    start: Callable[[int, int], dict[str, Any]]
    """(rank, free port on rank 0's host) → the ``start`` message."""
    payload: bytes | None
    """The pickled call of ``ringleader.run``."""
    files: RankFiles | None
    stdin: int | None
    """Descriptor that rank 0 reads; ``None``: it reads nothing."""
    sessions_lost: Callable[[], Sequence[str]]
    """() → hosts to which the ssh connection ended since the last call."""
    early: float
    """Seconds after which a rank that ended while others run is worth a warning."""


class Supervisor:
    """One job's run."""

    def __init__(
        self, setting: Setting, selector: selectors.BaseSelector, control: Control, engine: Engine
    ) -> None:
        """mpirun has been started, nobody has reported yet."""
        self.setting = setting
        self.job = setting.job
        self.listener = setting.listener
        self.selector = selector
        self.control = control
        self.engine = engine
        plan = setting.plan
        self.ranks = [RankState(place=place, host=plan.hosts[place.host_index]) for place in plan.ranks]
        self.began = time.monotonic()
        self.cause: Cause | None = None
        self.refused: list[Fault] = []
        self.started_at: float | None = None
        self.stopping_until: float | None = None
        self.remind_at: float | None = None
        self.said_bye: float | None = None
        self.stop_at: float | None = None
        self.warn_at: float | None = None
        self.mpirun_gone: float | None = None
        self.losses: list[Loss] = []
        self.mpirun_noted = False
        self.job_control = JobControl(self)
        self.feed = Feed(selector, control, setting.stdin)
        self.delivery = Delivery(self.listener, setting.files, len(self.ranks), self.tell)
        self.notices = EndNotices(self.ranks, self.tell)
        self.events = Events(self)

    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self, *signals: int | None) -> None:
        """Serve everybody until all is over. Raises LaunchError where the MPI did not start the plan."""
        for descriptor in signals:
            if descriptor is not None:
                self.selector.register(descriptor, selectors.EVENT_READ, "signals")
        while not self._over():
            for key, mask in self.selector.select(self._patience()):
                self._serve(key, mask)
            self._tick(self.clock())
            self.job_control.turned_at = time.monotonic()
        if self.refused:
            raise LaunchError(self.refused)

    def _serve(self, key: selectors.SelectorKey, mask: int) -> None:
        who = key.data
        if isinstance(who, Peer):
            try:
                for kind, payload in self.control.serve(who, mask):
                    self.events.frame(who, kind, payload)
            except protocol.ProtocolError:
                self.control.drop(who)  # it holds our token, and is none of the ranks that were planned
            if self.control.lost(who):
                self.events.lost(who)
        elif isinstance(who, Engine):
            who.serve(key.fd)
        elif isinstance(who, Control):
            who.accept()
        elif isinstance(who, Feed):
            who.serve()
        else:
            for number in os.read(key.fd, 64):
                self._signal(number)

    def _patience(self) -> float:
        """Seconds to wait at most before looking at the clock again."""
        waits = (self.said_bye, self.stopping_until, self.stop_at)
        near = self.notices.pending or any(when is not None for when in waits)
        if self.delivery.is_held or (self.engine.ended and self.delivery.waiting):
            return 0.005
        return 0.05 if near or self.engine.exit_code is not None else 0.25

    def _over(self) -> bool:
        """True when mpirun has ended, every agent that ever reported has had its last word and been heard."""
        agents_gone = all(state.done or state.peer is None for state in self.ranks)
        return self.engine.ended and agents_gone and self.delivery.is_over(self.clock(), self.cause)

    def _tick(self, now: float) -> None:
        """Do what is due."""
        self.engine.watch()
        self.delivery.tick()
        self.notices.tick(now)
        self.control.resume()
        if text := self.control.trouble():
            self.listener.warning(text)
        self.control.part_with_strangers()
        self._watch_what_it_stands_on(now)
        if self.started_at is None and self.cause is None:
            self._starting(now)
        elif self.started_at is not None and self.cause is None:
            self._running(now)
        if self.stop_at is not None and (now > self.stop_at or self._stacks_are_here(now)):
            self.stop_at = None
            self.send_stop(self.job.grace)
        if self.remind_at is not None and now > self.remind_at:
            self.remind_at = None
            self._remind()
        if self.stopping_until is not None and now > self.stopping_until:
            self.stopping_until = None
            self.engine.stop(hard=True)
            self._give_up()
        self._leaving(now)

    def _starting(self, now: float) -> None:
        if not self.engine.ended and now <= self.job.start_timeout:
            return
        missing = [state for state in self.ranks if state.hello is None]
        if self.engine.ended and missing:
            self.losses.append(Loss(what=Lost.MPI, at=now))
            if self.root() is not None:
                self.stop(Cause(why=Why.LOST, at=now))
            else:
                self.refuse(mpirun_failed(self.engine, self.setting.mpi, missing))
        elif now > self.job.start_timeout:
            self.refuse(never_reported(self.engine, self.job, missing))

    def _running(self, now: float) -> None:
        assert self.started_at is not None
        if self.engine.exit_code is not None and self.mpirun_gone is None:
            self.mpirun_gone = now
        ranks_are_over = all(state.done for state in self.ranks)
        if self.mpirun_gone is not None and now > self.mpirun_gone + ORPHAN_SECONDS and not ranks_are_over:
            # By then the agents, told by the kernel, have ended their ranks and said so; some did not.
            self.losses.append(Loss(what=Lost.MPI, at=self.mpirun_gone))
            self.stop(Cause(why=Why.MPI, at=now, text="mpirun ended while ranks were running"))
        elif self.job.timeout is not None and now - self.started_at > self.job.timeout:
            text = f"the job was stopped after {self.job.timeout:g} s (--timeout)"
            self.cause = Cause(why=Why.TIMEOUT, at=now, text=text)
            self.show_stacks()
            self.stop_at = now + STACK_SECONDS
        if self.warn_at is not None and now > self.warn_at:
            self.warn_at = None
            self._warn_of_early_end()

    def _leaving(self, now: float) -> None:
        """When all have ended, let the agents go, then mpirun."""
        if self.said_bye is None:
            if all(state.done or state.peer is None for state in self.ranks) and (
                self.started_at is not None or self.cause is not None
            ):
                self.said_bye = now
                for state in self.ranks:
                    self.tell(state, do="bye")
                if self.cause is not None and not all(state.hello for state in self.ranks):
                    self.engine.stop()
        elif now > self.said_bye + (0.5 if self.losses else MPIRUN_SECONDS) and self.engine.exit_code is None:
            self.engine.stop(hard=bool(self.losses))  # one that waits for a lost host has nothing to tell
            self.said_bye = now

    # --- starting -----------------------------------------------------------------------------------------

    def all_reported(self) -> None:
        """Check every agent against the plan, then start the ranks. Called when the last one has reported."""
        wrong = [
            fault for state in self.ranks if (fault := misplaced(state, self.setting.mpi, len(self.ranks)))
        ]
        if wrong:
            self.refuse(*wrong)
            return
        first = self.ranks[0].hello
        assert first is not None
        for state in self.ranks:
            if self.setting.payload is not None:
                self._send_payload(state, self.setting.payload)
            self.tell(state, do="start", **self.setting.start(state.rank, int(first["free_port"])))
        self.started_at = self.clock()
        self.listener.progress("")

    def _send_payload(self, state: RankState, payload: bytes) -> None:
        for start in range(0, len(payload), protocol.PIECE):
            self.send(
                state,
                protocol.frame(protocol.BLOB, payload[start : start + protocol.PIECE]),
            )

    def refuse(self, *faults: Fault) -> None:
        """Stop everything: what runs is not what was planned."""
        self.refused.extend(faults)
        self.stop(Cause(why=Why.REFUSED, at=self.clock()))

    # --- stopping -----------------------------------------------------------------------------------------

    def lose(self, what: Lost, state: RankState | None = None, *, host: str = "", number: int = 0) -> None:
        """Note that something ended which the job stands on, and stop the job; ``root`` finds the cause.

        What ends once we let go of it, or after a signal to us, is lost by nobody.
        """
        if self.said_bye is not None:
            return
        now = self.clock()
        if state is not None:
            host = state.host.host.name
        rank = None if state is None else state.rank
        self.losses.append(Loss(what=what, at=now, host=host, rank=rank, signal=number))
        text = f"{state.name}: the MPI ended it" if state is not None else "mpirun ended"
        self.stop(Cause(why=Why.MPI if what is Lost.MPI else Why.LOST, at=now, text=text))

    def _watch_what_it_stands_on(self, now: float) -> None:
        """See whether keeper, mpirun or an ssh connection ended while the job needed them."""
        if self.said_bye is not None:
            return
        engine = self.engine
        if engine.exit_code is not None and not self.mpirun_noted:
            self.mpirun_noted = True
            if engine.keeper_lost:
                self.lose(Lost.KEEPER, number=signal.SIGKILL)
            elif engine.exit_code < 0 and not engine.keeper_signalled:
                self.lose(Lost.MPIRUN, number=-engine.exit_code)
        if engine.keeper_signalled is not None and now > engine.keeper_signalled - self.began + RACE:
            engine.keeper_signalled = None
            self.lose(Lost.KEEPER)
        for host in self.setting.sessions_lost():
            self.losses.append(Loss(what=Lost.SESSION, at=now, host=host))

    def root(self) -> Root | None:
        """Return what the job was ended by, where that was no rank, no signal and no time-out."""
        hosts = {state.host.host.name: state.host for state in self.ranks}
        around = Surroundings(
            ranks_of={
                name: [state.rank for state in self.ranks if state.host.host.name == name] for name in hosts
            },
            remote=frozenset(name for name, host in hosts.items() if not host.is_local),
            lost_after=self.job.lost_after,
            mpi=named(self.setting.mpi),
        )
        return root([*self.losses, *self._lost_daemons()], around)

    def _lost_daemons(self) -> list[Loss]:
        """Return the daemons that mpirun says to have lost: one that is told to end does not break off."""
        nodes = set(daemons_lost_in(self.engine.noise()))
        at = min((loss.at for loss in self.losses), default=self.cause.at if self.cause else 0.0)
        lost = [
            state for state in self.ranks if nodes & {state.host.hostname, bare_name(state.host.host.name)}
        ]
        return [Loss(what=Lost.DAEMON, at=at, host=state.host.host.name) for state in lost]

    def stop(self, cause: Cause) -> None:
        """Stop all ranks, for the first cause that came up."""
        if self.cause is None:
            self.cause = cause
            self.send_stop(self.job.grace)

    def send_stop(self, grace: float) -> None:
        """Tell every agent to end its rank, SIGKILL after ``grace`` seconds."""
        until = self.clock() + grace + LOST_SECONDS
        self.stopping_until = until if self.stopping_until is None else min(until, self.stopping_until)
        self.remind_at = self.clock() + REMIND_SECONDS if grace > 2 * REMIND_SECONDS else None
        for state in self.ranks:
            self.tell(state, do="stop", grace=grace)

    def _remind(self) -> None:
        """Say for whom the end of a stopped job waits."""
        left = [state.name for state in self.ranks if state.peer is not None and not state.done]
        if left:
            names = ", ".join(left[:8]) + (", …" if len(left) > 8 else "")
            self.listener.warning(
                f"waiting for {names} to end, at most {self.job.grace:g} s (--grace); Ctrl-C ends "
                f"{'it' if len(left) == 1 else 'them'} at once"
            )

    def _give_up(self) -> None:
        """Write off agents that have not had their last word although they had to."""
        for state in self.ranks:
            if state.peer is not None and not state.done:
                self.control.drop(state.peer)
                self.events.lost(state.peer)

    def _signal(self, number: int) -> None:
        """Serve a signal to the launcher; those that end the job do so at once a second time."""
        if number == signal.SIGQUIT:
            self.show_stacks()
        elif number in FORWARDED:
            self.job_control.forward(number)
        elif number == signal.SIGTSTP:
            self.job_control.suspend()
        elif number == signal.SIGCONT:
            self.job_control.continued()
        elif self.cause is None:
            self.stop(Cause(why=Why.SIGNAL, at=self.clock(), number=number))
        elif number in (signal.SIGINT, signal.SIGTERM):
            self.delivery.hurry()
            self.send_stop(0.0)

    def show_stacks(self) -> None:
        """Have every rank print its Python stacks."""
        for state in self.ranks:
            if state.running and state.end is None:
                state.stacks_asked = True
                self.tell(state, do="stacks")

    def _stacks_are_here(self, now: float) -> bool:
        if any(state.stacks_asked and not state.done for state in self.ranks):
            return False
        self.stop_at = min(self.stop_at or now, now + STACK_PAUSE)
        return False

    # --- words --------------------------------------------------------------------------------------------

    def tell(self, state: RankState, **words: Any) -> None:
        """Send a message to a rank's agent, if it has one."""
        self.send(state, protocol.message(**words))

    def send(self, state: RankState, data: bytes) -> None:
        """Send bytes to a rank's agent, if it has one."""
        if state.peer is not None:
            self.control.send(state.peer, data)

    def expect_early_end(self) -> None:
        """A rank has ended well while others run: say so if that stays so for a while."""
        if self.warn_at is None:
            self.warn_at = self.clock() + self.setting.early

    def _warn_of_early_end(self) -> None:
        over = [state for state in self.ranks if state.end is not None]
        running = [state for state in self.ranks if state.end is None]
        if over and running:
            ended = ranks_named(state.rank for state in over)
            left = ", ".join(state.name for state in running[:8]) + (", …" if len(running) > 8 else "")
            self.listener.warning(
                f"{ended} ended with exit code 0 {self.setting.early:g} s ago, still running: {left}. "
                f"If these wait for {'it' if len(over) == 1 else 'them'}, they wait for ever"
            )

    def ends(self) -> tuple[RankEnd, ...]:
        """Return how each rank ended, by rank."""
        stopped = "ringleader" if self.cause is not None else ""
        return tuple(
            state.end or self.unknown_end(state, "never started", stopped=stopped) for state in self.ranks
        )

    def aborts(self) -> dict[int, int]:
        """Return rank → the code it gave MPI_Abort, as the ranks or mpirun told."""
        told = {state.rank: state.abort_code for state in self.ranks if state.abort_code is not None}
        return told | aborts_in(self.engine.noise())

    def unknown_end(self, state: RankState, reason: str, *, stopped: str) -> RankEnd:
        """Return the end of a rank that could not say how it ended."""
        now = self.clock()
        return RankEnd(
            rank=state.rank,
            host=state.host.host.name,
            exit_code=state.failing_code,
            signal=None,
            seconds=now - self.started_at if self.started_at is not None else 0.0,
            at=now if state.failed_at is None else state.failed_at,
            stopped=stopped if state.failed_at is None else "",
            reason=reason,
            log=self.log_of(state.rank),
        )

    def log_of(self, rank: int) -> str:
        """Return the path of a rank's standard error, where it is kept."""
        files = self.setting.files
        return str(Path(files.path(rank, "stderr"))) if files is not None else ""

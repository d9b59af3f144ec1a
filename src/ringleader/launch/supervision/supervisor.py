"""The launcher's loop: from mpirun's start until every rank, and mpirun, has ended.

Everything that waits has a time by which it is given up, and whoever was waited for is named.
"""

from __future__ import annotations

import os
import selectors
import time

from ringleader.errors import LaunchError
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.message_words import listed, ranks_named
from ringleader.launch.mpirun.mpirun_process import MpirunProcess
from ringleader.launch.supervision.agent_connections import AgentConnection, AgentServer
from ringleader.launch.supervision.agent_messages import AgentMessages
from ringleader.launch.supervision.loss_detection import LossDetection
from ringleader.launch.supervision.output_flow import OutputFlow
from ringleader.launch.supervision.running_job import RunContext, RunningJob
from ringleader.launch.supervision.signal_actions import SignalActions
from ringleader.launch.supervision.start_failures import mpirun_failed, never_reported
from ringleader.launch.supervision.stdin_forwarding import StdinForwarding
from ringleader.ranks import protocol

MPIRUN_SECONDS = 3.0
"""After the last rank's end: for mpirun to end by itself. Open MPI 5 sometimes does not, where the end of a
very short process got lost between its daemons; how the job ended is known without it."""
TOLD_SECONDS = 1.0
"""The same where a signal or a time-out ends the job: what mpirun might say then is of no interest."""
ORPHAN_SECONDS = 1.5
"""After mpirun's end: for the agents to notice and say how their ranks ended."""
STACK_SECONDS = 3.0
"""After a time-out: for the ranks to print their stacks."""
STACK_PAUSE = 0.5
"""After the last agent's answer: for the stacks, already written, to arrive."""


class Supervisor:
    """Serves everybody of one job, and does what is due."""

    def __init__(
        self,
        context: RunContext,
        selector: selectors.BaseSelector,
        server: AgentServer,
        mpirun: MpirunProcess,
    ) -> None:
        """mpirun has been started, nobody has reported yet."""
        self.job = RunningJob(context, server, mpirun)
        self.losses = LossDetection(self.job)
        self._selector = selector
        self._stop_at: float | None = None
        """When ranks that were to print their stacks first are told to end."""
        self._mpirun_gone: float | None = None
        self._stdin = StdinForwarding(selector, server, context.stdin)
        self._flow = OutputFlow(context.listener, context.files, len(self.job.ranks), self.job.tell)
        self._messages = AgentMessages(self.job, self.losses, self._stdin, self._flow)
        self._signals = SignalActions(self.job, self._stdin, self._flow)

    # --- the loop -----------------------------------------------------------------------------------------

    def run(self, *signals: int | None) -> None:
        """Serve everybody until all is over. Raises LaunchError where the MPI did not start the plan."""
        for descriptor in signals:
            if descriptor is not None:
                self._selector.register(descriptor, selectors.EVENT_READ, "signals")
        while not self._over():
            for key, mask in self._selector.select(self._longest_wait()):
                self._serve(key, mask)
            self._tick(self.job.clock())
            self._signals.turned_at = time.monotonic()
        if self.job.refused:
            raise LaunchError(self.job.refused)

    def _serve(self, key: selectors.SelectorKey, mask: int) -> None:
        who, server = key.data, self.job.server
        if isinstance(who, AgentConnection):
            try:
                for kind, payload in server.serve(who, mask):
                    self._messages.frame(who, kind, payload)
            except protocol.ProtocolError:
                server.drop(who)  # it holds our token, and is none of the ranks that were planned
            if server.lost(who):
                self._messages.lost(who)
        elif isinstance(who, MpirunProcess):
            who.serve(key.fd)
        elif isinstance(who, AgentServer):
            who.accept()
        elif isinstance(who, StdinForwarding):
            who.serve()
        else:
            for number in os.read(key.fd, 64):
                self._signals.serve(number)

    def _longest_wait(self) -> float:
        """Seconds to wait at most before looking at the clock again."""
        job = self.job
        waits = (job.said_bye, job.stopping_until, self._stop_at)
        near = job.notices.new or any(when is not None for when in waits)
        if self._flow.held or (job.mpirun.ended and self._flow.waiting):
            return 0.005
        return 0.05 if near or job.mpirun.exit_code is not None else 0.25

    def _over(self) -> bool:
        """True when mpirun has ended, and every agent that ever reported has been heard to its last word."""
        job = self.job
        return job.mpirun.ended and job.agents_are_gone and self._flow.is_over(job.clock(), job.cause)

    def _tick(self, now: float) -> None:
        """Do what is due."""
        job = self.job
        job.mpirun.watch()
        self._flow.tick()
        job.notices.tick(now)
        if text := job.server.tick():
            job.listener.warning(text)
        for text in job.context.warnings():
            job.listener.warning(text)
        self.losses.watch(now)
        if job.cause is None:
            if job.started_at is None:
                self._starting(now)
            else:
                self._running(now, job.started_at)
        if self._stop_at is not None and (now > self._stop_at or self._stacks_are_here(now)):
            self._stop_at = None
            job.send_stop(job.options.grace)
        if job.remind_at is not None and now > job.remind_at:
            job.remind_at = None
            self._remind()
        if job.stopping_until is not None and now > job.stopping_until:
            job.stopping_until = None
            job.mpirun.stop(hard=True)
            self._messages.give_up(job.ranks)  # they had to have had their last word
        self._leaving(now)

    def _starting(self, now: float) -> None:
        job, patience = self.job, self.job.options.start_timeout
        if not job.mpirun.ended and now <= patience:
            return
        missing = [state for state in job.ranks if state.hello is None]
        if job.mpirun.ended and missing:
            self.losses.mpi_ended(now)
            if self.losses.root_cause() is not None:
                job.stop(Cause(why=Why.LOST, at=now))
            else:
                job.refuse(mpirun_failed(job.mpirun, job.context.mpi, missing))
        elif now > patience:
            job.refuse(never_reported(job.mpirun, job.options, missing))

    def _running(self, now: float, started_at: float) -> None:
        job, timeout = self.job, self.job.options.timeout
        if job.mpirun.exit_code is not None and self._mpirun_gone is None:
            self._mpirun_gone = now
        ranks_are_over = all(state.done for state in job.ranks)
        if self._mpirun_gone is not None and now > self._mpirun_gone + ORPHAN_SECONDS and not ranks_are_over:
            # By then the agents, told by the kernel, have ended their ranks and said so; some did not.
            self.losses.mpi_ended(self._mpirun_gone)
            job.stop(Cause(why=Why.MPI, at=now, text="mpirun ended while ranks were running"))
        elif timeout is not None and now - started_at + job.context.earlier > timeout:
            text = f"the job was stopped after {timeout:g} s (--timeout)"
            job.cause = Cause(why=Why.TIMEOUT, at=now, text=text)
            job.show_stacks()
            self._stop_at = now + STACK_SECONDS
        if job.warn_at is not None and now > job.warn_at:
            job.warn_at = None
            self._warn_of_early_end()

    def _leaving(self, now: float) -> None:
        """When all have ended, let the agents go, then mpirun."""
        job = self.job
        if job.said_bye is None:
            begun = job.started_at is not None or job.cause is not None
            if begun and job.agents_are_gone:
                job.said_bye = now
                for state in job.ranks:
                    job.tell(state, do="bye")
                if job.cause is not None and not all(state.hello for state in job.ranks):
                    job.mpirun.stop()
        elif job.mpirun.exit_code is None:
            lost = bool(self.losses.losses)
            told = job.cause is not None and job.cause.why in (Why.SIGNAL, Why.TIMEOUT)
            if now > job.said_bye + (0.5 if lost else TOLD_SECONDS if told else MPIRUN_SECONDS):
                job.mpirun.stop(hard=lost)  # one that waits for a lost host has nothing to tell
                job.said_bye = now

    # --- who is waited for --------------------------------------------------------------------------------

    def _stacks_are_here(self, now: float) -> bool:
        if any(state.stacks_requested and not state.done for state in self.job.ranks):
            return False
        self._stop_at = min(self._stop_at or now, now + STACK_PAUSE)
        return False

    def _remind(self) -> None:
        """Say for whom the end of a stopped job waits."""
        late = [state.name for state in self.job.ranks if state.connection is not None and not state.done]
        if late:
            self.job.listener.warning(
                f"waiting for {listed(late)} to end, at most {self.job.options.grace:g} s (--grace); "
                f"Ctrl-C ends {'it' if len(late) == 1 else 'them'} at once"
            )

    def _warn_of_early_end(self) -> None:
        over = [state.rank for state in self.job.ranks if state.end is not None]
        running = [state.name for state in self.job.ranks if state.end is None]
        if over and running:
            self.job.listener.warning(
                f"{ranks_named(over)} ended with exit code 0 {self.job.context.early:g} s ago, "
                f"still running: {listed(running)}. "
                f"If these wait for {'it' if len(over) == 1 else 'them'}, they wait for ever"
            )

"""What each signal to the launcher does to a running job: end it, suspend it, tell its ranks, show stacks."""

from __future__ import annotations

import signal
import time

from ringleader.launch import signals
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.supervision.output_flow import OutputFlow
from ringleader.launch.supervision.running_job import RunningJob
from ringleader.launch.supervision.stdin_forwarding import StdinForwarding

FLUSH_SECONDS = 1.0
"""For words to the agents to leave this process before it stops."""


class SignalActions:
    """Serves the signals of ``launch.signals``, one after the other."""

    def __init__(self, job: RunningJob, stdin: StdinForwarding, flow: OutputFlow) -> None:
        """Everything that changes belongs to these."""
        self.job = job
        self._stdin = stdin
        self._flow = flow
        self.turned_at = time.monotonic()
        """When the loop last came round: from then on a process that SIGSTOP stopped did not run."""

    def serve(self, number: int) -> None:
        """Serve a signal to the launcher; those that end the job do so at once a second time."""
        if number == signal.SIGQUIT:
            self.job.show_stacks()
        elif number in signals.FORWARDED:
            self._forward(number)
        elif number == signal.SIGTSTP:
            self._suspend()
        elif number == signal.SIGCONT:
            self._continued()
        elif self.job.cause is None:
            self.job.interrupted = True
            self.job.stop(Cause(why=Why.SIGNAL, at=self.job.clock(), number=number))
        elif number in (signal.SIGINT, signal.SIGTERM):
            self.job.interrupted = True
            self._flow.hurry()
            self.job.send_stop(0.0)

    def _forward(self, number: int) -> None:
        """Pass a signal on to the command of every rank that runs."""
        told = [state for state in self.job.ranks if state.running and state.end is None]
        for state in told:
            self.job.tell(state, do="signal", number=number)
        if not told:
            name = signal.Signals(number).name
            self.job.listener.warning(f"{name} came while no rank ran: nobody was told")

    def _suspend(self) -> None:
        """Stop all ranks on all hosts, then ourselves; when we are continued, they are too.

        Ranks that are told to end are left alone: their agents count how long they may take.
        """
        if self.job.cause is None:
            for state in self.job.ranks:
                self.job.tell(state, do="pause")
            self.job.server.flush_all(FLUSH_SECONDS)
        signals.suspend_ourselves()
        self._continued()
        for state in self.job.ranks:
            self.job.tell(state, do="continue")

    def _continued(self) -> None:
        """After a time in which we did not run: it counts for no deadline."""
        now = time.monotonic()
        self.job.began += now - self.turned_at
        self.turned_at = now
        self._stdin.continued()

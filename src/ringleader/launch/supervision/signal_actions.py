"""Signals that do not end a job: those passed on to the ranks, and those that stop and continue it."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from ringleader.launch import signals

if TYPE_CHECKING:
    from ringleader.launch.supervision.supervisor import Supervisor

FLUSH_SECONDS = 1.0
"""For words to the agents to leave this process before it stops."""


class JobControl:
    """What Ctrl-Z, ``fg``, SIGUSR1 and SIGUSR2 do to a job."""

    def __init__(self, supervisor: Supervisor) -> None:
        """Everything that changes belongs to ``supervisor``."""
        self.run = supervisor
        self.turned_at = time.monotonic()
        """When the loop last came round: from then on a process that SIGSTOP stopped did not run."""

    def forward(self, number: int) -> None:
        """Pass a signal on to the command of every rank that runs."""
        told = [state for state in self.run.ranks if state.running and state.end is None]
        for state in told:
            self.run.tell(state, do="signal", number=number)
        if not told:
            name = signal.Signals(number).name
            self.run.listener.warning(f"{name} came while no rank ran: nobody was told")

    def suspend(self) -> None:
        """Stop all ranks on all hosts, then ourselves; when we are continued, they are too.

        Ranks that are told to end are left alone: their agents count how long they may take.
        """
        if self.run.cause is None:
            for state in self.run.ranks:
                self.run.tell(state, do="pause")
            self.run.control.flush_all(FLUSH_SECONDS)
        signals.suspend_ourselves()
        self.continued()
        for state in self.run.ranks:
            self.run.tell(state, do="continue")

    def continued(self) -> None:
        """After a time in which we did not run: it counts for no deadline."""
        now = time.monotonic()
        self.run.began += now - self.turned_at
        self.turned_at = now
        self.run.feed.continued()

"""The state of a job whose agents have been started, and what everybody who changes it may do with it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringleader.errors import Fault
from ringleader.job import Job, Mpi
from ringleader.launch.exit_reason import Cause, Why
from ringleader.launch.mpirun.mpirun_output import aborts_in
from ringleader.launch.mpirun.mpirun_process import MpirunProcess
from ringleader.launch.outcome import Listener, RankEnd
from ringleader.launch.rank_output.output_files import OutputFiles
from ringleader.launch.supervision.agent_connections import AgentServer
from ringleader.launch.supervision.end_notices import EndNotices
from ringleader.launch.supervision.rank_state import RankState
from ringleader.rank_placement import Plan
from ringleader.ranks import protocol
from ringleader.render.rank_environment import FreePorts
from ringleader.value_class import dataclass

LOST_SECONDS = 8.0
"""After mpirun's end, or after the grace of ranks that were told to stop: for the agents' last words."""
REMIND_SECONDS = 3.0
"""After an order to stop: until the user hears whom it still waits for."""


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """What a run needs and does not change."""

    job: Job
    plan: Plan
    mpi: Mpi
    listener: Listener
    start: Callable[[int, FreePorts], Mapping[str, Any]]
    """(rank, free ports on rank 0's host) → the ``start`` message."""
    payload: bytes | None
    """The pickled call of ``ringleader.run``."""
    files: OutputFiles | None
    stdin: int | None
    """Descriptor that rank 0 reads; ``None``: it reads nothing."""
    sessions_lost: Callable[[], Sequence[str]]
    """() → hosts to which the ssh connection ended since the last call."""
    warnings: Callable[[], Sequence[str]]
    """() → what the user should know of other threads since the last call."""
    earlier: float = 0.0
    """Seconds that the job's ranks had been running, or starting again, before this start; for --timeout."""
    early: float
    """Seconds after which a rank that ended while others run is worth a warning."""


class RunningJob:
    """One job from mpirun's start to the end of all its ranks."""

    def __init__(self, context: RunContext, server: AgentServer, mpirun: MpirunProcess) -> None:
        """mpirun has been started, nobody has reported yet."""
        self.context = context
        self.options = context.job
        self.listener = context.listener
        self.server = server
        self.mpirun = mpirun
        plan = context.plan
        self.ranks = [RankState(place=place, host=plan.hosts[place.host_index]) for place in plan.ranks]
        self.notices = EndNotices(self.ranks, self.tell)
        self.began = time.monotonic()
        self.started_at: float | None = None
        """When the ranks were told to start; like all times here in seconds from ``began``."""
        self.cause: Cause | None = None
        self.interrupted = False
        """Somebody told the job to end, be it that it was failing already."""
        self.refused: list[Fault] = []
        self.stopping_until: float | None = None
        self.remind_at: float | None = None
        self.warn_at: float | None = None
        """When to say that a rank has ended while others run."""
        self.said_bye: float | None = None

    def clock(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.began

    @property
    def agents_are_gone(self) -> bool:
        """True when every agent that ever reported has had its last word."""
        return all(state.done or state.connection is None for state in self.ranks)

    # --- to the agents ------------------------------------------------------------------------------------

    def tell(self, state: RankState, **words: Any) -> None:
        """Send a message to a rank's agent, if it has one."""
        self.send(state, protocol.message(**words))

    def send(self, state: RankState, data: bytes) -> None:
        """Send bytes to a rank's agent, if it has one."""
        if state.connection is not None:
            self.server.send(state.connection, data)

    def stop(self, cause: Cause) -> None:
        """Stop all ranks, for the first cause that came up."""
        if self.cause is None:
            self.cause = cause
            self.send_stop(self.options.grace)

    def refuse(self, *faults: Fault) -> None:
        """Stop everything: what runs is not what was planned."""
        self.refused.extend(faults)
        self.stop(Cause(why=Why.REFUSED, at=self.clock()))

    def send_stop(self, grace: float) -> None:
        """Tell every agent to end its rank, SIGKILL after ``grace`` seconds."""
        until = self.clock() + grace + LOST_SECONDS
        self.stopping_until = until if self.stopping_until is None else min(until, self.stopping_until)
        self.remind_at = self.clock() + REMIND_SECONDS if grace > 2 * REMIND_SECONDS else None
        for state in self.ranks:
            self.tell(state, do="stop", grace=grace)

    def show_stacks(self) -> None:
        """Have every rank print its Python stacks."""
        for state in self.ranks:
            if state.running and state.end is None:
                state.stacks_requested = True
                self.tell(state, do="stacks")

    # --- how it ended -------------------------------------------------------------------------------------

    def ends(self) -> tuple[RankEnd, ...]:
        """Return how each rank ended, by rank."""
        stopped = "ringleader" if self.cause is not None else ""
        return tuple(
            state.end or self.unknown_end(state, "never started", stopped=stopped) for state in self.ranks
        )

    def aborts(self) -> dict[int, int]:
        """Return rank → the code it gave MPI_Abort, as the ranks or mpirun told."""
        told = {state.rank: state.abort_code for state in self.ranks if state.abort_code is not None}
        return told | aborts_in(self.mpirun.output())

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
        return self.context.files.path(rank, "stderr") if self.context.files is not None else ""

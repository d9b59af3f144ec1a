"""What each rank runs where perftest or ucx_perftest measures: argv[1] is its ``ProgramPlan`` as JSON.

Of each pair one starts the server and tells the other its port by MPI; the other is the client. Answers:

context    what is known of this rank's host
refused    "ib_write_bw is not installed"
turn       3                                    a round begins
output     {"source": 0, "target": 1, "size": 65536, "text": …}     of a client; "error" where it failed
silence    {"partner": 2, "during": "ib_write_bw", "seconds": …}
"""

from __future__ import annotations

import json
import shutil
import sys
import time

from ringleader.agents.training_progress import context_of
from ringleader.bench.fabric_programs import (
    LISTEN_SECONDS,
    RdmaPort,
    active_port,
    environment_of,
    run_to_end,
    serve,
)
from ringleader.bench.joint_calls import any_rank_says, end_mpi
from ringleader.bench.peer_messages import PeerMessages
from ringleader.bench.point_to_point import SilentPartnerError
from ringleader.bench.program_commands import PERFTEST, ProgramPlan, ProgramRun, command
from ringleader.fabric.facts import from_document
from ringleader.launch.rank_answer import send

START_SECONDS = 20.0
"""Between the starts of two ranks, at most."""


def why_not(program: str, path: str, device: RdmaPort | None) -> str:
    """Return why a program cannot run on this host; empty: it can."""
    if shutil.which(path) is None:
        return f"{path} is not installed"
    if program in PERFTEST and device is None:
        return f"there is no RDMA device with an active port, and {program} needs one"
    return ""


class ProgramRounds:
    """The rounds of one rank."""

    def __init__(self, plan: ProgramPlan, messages: PeerMessages, rank: int, device: RdmaPort | None) -> None:
        """``rank``: this one's number."""
        self._plan, self._messages, self._rank, self._device = plan, messages, rank, device
        self._address = {int(number): address for number, address in plan.addresses}
        self._turn = 0

    def run(self, began: float) -> None:
        """Do all rounds, the first from ``began`` (monotonic clock)."""
        for number, pairs in enumerate(self._plan.rounds):
            mine = next((pair for pair in pairs if self._rank in pair), None)
            if mine is not None:
                send("turn", number + 1)
                partner = mine[1] if mine[0] == self._rank else mine[0]
                self._pair(mine[0], mine[1], partner, began + number * self._plan.round_seconds)
            self._turn = (number + 1) * len(self._plan.runs)

    def _pair(self, first: int, second: int, partner: int, began: float) -> None:
        end = began
        for run in self._plan.runs:
            end += self._plan.run_seconds
            server, client = (first, second) if run.backwards else (second, first)
            try:
                if self._rank == server:
                    self._serve(run, partner, end)
                else:
                    self._measure(run, partner, client, server, end)
            except SilentPartnerError as error:
                send("silence", {"partner": partner, "during": run.test, "seconds": error.seconds})
                return
            self._turn += 1

    def _serve(self, run: ProgramRun, partner: int, end: float) -> None:
        """Listen, tell the port, wait for the end."""
        with serve(
            lambda port: command(self._plan.path, run, port, self._device),
            environ=environment_of(self._plan.program, self._device),
            seconds=LISTEN_SECONDS * self._plan.patience,
        ) as started:
            self._messages.exchange(partner, self._turn, started.port, end)
            self._messages.exchange(partner, self._turn, 0, end, again=True)
            if started.error:
                told = {"source": partner, "target": self._rank, "size": run.sizes[0]}
                send("output", {**told, "test": run.test, "error": started.error})

    def _measure(self, run: ProgramRun, partner: int, client: int, server: int, end: float) -> None:
        """Connect, and tell what was printed."""
        port = self._messages.exchange(partner, self._turn, 0, end)
        if port:
            left = max(1.0, end - 1.0 - time.monotonic())
            text, error = run_to_end(
                command(self._plan.path, run, port, self._device, self._address[partner]),
                environ=environment_of(self._plan.program, self._device),
                deadline=left,
            )
            told = {"source": client, "target": server, "size": run.sizes[0], "test": run.test}
            send("output", {**told, "error": error} if error else {**told, "text": text})
        self._messages.exchange(partner, self._turn, 0, end, again=True)


def main() -> None:
    """Measure what the plan says."""
    plan = from_document(ProgramPlan, json.loads(sys.argv[1]))
    send("context", context_of())
    device = active_port()
    reason = why_not(plan.program, plan.path, device)
    if reason:
        send("refused", reason)
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    start = START_SECONDS * plan.patience
    if any_rank_says(world, bool(reason), start):  # nobody waits for a program that is not there
        end_mpi()
        return
    ProgramRounds(plan, PeerMessages(world), world.rank, device).run(time.monotonic() + start)
    end_mpi()


if __name__ == "__main__":
    main()

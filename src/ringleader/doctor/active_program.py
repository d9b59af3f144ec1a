"""What each rank of an active test runs: argv[1] is its ``ActivePlan`` as JSON, answers go to the launcher.

speed      {"kernel_seconds": …, "kernel_runs": …, "copy_rate": …}; again with "gpus", "gpu_note"
host       {"machine": …, "programs": […], "rdma_device": …}
turn       3                                    a round begins (or a run of a program)
rate       {"target": 2, "rate": …, "lowest": …, "highest": …, "message_bytes": …}
latency    {"partner": 2, "seconds": …, "round_trips": …}
silence    {"partner": 2, "during": "bandwidth", "seconds": …}
program    a ``PairRate`` or ``PairLatency`` of a program of others, or why there is none
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from dataclasses import asdict
from typing import Any

from ringleader.agents import hardware
from ringleader.agents.training_progress import machine_of
from ringleader.bench.fabric_programs import available, run_client, run_server
from ringleader.bench.joint_calls import end_mpi
from ringleader.bench.peer_messages import PeerMessages
from ringleader.bench.point_to_point import SilentPartnerError
from ringleader.bench.rank_speed import copy_bytes, copy_rate, gpu_copies, kernel_times
from ringleader.doctor.active_plan import LATENCY_PART, ActivePlan, ProgramRun
from ringleader.fabric.active.measurements import GpuCopy
from ringleader.fabric.facts import from_document
from ringleader.launch.rank_answer import send

START_SECONDS = 20.0
"""Between the starts of two ranks, at most: so much longer than a round's own time its end is for a partner
who comes late. Ranks do not meet in a barrier: a barrier hangs where two of them cannot reach each other."""


def measure_speed(seconds: float, ranks: int) -> dict[str, Any]:
    """Return how fast this rank computes and copies; ``ranks``: on this host, all at once."""
    times = kernel_times(seconds)
    return {
        "kernel_seconds": statistics.median(times),
        "kernel_runs": len(times),
        "copy_rate": copy_rate(seconds, size=copy_bytes(ranks)),
    }


def measure_gpus(seconds: float) -> dict[str, Any]:
    """Return how fast this rank copies to and from its GPUs, or why that is not known."""
    gpus: tuple[GpuCopy, ...] = ()
    note = ""
    try:
        gpus = gpu_copies(seconds / 4, devices=hardware.gpus(os.environ))
    except (ImportError, RuntimeError) as error:
        note = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return {"gpus": [asdict(one) for one in gpus], "gpu_note": note}


class Rounds:
    """The rounds of one rank; every measurement is told when it is made."""

    def __init__(self, plan: ActivePlan, messages: PeerMessages, rank: int) -> None:
        """``rank``: this one's number."""
        self._plan, self._messages, self._rank = plan, messages, rank

    def run(self, began: float) -> float:
        """Do all rounds, the first from ``began``; return when the last ends at most (monotonic clock).

        A round's end is fixed from the beginning: who waited for a silent partner is not late for the next.
        """
        end = began
        for turn, pairs in enumerate(self._plan.rounds):
            end += self._plan.round_seconds
            mine = next((pair for pair in pairs if self._rank in pair), None)
            if mine is None:
                continue
            send("turn", turn + 1)
            first = mine[0] == self._rank
            partner = mine[1] if first else mine[0]
            try:
                self._pair(partner, turn, first, end)
            except SilentPartnerError as error:
                told = {"partner": partner, "during": error.during, "seconds": error.seconds}
                send("silence", told)
        return end

    def _pair(self, partner: int, turn: int, first: bool, deadline: float) -> None:
        self._messages.meet(partner, turn, deadline)
        if first:
            self._send(partner, turn, deadline)
            self._messages.receive(partner, turn, deadline=deadline)
            seconds = LATENCY_PART * self._plan.seconds
            found = self._messages.ping(partner, turn, seconds=seconds, deadline=deadline)
            told = {"partner": partner, "seconds": found.median, "round_trips": found.round_trips}
            send("latency", told)
        else:
            self._messages.receive(partner, turn, deadline=deadline)
            self._send(partner, turn, deadline)
            self._messages.pong(partner, turn, deadline=deadline)

    def _send(self, partner: int, turn: int, deadline: float) -> None:
        found = self._messages.send(partner, turn, seconds=self._plan.seconds, deadline=deadline)
        send("rate", {"target": partner, **asdict(found)})


def run_programs(plan: ActivePlan, messages: PeerMessages, rank: int, began: float) -> float:
    """Do the runs of programs of others; return when the last of them ends at most."""
    end = began
    for number, run in enumerate(plan.runs):
        end += plan.run_seconds
        if rank not in (run.server, run.client):
            continue
        send("turn", number + 1)
        try:
            _run_program(plan, run, messages, number + len(plan.rounds), server=rank == run.server, end=end)
        except SilentPartnerError as error:
            told = {"partner": error.partner, "during": run.program, "seconds": error.seconds}
            send("silence", told)
    return end


def _run_program(
    plan: ActivePlan, run: ProgramRun, messages: PeerMessages, turn: int, *, server: bool, end: float
) -> None:
    """Server: listen, tell the port, wait for the end. Client: connect, and tell what was measured."""
    seconds = plan.program_seconds
    if server:
        with run_server(run.program, seconds=seconds) as started:
            messages.exchange(run.client, turn, started.port, end)
            messages.exchange(run.client, turn, 0, end, again=True)  # the client has ended
            if started.error:
                send("program", {"program": run.program, "client": run.client, "error": started.error})
        return
    port = messages.exchange(run.server, turn, 0, end)
    if port:
        left = max(1.0, end - 1.0 - time.monotonic())
        found = run_client(run.program, address=run.address, port=port, seconds=seconds, deadline=left)
        send("program", {"program": run.program, "server": run.server, **found})
    messages.exchange(run.server, turn, 0, end, again=True)


def main() -> None:
    """Measure what the plan says."""
    plan = from_document(ActivePlan, json.loads(sys.argv[1]))
    send("host", {"machine": machine_of(), **available()})
    from mpi4py import MPI

    messages = PeerMessages(MPI.COMM_WORLD)
    rank = MPI.COMM_WORLD.rank
    speed: dict[str, Any] = {}
    if plan.speed_seconds:
        speed = measure_speed(plan.speed_seconds, plan.ranks_per_host)
        send("speed", speed)
    end = Rounds(plan, messages, rank).run(time.monotonic() + START_SECONDS)
    run_programs(plan, messages, rank, end)
    if speed:  # last: no partner waits while PyTorch is imported
        send("speed", {**speed, **measure_gpus(plan.speed_seconds)})
    end_mpi()


if __name__ == "__main__":
    main()

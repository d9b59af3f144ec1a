"""What each rank of a point-to-point measurement runs: argv[1] is its ``PairPlan`` as JSON.

Answers to the launcher:

context    what is known of this rank's host (``ranks.training_progress.context_of``)
device     "NVIDIA H200"                        of a rank whose messages lie in GPU memory
refused    "PyTorch finds no GPU"               why this rank cannot measure what was asked for
way        "nccl"                               where messages go by NCCL, not by MPI
turn       3                                    a round begins
size       {"target": 2, "size": …, "latency": …, "rate": …, "back_rate": …, …}
left_out   {"target": 2, "sizes": […]}          what would have taken longer than the pair's time
silence    {"partner": 2, "during": "bandwidth", "seconds": …}
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from ringleader.agents.training_progress import context_of
from ringleader.bench.gpu_memory import GpuMemory, NoGpuMemoryError, gpu_memory
from ringleader.bench.joint_calls import any_rank_says, end_mpi
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_sweep import PairSweep
from ringleader.bench.point_to_point import SilentPartnerError
from ringleader.fabric.facts import from_document
from ringleader.launch.rank_answer import send

START_SECONDS = 20.0
"""Between the starts of two ranks, at most: the first round is so much longer."""
LOOK_SECONDS = 0.002
"""Between two looks of a rank that waits for the round of others."""


class Rounds:
    """The rounds of one rank; every size is told when it is measured."""

    def __init__(self, plan: PairPlan, sweep: PairSweep, world: object, rank: int) -> None:
        """``rank``: this one's number in ``world``."""
        self._plan, self._sweep, self._world, self._rank = plan, sweep, world, rank
        self._in_step = plan.one_at_a_time

    def run(self, began: float) -> None:
        """Do all rounds, the first from ``began`` (monotonic clock)."""
        end = began
        for turn, pairs in enumerate(self._plan.rounds):
            end += self._plan.round_seconds
            if self._in_step and not self._all_are_there(end):
                self._in_step = False  # somebody is stuck: the deadlines of rounds are left
            mine = next((pair for pair in pairs if self._rank in pair), None)
            if mine is None:
                continue
            send("turn", turn + 1)
            partner = mine[1] if mine[0] == self._rank else mine[0]
            try:
                self._pair(partner, turn, mine[0] == self._rank, end)
            except SilentPartnerError as error:
                send("silence", {"partner": partner, "during": error.during, "seconds": error.seconds})
            except RuntimeError as error:  # NCCL's, as for two ranks that share a GPU
                why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                told = {"source": self._rank, "target": partner, "test": self._plan.memory}
                send("output", {**told, "error": why})

    def _pair(self, partner: int, turn: int, leads: bool, deadline: float) -> None:
        self._sweep.meet(partner, turn, deadline)
        if not leads:
            self._sweep.follow(partner, turn, deadline=deadline)
            return
        left = self._sweep.lead(
            partner,
            turn,
            deadline=deadline,
            tell=lambda found: send("size", {"target": partner, **found}),
        )
        if left:
            send("left_out", {"target": partner, "sizes": list(left)})

    def _all_are_there(self, deadline: float) -> bool:
        """Wait until every rank has ended the round before, but no longer than a round takes."""
        request = self._world.Ibarrier()  # type: ignore[attr-defined]
        while not request.Test():
            if time.monotonic() > deadline:
                return False
            time.sleep(LOOK_SECONDS)
        return True


def main() -> None:
    """Measure what the plan says."""
    plan = from_document(PairPlan, json.loads(sys.argv[1]))
    send("context", context_of())
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    memory, reason = memory_of(plan)
    if reason:
        send("refused", reason)
    # Ranks that cannot measure are not waited for, one pair after the other.
    if not any_rank_says(world, bool(reason), START_SECONDS):
        sweep = sweep_of(plan, world, memory)
        Rounds(plan, sweep, world, world.rank).run(time.monotonic() + START_SECONDS)
    end_mpi()


def memory_of(plan: PairPlan) -> tuple[GpuMemory | None, str]:
    """Return the GPU memory that was asked for, and why this rank has none; ``None``: host memory."""
    if plan.memory == "host":
        return None, ""
    try:
        memory = gpu_memory()
    except NoGpuMemoryError as error:
        return None, str(error)
    send("device", memory.device)
    return memory, ""


def sweep_of(plan: PairPlan, world: Any, memory: GpuMemory | None) -> PairSweep:
    """Return what measures: MPI, or for GPU memory that not every rank's MPI takes, NCCL."""
    if memory is None:
        return PairSweep(world, plan)
    if not any_rank_says(world, not memory.mpi_takes_it, START_SECONDS):
        return PairSweep(world, plan, allocate=memory.allocate)
    import torch

    from ringleader.bench.group_sweep import GroupSweep, nccl_channels

    send("way", "nccl")
    channels = nccl_channels(torch.device("cuda", memory.index), world.rank)
    return GroupSweep(world, plan, allocate=memory.allocate, open_channel=channels)


if __name__ == "__main__":
    main()

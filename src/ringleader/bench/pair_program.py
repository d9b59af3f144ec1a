"""What each rank of a point-to-point measurement runs: argv[1] is its ``PairPlan`` as JSON.

Two ranks of a pair exchange our own messages (``pair_sweep``, ``gpu_sweep``), or one starts the server of
perftest or ucx_perftest and gives the other its port by MPI; that is the client (``fabric_programs``).
Answers to the launcher:

context    what is known of this rank's host (``agents.training_progress.context_of``)
device     "NVIDIA H200"                        of a rank whose messages are in GPU memory
refused    "PyTorch finds no GPU"               why this rank cannot measure what was asked for
way        "nccl"                               where messages go by NCCL, not by MPI
turn       3                                    a round begins
size       {"target": 2, "size": …, "latency": …, "rate": …, "back_rate": …, …}
left_out   {"target": 2, "sizes": […]}          what would have taken longer than the pair's time
silence    {"partner": 2, "during": "bandwidth", "seconds": …}
output     {"source": 0, "target": 1, "size": 65536, "test": …, "text": …}     of a client, or its "error"
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

from ringleader.agents.training_progress import context_of
from ringleader.bench.fabric_programs import LISTEN_SECONDS, HostPrograms, run_to_end, serve
from ringleader.bench.gpu_sweep import GpuSweep, NoGpuMemoryError, gpu_memory, nccl_channels
from ringleader.bench.pair_plan import PairPlan, ProgramRun
from ringleader.bench.pair_sweep import Allocate, PairSweep, buffers, host_memory
from ringleader.bench.peer import Peer, SilentPartnerError, abandon, any_rank_says, end_mpi, ends_within
from ringleader.bench.program_commands import command
from ringleader.dataclass_json import from_document
from ringleader.launch.rank_answer import send

START_SECONDS = 20.0
"""Between the starts of two ranks, at most: the first round is so much longer."""

Pair = Callable[[tuple[int, int], int, int, float], None]
"""Measures between the pair's first and second rank: also takes the partner, the round and its deadline."""


class Rounds:
    """The rounds of one rank; everything is sent when it is measured."""

    def __init__(self, plan: PairPlan, world: Any, measure: Pair) -> None:
        """``measure``: one pair of a round; ``world``: an mpi4py communicator."""
        self._plan, self._world, self._rank, self._measure = plan, world, world.rank, measure

    def run(self, began: float) -> None:
        """Do all rounds, the first from ``began`` (monotonic clock).

        A round's end is fixed from the beginning: who waited for a silent partner is not late for the next.
        """
        end, in_step = began, self._plan.one_at_a_time
        for turn, pairs in enumerate(self._plan.rounds):
            end += self._plan.round_seconds
            # Where somebody is stuck, the deadlines of rounds are left.
            in_step = in_step and ends_within(self._world.Ibarrier(), end - time.monotonic())
            mine = next((pair for pair in pairs if self._rank in pair), None)
            if mine is None:
                continue
            send("turn", turn + 1)
            pair = mine[0], mine[1]
            partner = pair[1] if pair[0] == self._rank else pair[0]
            try:
                self._measure(pair, partner, turn, end)
            except SilentPartnerError as error:
                send("silence", {"partner": partner, "during": error.during, "seconds": error.seconds})
            except RuntimeError as error:  # NCCL's, as for two ranks that share a GPU
                why = (str(error).strip().splitlines() or [type(error).__name__])[-1]
                told = {"source": self._rank, "target": partner, "test": self._plan.memory}
                send("output", {**told, "error": why})


class Messages:
    """Pairs that exchange messages of our own."""

    def __init__(self, plan: PairPlan, world: Any) -> None:
        """Take the memory that was asked for. Raises NoGpuMemoryError."""
        self._plan, self._world = plan, world
        self._allocate: Allocate = host_memory
        self._gpu = gpu_memory() if plan.memory == "cuda" else None
        self._open_channel: Any = None
        if self._gpu is not None:
            self._allocate = self._gpu.allocate
            send("device", self._gpu.device)

    def begin(self, seconds: float) -> None:
        """Agree with all ranks on who sends: MPI, or for GPU memory that not every rank's MPI takes, NCCL."""
        if self._gpu is not None and any_rank_says(self._world, not self._gpu.mpi_takes_it, seconds):
            import torch

            send("way", "nccl")
            self._open_channel = nccl_channels(torch.device("cuda", self._gpu.index), self._world.rank)
        self._memory = buffers(self._plan, self._allocate)

    def measure(self, pair: tuple[int, int], partner: int, turn: int, deadline: float) -> None:
        """Measure one pair; the first of it leads."""
        peer = Peer(self._world, partner, turn, deadline)
        try:
            peer.exchange()
            self._sweep(peer, leads=pair[0] == self._world.rank)
        except SilentPartnerError:
            abandon(self._memory)  # what was started may still arrive in it
            self._memory = buffers(self._plan, self._allocate)
            raise

    def _sweep(self, peer: Peer, *, leads: bool) -> None:
        sweep = PairSweep(peer, self._plan, self._memory, leads=leads)
        if self._open_channel is not None:
            sweep = GpuSweep(
                *(peer, self._plan, self._memory),
                leads=leads,
                allocate=self._allocate,
                open_channel=self._open_channel,
            )
        if not leads:
            sweep.follow()
        elif left := sweep.lead(lambda found: send("size", {"target": peer.partner, **found})):
            send("left_out", {"target": peer.partner, "sizes": list(left)})


class Programs:
    """Pairs that run perftest or ucx_perftest."""

    def __init__(self, plan: PairPlan, world: Any, here: HostPrograms) -> None:
        """``here``: what they find on this host."""
        self._plan, self._world, self._here = plan, world, here
        self._address = {int(number): address for number, address in plan.addresses}

    def measure(self, pair: tuple[int, int], partner: int, turn: int, deadline: float) -> None:
        """Do all runs of a pair, in each of which the first is the client unless it goes backwards."""
        end = deadline - self._plan.round_seconds
        for number, run in enumerate(self._plan.runs):
            end += self._plan.run_seconds
            client, server = reversed(pair) if run.backwards else pair
            peer = Peer(self._world, partner, turn * len(self._plan.runs) + number, end)
            about = {"source": client, "target": server, "size": run.sizes[0], "test": run.test}
            try:
                (self._serve if self._world.rank == server else self._connect)(run, peer, about)
            except SilentPartnerError as error:
                raise SilentPartnerError(partner, run.test, error.seconds) from None

    def _serve(self, run: ProgramRun, peer: Peer, about: dict[str, Any]) -> None:
        """Listen, tell the port, wait for the end."""
        with serve(
            lambda port: self._command(run, port),
            environ=self._here.environ(run),
            seconds=LISTEN_SECONDS * self._plan.patience,
        ) as started:
            peer.exchange(started.port)
            peer.exchange(again=True)
            if started.error:
                send("output", {**about, "error": started.error})

    def _connect(self, run: ProgramRun, peer: Peer, about: dict[str, Any]) -> None:
        """Connect, and tell what was printed."""
        if port := peer.exchange():
            left = max(1.0, peer.deadline - 1.0 - time.monotonic())
            argv = self._command(run, port, self._address[peer.partner])
            text, error = run_to_end(argv, environ=self._here.environ(run), deadline=left)
            device = self._here.port(run)
            told = {**about, "device": device.name if device else ""}
            send("output", {**told, "error": error} if error else {**told, "text": text})
        peer.exchange(again=True)

    def _command(self, run: ProgramRun, port: int, address: str = "") -> tuple[str, ...]:
        here = self._here
        return command(here.path(run), run, port, here.port(run), address, here.gpu(run))


def main() -> None:
    """Measure what the plan says."""
    plan = from_document(PairPlan, json.loads(sys.argv[1]))
    send("context", context_of())
    from mpi4py import MPI

    world, start = MPI.COMM_WORLD, START_SECONDS * plan.patience
    here = HostPrograms(plan, rank=world.rank) if plan.runs else None
    takes_part = any(world.rank in pair for pairs in plan.rounds for pair in pairs)
    reason = here.why_not() if here and takes_part else ""
    messages = None
    if here is None:
        try:
            messages = Messages(plan, world)
        except NoGpuMemoryError as error:
            reason = str(error)
    if reason:
        send("refused", reason)
    # Ranks that cannot measure are not waited for, one pair after the other. Messages in host memory can
    # always be measured; there nothing is asked of all ranks, of which some may not reach each other.
    may_refuse = bool(plan.runs) or plan.memory == "cuda"
    if not (may_refuse and any_rank_says(world, bool(reason), start)):
        if messages is not None:
            messages.begin(start)
            Rounds(plan, world, messages.measure).run(time.monotonic() + start)
        elif here is not None:
            Rounds(plan, world, Programs(plan, world, here).measure).run(time.monotonic() + start)
    end_mpi()


if __name__ == "__main__":
    main()

"""What each rank of ``ringleader bench train`` runs: argv[1] is its ``TrainingPlan`` as JSON.

Answers to the launcher:

size       {"ranks": 4, "per_host": 2}           0: not the same on all hosts
faults     ["--data: … holds no …"]             why nothing is measured
arms       {"ringleader": "", "ddp-nccl": "NCCL needs a GPU for each rank"}       of rank 0
host       {"hostname": …, "cpu": …, "cores": …, "python": …, "torch": …, "machine": …, "transport": …,
            "device": "cpu", "threads": 1}
model      {"parameters": …}
round      {"arm": "ringleader", "repetition": 2}   begins; 0: warm-up
times      {"arm": …, "repetition": …, "times": a ``RankTimes``}
layers     [a ``LayerTime``, …]                  of rank 0
digests    {"ringleader": "8c1f…"}               of the weights, at the end
"""

from __future__ import annotations

import json
import sys
import time
from datetime import timedelta
from typing import Any

import torch

import ringleader.torch as hvd
from ringleader.agents.training_progress import context_of
from ringleader.bench.training.batches import Batches, open_batches
from ringleader.bench.training.data_folder import DataError
from ringleader.bench.training.training_plan import TrainingPlan, chosen_arms
from ringleader.bench.training.variants import TrainedVariant, missing_variants
from ringleader.dataclass_json import document, from_document
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.launch.rank_answer import send
from ringleader.measurements.training import ALONE, COUPLED, DDP_GLOO, DDP_NCCL, UNCOUPLED
from ringleader.metrics import in_round

LAYER_STEPS = 10
"""Steps in which layers are timed, at most."""
NAP = 0.001
"""Seconds between two looks of ranks that stand still: they must not take cores from the one that trains."""


class Ranks:
    """All ranks of the job."""

    def __init__(self, wait_seconds: float) -> None:
        """Make a communicator beside the engine's. Collective."""
        from mpi4py import MPI

        self._comm, self._wait = MPI.COMM_WORLD.Dup(), wait_seconds
        self.rank, self.size = self._comm.rank, self._comm.size

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks. Collective."""
        return self._comm.allgather(value)

    def stand_still(self) -> None:
        """Wait until all ranks come here, asleep. Ends the job where one of them does not come in time."""
        request, until = self._comm.Ibarrier(), time.monotonic() + self._wait
        while not request.Test():
            if time.monotonic() > until:
                sys.exit(
                    f"rank {self.rank} waited {self._wait:g} s for another to train alone; see --timeout"
                )
            time.sleep(NAP)


def device_of(plan: TrainingPlan, ranks: Ranks) -> tuple[torch.device, str]:
    """Return where this rank computes and what is wrong with that. Collective."""
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    everywhere = all(ranks.gather(count > 0))
    if plan.device == "cpu" or (plan.device == "auto" and not everywhere):
        what = "--precision: float16 is measured on GPUs only, and not every rank has one"
        return torch.device("cpu"), what if plan.precision == "float16" else ""
    if not count:
        return torch.device("cpu"), "--device: cuda, and PyTorch finds no GPU here"
    device = torch.device("cuda", hvd.local_rank() % count)
    torch.cuda.set_device(device)
    return device, ""


class Rounds:
    """The variants of this rank; in each round every one is trained."""

    def __init__(self, plan: TrainingPlan, ranks: Ranks, batches: Batches, device: torch.device) -> None:
        """Nothing is built yet."""
        self._plan, self._ranks, self._batches, self._device = plan, ranks, batches, device
        self.variants: dict[str, TrainedVariant] = {}

    def build(self, names: tuple[str, ...]) -> None:
        """Build the variants. Collective."""
        groups: dict[str, Any] = {}
        if {DDP_GLOO, DDP_NCCL} & set(names):
            wait = timedelta(seconds=self._plan.wait_seconds)
            size = self._ranks.size
            torch.distributed.init_process_group("gloo", rank=self._ranks.rank, world_size=size, timeout=wait)
            if DDP_NCCL in names:
                groups[DDP_NCCL] = torch.distributed.new_group(backend="nccl", timeout=wait)
        for name in names:
            if name != ALONE or self._ranks.rank == 0:
                own = (self._plan, self._batches, self._device, groups.get(name))
                self.variants[name] = TrainedVariant(name, *own)

    def measure(self, names: tuple[str, ...]) -> None:
        """Warm up, then make all repetitions. Collective."""
        for name in names:
            self._train(name, 0)
        for repetition in range(1, self._plan.repeats + 1):
            for name in in_round(names, repetition - 1):
                self._train(name, repetition)

    def _train(self, name: str, repetition: int) -> None:
        """Make as many steps as the plan says; the first one, in cold caches, does not count."""
        send("round", {"arm": name, "repetition": repetition})
        variant = self.variants.get(name)
        if variant is not None and (self._plan.warmup or repetition):
            variant.run(1 if repetition else self._plan.warmup)
        if name == ALONE:
            self._ranks.stand_still()  # nobody comes out of another variant while rank 0 is timed
        else:
            hvd.barrier()
        if repetition and variant is not None:
            times = variant.run(self._plan.steps)
            send("times", {"arm": name, "repetition": repetition, "times": document(times)})
        self._ranks.stand_still()

    def time_layers(self) -> None:
        """Time the layers on rank 0, where it has trained alone. Collective."""
        variant = self.variants.get(ALONE if self._ranks.size > 1 else UNCOUPLED)
        if variant is not None and self._ranks.rank == 0:
            send("layers", document(variant.layer_times(min(LAYER_STEPS, self._plan.steps))))
        self._ranks.stand_still()

    def digests(self) -> dict[str, str]:
        """Return digests of what coupled ranks have made of the weights."""
        return {name: one.digest() for name, one in self.variants.items() if name in COUPLED}


def prepare(plan: TrainingPlan, ranks: Ranks) -> tuple[torch.device, Batches, tuple[str, ...]] | None:
    """Return where this rank computes, what it trains on, and the variants; ``None`` where a rank cannot.

    Collective.
    """
    device, fault = device_of(plan, ranks)
    faults, batches = [fault] if fault else [], None
    try:
        batches = open_batches(plan, ranks.rank, ranks.size, device)
    except DataError as error:
        faults.append(f"--data: {error}")
    missing = {name: why for one in ranks.gather(missing_variants(device)) for name, why in one.items()}
    arms, wrong = chosen_arms(plan, ranks.size, missing)
    if ranks.rank == 0:
        faults += [f"{fault.where}: {fault.what}" for fault in wrong]
    send("faults", faults)
    if any(ranks.gather(faults)) or batches is None:
        return None
    if ranks.rank == 0:
        send("arms", arms)
    return device, batches, tuple(name for name, why in arms.items() if not why)


def run(plan: TrainingPlan) -> None:
    """Measure what the plan says."""
    hvd.init()
    ranks = Ranks(plan.wait_seconds)
    per_host = set(ranks.gather(hvd.local_size()))
    send("size", {"ranks": ranks.size, "per_host": per_host.pop() if len(per_host) == 1 else 0})
    ready = prepare(plan, ranks)
    if ready is None:
        return
    device, batches, names = ready
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    told = {"device": name, "threads": torch.get_num_threads()}
    send("host", {**context_of(), **told, "transport": str(PROCESS.get().engine.transport.name)})
    rounds = Rounds(plan, ranks, batches, device)
    rounds.build(names)
    weights = sum(p.numel() for p in next(iter(rounds.variants.values())).model.parameters())
    send("model", {"parameters": weights})
    rounds.measure(names)
    rounds.time_layers()
    send("digests", rounds.digests())
    ranks.stand_still()
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def main() -> None:
    """Run; data that cannot be read ends the job with a word, not with a traceback."""
    plan = from_document(TrainingPlan, json.loads(sys.argv[1]))
    try:
        run(plan)
    except DataError as error:
        send("faults", [f"--data: {error}"])
        sys.exit(str(error))
    hvd.shutdown()


if __name__ == "__main__":
    main()

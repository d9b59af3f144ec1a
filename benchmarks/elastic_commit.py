"""What a commit costs: ``ringleader run -n 2 --min-np 2 python benchmarks/elastic_commit.py``.

    elastic_commit.py [MEBIBYTES] [TIMES] [TENSORS]

A model of this many MiB (100) in this many tensors (50) is committed this many times (60), with a barrier
before each, as training has one in every step. In turns with it all ranks at once copy their share of the
bytes to memory of their own that exists, which no commit can be faster than. Then all make deep copies of the
model, which is what Horovod's commit makes. Rank 0 prints milliseconds: the median, the 90th percentile and,
of commits, the first one, which also takes the memory.
"""

from __future__ import annotations

import copy
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

import ringleader.torch as hvd
from _pairs import context, keep, verdict

WORDS = sys.argv[1:]
MEBIBYTES, TIMES, TENSORS = map(int, [*WORDS, *("100", "60", "50")[len(WORDS) :]])
MOST_MS = 15.0
"""Of a commit of 100 MiB by two ranks of a host."""


def seconds_of(act: Callable[[], Any]) -> float:
    """Return how long a call takes where all ranks begin it together."""
    hvd.barrier()
    start = time.perf_counter()
    act()
    return time.perf_counter() - start


def summary(seconds: list[float]) -> dict[str, float]:
    """Return milliseconds."""
    ordered = sorted(1e3 * one for one in seconds)
    return {"median_ms": statistics.median(ordered), "p90_ms": ordered[int(0.9 * len(ordered))]}


@hvd.elastic.run
def measure(state: Any) -> None:
    """Take turns, and print what each arm took."""
    model, share = state.model, list(state.model.parameters())[hvd.local_rank() :: hvd.local_size()]
    mine = [one.detach().clone() for one in share]

    def copied() -> None:
        for target, source in zip(mine, share, strict=True):
            target.copy_(source.detach())

    first = 1e3 * seconds_of(state.commit)
    for _ in range(3):  # both halves of the memory, and all else that is done once
        state.commit()
    found: dict[str, list[float]] = {"commit": [], "copy": []}
    for _ in range(TIMES):
        found["commit"].append(seconds_of(state.commit))
        found["copy"].append(seconds_of(copied))
    found["deep copy"] = [seconds_of(lambda: copy.deepcopy(model.state_dict())) for _ in range(10)]
    if hvd.rank() == 0:
        where = f"{MEBIBYTES} MiB in {TENSORS} tensors, {hvd.size()} rank(s), {hvd.local_size()} on this host"
        row = {name: summary(seconds) for name, seconds in found.items()}
        for name, one in row.items():
            print(f"{where}: {name} median {one['median_ms']:.1f} ms, p90 {one['p90_ms']:.1f} ms")
        print(f"first commit {first:.1f} ms")
        if (MEBIBYTES, TENSORS, hvd.local_size()) == (100, 50, 2):
            print(verdict("a commit of 100 MiB, ms", row["commit"]["median_ms"], MOST_MS, at_most=True))
            keep("elastic_commit", {"context": context(), "first_ms": first, **row})


hvd.init()
torch.manual_seed(0)
parts = [torch.randn(MEBIBYTES * (1 << 18) // TENSORS) for _ in range(TENSORS)]
measure(hvd.elastic.TorchState(torch.nn.ParameterList(parts), step=0))

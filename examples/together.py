"""What the ranks of the examples do together: share out samples, add up counts, agree on a fault."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import torch

import ringleader.torch as hvd


class ShardedBatches:
    """Batches of one rank out of global batches of ``batch_size * size`` samples.

    Over all ranks every sample comes exactly once per epoch, in an order that depends on the seed and the
    epoch alone, so that one rank with the whole global batch sees the same batches as N ranks with an Nth
    each. The last global batch is smaller; a rank's part of it may be empty (``drop_last`` leaves it out).
    """

    def __init__(
        self, *, samples: int, batch_size: int, rank: int, size: int, seed: int, drop_last: bool = False
    ) -> None:
        """Batches of ``batch_size`` per rank out of ``samples`` samples in all."""
        self.samples, self.rank, self.size, self.seed = samples, rank, size, seed
        self.global_batch = batch_size * size
        self.per_epoch = samples // self.global_batch if drop_last else -(-samples // self.global_batch)

    def epoch(self, epoch: int) -> Iterator[tuple[list[int], int]]:
        """Yield (this rank's indices, number of samples in the global batch) for each step of the epoch."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + epoch)
        order = torch.randperm(self.samples, generator=generator)
        for step in range(self.per_epoch):
            batch = order[step * self.global_batch : (step + 1) * self.global_batch]
            yield batch[self.rank :: self.size].tolist(), len(batch)


def total(*counts: float) -> list[float]:
    """Add up each count over all ranks, in float64."""
    return hvd.allreduce(torch.tensor(counts, dtype=torch.float64), name="total", op=hvd.Sum).tolist()


def stop_if_any(fault: object | None) -> None:
    """End all ranks with exit code 1 if one of them has a fault; only the lowest such rank tells it."""
    mine = hvd.rank() if fault else hvd.size()
    first = int(hvd.allreduce(torch.tensor(mine), name="fault", op=hvd.Min))
    if first == hvd.size():
        return
    if first == hvd.rank():
        print(f"{sys.argv[0]}: {fault}", file=sys.stderr, flush=True)
    hvd.barrier()  # otherwise a rank without a message might be the first to fail
    sys.exit(1)

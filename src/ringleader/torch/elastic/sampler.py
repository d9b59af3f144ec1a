"""A sampler that resumes within an epoch with any number of ranks. Path and names are Horovod's."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sized
from typing import Any

import torch.utils.data

from ringleader.adapters.basics import rank, size


class ElasticSampler(torch.utils.data.Sampler[int]):
    """Divides the indices that are left of an epoch among the ranks.

    Batch by batch the ranks together take the next indices of one order, so one number says what is done:
    how many of them. Put the sampler into the state, call `record_batch` after every batch, and `set_epoch`
    at the end of an epoch. Where the indices do not divide by the number of ranks, some come twice, so that
    all ranks have as many.
    """

    def __init__(self, dataset: Sized, shuffle: bool = True, seed: int = 0) -> None:
        """``seed`` is the same on all ranks, and so is the length of the dataset."""
        self.dataset = dataset
        self.shuffle = shuffle
        self.seed = seed
        self.epoch = 0
        self.processed_num = 0
        """Indices of the epoch that all ranks together are done with."""
        self.num_replicas = 0
        self.rank = 0
        self.remaining_indices: list[int] = []
        self.num_samples = 0
        self.total_size = 0
        self.reset()

    def set_epoch(self, epoch: int) -> None:
        """Begin an epoch, with another order where indices are shuffled; nothing of it is done.

        To be called at the end of the epoch before, so that one that was interrupted is not done again.
        """
        self.epoch = epoch
        self.processed_num = 0
        self.reset()

    def record_batch(self, batch_idx: int, batch_size: int) -> None:
        """Note that every rank is done with a batch of this many indices."""
        self.processed_num += batch_size * self.num_replicas

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was called."""
        self.epoch = state_dict["epoch"]
        self.processed_num = state_dict["processed_num"]
        self.reset()

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch and how much of it is done."""
        return {"epoch": self.epoch, "processed_num": self.processed_num}

    def reset(self) -> None:
        """Divide what is left of the epoch among the ranks as they are now."""
        self.num_replicas, self.rank = self.ranks()
        indices = list(range(len(self.dataset)))
        if self.shuffle:
            random.Random(self.seed + self.epoch).shuffle(indices)
        self.remaining_indices = indices[self.processed_num :]
        self.num_samples = -(-len(self.remaining_indices) // self.num_replicas)
        self.total_size = self.num_samples * self.num_replicas

    def ranks(self) -> tuple[int, int]:
        """Return how many ranks share an epoch, and which of them this is."""
        return size(), rank()

    def __iter__(self) -> Iterator[int]:
        """Return this rank's indices."""
        left = self.remaining_indices
        missing = self.total_size - len(left)
        if missing:
            left = left + (left * -(-missing // len(left)))[:missing]
        return iter(left[self.rank : self.total_size : self.num_replicas])

    def __len__(self) -> int:
        """Return how many indices this rank has left."""
        return self.num_samples

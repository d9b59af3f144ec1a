"""Small operations done together: copied into one array, reduced at once, and copied out again.

The array is registered memory, so where ranks share memory it is reduced where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ringleader.collectives.fusion import Batch, Fusing, plan_batches
from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import Call, Work
from ringleader.collectives.transports import Transport

MOST_PLANS = 256
"""Plans that are kept. A training asks for the same few again and again."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Parcel:
    """A batch and the memory in which it travels."""

    batch: Batch
    """What is packed."""
    views: Sequence[Array]
    """The place of each array in the memory, in the array's shape. Empty for a batch of one."""
    work: Work | None
    """The reduction of the memory, built once; None for a batch of one."""


class Packer:
    """Plans, packs and unpacks for one engine."""

    def __init__(self, kernels: Kernels, transport: Transport, fusing: Fusing) -> None:
        """Take the framework's arithmetic and what carries the arrays."""
        self._kernels = kernels
        self._transport = transport
        self._fusing = fusing
        self._memory: dict[str, Array] = {}
        self._plans: dict[tuple[int, ...], tuple[list[Call], list[Parcel]]] = {}

    def parcels(self, works: Sequence[Work]) -> list[Parcel]:
        """Return how these works are done. All ranks ask for the same works in the same order."""
        calls = [work.call for work in works]
        key = tuple(map(id, calls))
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            # The entry holds the calls, so that no other ones get their identities.
            parcels = [self._parcel(batch, calls) for batch in plan_batches(calls, self._fusing)]
            known = self._plans[key] = (calls, parcels)
        return known[1]

    def _parcel(self, batch: Batch, calls: Sequence[Call]) -> Parcel:
        if len(batch.members) == 1:
            return Parcel(batch=batch, views=(), work=None)
        kernels, call = self._kernels, batch.call
        memory = kernels.part(self._memory_for(call.dtype), 0, call.shape[0])
        # Gaps between arrays are reduced too: whatever lay there, they begin as numbers.
        kernels.zero(memory)
        views = []
        for member, start in zip(batch.members, batch.starts, strict=True):
            shape = calls[member].shape
            views.append(kernels.shaped(kernels.part(memory, start, start + math.prod(shape)), shape))
        work = Work(call, 0, name="batch", serial=0, array=memory, out=memory)
        return Parcel(batch=batch, views=views, work=work)

    def _memory_for(self, dtype: str) -> Array:
        # All ranks come here for the first time with the same works, so that they allocate together.
        memory = self._memory.get(dtype)
        if memory is None:
            region = self._transport.register(self._fusing.most_bytes // ITEMSIZE[dtype], dtype)
            memory = self._memory[dtype] = region.mine
        return memory

    def carry_out(self, parcel: Parcel, works: Sequence[Work], execute: Callable[[Work], None]) -> None:
        """Do a packed batch: ``works`` are its members, ``execute`` reduces the memory they travel in."""
        assert parcel.work is not None
        copy_all = self._kernels.copy_all
        copy_all(parcel.views, [work.array for work in works])
        execute(parcel.work)
        copy_all([work.out for work in works], parcel.views)

    def close(self) -> None:
        """Let go of the memory."""
        self._plans.clear()
        self._memory.clear()

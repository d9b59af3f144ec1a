"""Small operations done together: copied into one array, reduced at once, and copied out again.

An exchange of a few KiB costs what its barrier costs, not what its bytes cost. Where several small reductions
are ready at once, those that are alike are packed one behind the other and done as one. The array is
registered memory, so where ranks share memory it is reduced where it lies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ringleader.collectives.kernels import ITEMSIZE, Array, Kernels
from ringleader.collectives.operations import ReduceOp, Signature, Work
from ringleader.collectives.transports.transport import Transport

ALIGNMENT = 64
"""Every packed array starts at a multiple of this many bytes, for the vector kernels."""
MOST_PLANS = 256
"""Plans that are kept. A training asks for the same few again and again."""


@dataclass(frozen=True, kw_only=True)
class FusionLimits:
    """What is packed. Equal on all ranks."""

    small_bytes: int = 128 << 10
    """A larger array travels alone: a barrier costs no more than its two copies would."""
    most_bytes: int = 1 << 20
    """So much is packed together at most: it stays in the cache from the first copy to the last."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Operations that are done as one, or a single one."""

    members: tuple[int, ...]
    """Places in the list of operations."""
    starts: tuple[int, ...]
    """First element of each in the packed array."""
    signature: Signature
    """What is done: for several, the reduction of the packed array; for one, its own."""


def plan_batches(calls: Sequence[Signature], limits: FusionLimits) -> tuple[Batch, ...]:
    """Cut operations, in the order in which they would be done, into batches."""
    batches: list[_Open] = []
    filling: dict[tuple[object, ...], _Open] = {}
    for place, signature in enumerate(calls):
        count = math.prod(signature.shape)
        step = max(1, ALIGNMENT // ITEMSIZE.get(signature.dtype, 1))
        room = -(-count // step) * step
        nbytes = room * ITEMSIZE.get(signature.dtype, 1)
        if not _can_be_packed(signature) or not 0 < nbytes <= limits.small_bytes:
            batches.append(_Open(signature, [place], [0], room))
            continue
        key = (
            signature.dtype,
            signature.op,
            signature.prescale,
            signature.postscale,
            signature.device,
            signature.note,
        )
        batch = filling.get(key)
        if batch is None or batch.room * ITEMSIZE[signature.dtype] + nbytes > limits.most_bytes:
            batch = filling[key] = _Open(signature, [], [], 0)
            batches.append(batch)
        batch.members.append(place)
        batch.starts.append(batch.room)
        batch.room += room
    return tuple(batch.closed() for batch in batches)


def _can_be_packed(signature: Signature) -> bool:
    # Adasum scales each array by its own length and angle. Arrays on devices are carried by others.
    kind = signature.kind == "allreduce" and signature.op is not ReduceOp.ADASUM
    return kind and signature.dtype in ITEMSIZE and signature.device == "cpu"


@dataclass
class _Open:
    signature: Signature
    members: list[int]
    starts: list[int]
    room: int

    def closed(self) -> Batch:
        alone = len(self.members) == 1
        signature = self.signature if alone else replace(self.signature, shape=(self.room,))
        return Batch(members=tuple(self.members), starts=tuple(self.starts), signature=signature)


@dataclass(frozen=True, kw_only=True, eq=False)
class FusedBatch:
    """A batch and the memory in which it travels."""

    batch: Batch
    """What is packed."""
    views: Sequence[Array]
    """The place of each array in the memory, in the array's shape. Empty for a batch of one."""
    work: Work | None
    """The reduction of the memory, built once; None for a batch of one."""


class FusionBuffer:
    """Plans, packs and unpacks for one engine."""

    def __init__(self, kernels: Kernels, transport: Transport, limits: FusionLimits) -> None:
        """Take the framework's arithmetic and what carries the arrays."""
        self._kernels = kernels
        self._transport = transport
        self._limits = limits
        self._memory: dict[str, Array] = {}
        self._plans: dict[tuple[int, ...], tuple[list[Signature], list[FusedBatch]]] = {}

    def batches(self, works: Sequence[Work]) -> list[FusedBatch]:
        """Return how these works are done. All ranks ask for the same works in the same order."""
        calls = [work.signature for work in works]
        key = tuple(map(id, calls))
        known = self._plans.get(key)
        if known is None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            # The entry holds the calls, so that no other ones get their identities.
            batches = [self._fused_batch(batch, calls) for batch in plan_batches(calls, self._limits)]
            known = self._plans[key] = (calls, batches)
        return known[1]

    def _fused_batch(self, batch: Batch, calls: Sequence[Signature]) -> FusedBatch:
        if len(batch.members) == 1:
            return FusedBatch(batch=batch, views=(), work=None)
        kernels, signature = self._kernels, batch.signature
        memory = kernels.part(self._memory_for(signature.dtype), 0, signature.shape[0])
        # Gaps between arrays are reduced too: whatever lay there, they begin as numbers.
        kernels.zero(memory)
        views = []
        for member, start in zip(batch.members, batch.starts, strict=True):
            shape = calls[member].shape
            views.append(kernels.shaped(kernels.part(memory, start, start + math.prod(shape)), shape))
        work = Work(signature, 0, name="batch", serial=0, array=memory, out=memory)
        return FusedBatch(batch=batch, views=views, work=work)

    def _memory_for(self, dtype: str) -> Array:
        # All ranks come here for the first time with the same works, so that they allocate together.
        memory = self._memory.get(dtype)
        if memory is None:
            region = self._transport.register(self._limits.most_bytes // ITEMSIZE[dtype], dtype)
            memory = self._memory[dtype] = region.mine
        return memory

    def carry_out(self, fused: FusedBatch, works: Sequence[Work], execute: Callable[[Work], None]) -> None:
        """Do a packed batch: ``works`` are its members, ``execute`` reduces the memory they travel in."""
        assert fused.work is not None
        copy_all = self._kernels.copy_all
        copy_all(fused.views, [work.array for work in works])
        execute(fused.work)
        copy_all([work.out for work in works], fused.views)

    def close(self) -> None:
        """Let go of the memory."""
        self._plans.clear()
        self._memory.clear()

"""Which operations travel together. Pure, and the same on every rank.

An exchange of a few KiB costs what it costs to meet, not what its bytes cost. Where several small reductions
are ready at once, those that are alike are packed one behind the other and done as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringleader.collectives.kernels import ITEMSIZE
from ringleader.collectives.operations import ReduceOp, Signature

ALIGNMENT = 64
"""Every packed array starts at a multiple of this many bytes, for the vector kernels."""


@dataclass(frozen=True, kw_only=True)
class FusionLimits:
    """What is packed. Equal on all ranks."""

    small_bytes: int = 128 << 10
    """A larger array travels alone: meeting costs no more than its two copies would."""
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
    """What is done: for several, the reduction of the packed array; for one, its own call."""


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

"""Which operations travel together. Pure, and the same on every rank.

An exchange of a few KiB costs what it costs to meet, not what its bytes cost. Where several small reductions
are ready at once, those that are alike are packed one behind the other and done as one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringleader.collectives.kernels import ITEMSIZE
from ringleader.collectives.operations import Call, ReduceOp

ALIGNMENT = 64
"""Every packed array starts at a multiple of this many bytes, for the vector kernels."""


@dataclass(frozen=True, kw_only=True)
class Fusing:
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
    call: Call
    """What is done: for several, the reduction of the packed array; for one, its own call."""


def plan_batches(calls: Sequence[Call], fusing: Fusing) -> tuple[Batch, ...]:
    """Cut operations, in the order in which they would be done, into batches."""
    batches: list[_Open] = []
    filling: dict[tuple[object, ...], _Open] = {}
    for place, call in enumerate(calls):
        count = math.prod(call.shape)
        step = max(1, ALIGNMENT // ITEMSIZE.get(call.dtype, 1))
        room = -(-count // step) * step
        nbytes = room * ITEMSIZE.get(call.dtype, 1)
        if not _can_be_packed(call) or not 0 < nbytes <= fusing.small_bytes:
            batches.append(_Open(call, [place], [0], room))
            continue
        key = (call.dtype, call.op, call.prescale, call.postscale, call.device, call.note)
        batch = filling.get(key)
        if batch is None or batch.room * ITEMSIZE[call.dtype] + nbytes > fusing.most_bytes:
            batch = filling[key] = _Open(call, [], [], 0)
            batches.append(batch)
        batch.members.append(place)
        batch.starts.append(batch.room)
        batch.room += room
    return tuple(batch.closed() for batch in batches)


def _can_be_packed(call: Call) -> bool:
    # Adasum scales each array by its own length and angle. Arrays on devices are carried by others.
    kind = call.kind == "allreduce" and call.op is not ReduceOp.ADASUM
    return kind and call.dtype in ITEMSIZE and call.device == "cpu"


@dataclass
class _Open:
    call: Call
    members: list[int]
    starts: list[int]
    room: int

    def closed(self) -> Batch:
        alone = len(self.members) == 1
        call = self.call if alone else replace(self.call, shape=(self.room,))
        return Batch(members=tuple(self.members), starts=tuple(self.starts), call=call)

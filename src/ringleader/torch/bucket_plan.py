"""Where each gradient lies: parameters cut into buckets. Pure, and the same on every rank.

Buckets are filled in the order in which gradients come: at first the reverse order of the parameters,
because backward reaches the last ones first, and after one backward the order that was seen. One bucket
holds one element type, and all buckets of a type lie one behind the other in one piece of memory, so that
another plan for the same parameters fits the same memory. Every gradient starts at a multiple of 64 bytes,
so that vector kernels never meet a split cache line.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ringleader.engine.operations import digest_of

ALIGNMENT = 64
LAST_BYTES = 1 << 20
"""Where a type has several buckets, the last one has at most so much: nothing of backward is left that its
exchange could overlap with."""


@dataclass(frozen=True, kw_only=True)
class ParameterShape:
    """One parameter, as far as the plan needs it."""

    name: str
    """What messages call it."""
    dtype: str
    """Element type, such as ``float32``."""
    itemsize: int
    """Bytes per element."""
    dims: tuple[int, ...]
    """Elements per dimension."""
    device: str = "cpu"
    """Where it lies, in the framework's words. Ranks may differ in it."""

    @property
    def memory(self) -> str:
        """Return which piece of memory its gradient is in."""
        return self.dtype if self.device == "cpu" else f"{self.dtype} on {self.device}"

    @property
    def count(self) -> int:
        """Return the number of elements."""
        return math.prod(self.dims)

    @property
    def room(self) -> int:
        """Return the number of elements up to where the next parameter may begin.

        That is a multiple of `ALIGNMENT` bytes also for the two bytes that an element may have on the wire.
        """
        step = ALIGNMENT // min(self.itemsize, 2)
        return -(-self.count // step) * step


@dataclass(frozen=True, kw_only=True)
class BucketSpan:
    """Where one gradient lies."""

    parameter: int
    """Index of the parameter in the order given to `plan_buckets`."""
    offset: int
    """First element within the bucket."""
    count: int
    """Number of elements."""


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """One piece of memory that is exchanged at once."""

    dtype: str
    """Element type of all gradients in it."""
    device: str
    """Where all of them lie."""
    memory: str
    """The piece of memory, as `BucketPlan.room` calls it."""
    start: int
    """First element within that piece of memory."""
    count: int
    """Elements in all, gaps included."""
    spans: tuple[BucketSpan, ...]
    """Gradients in it, in the order of their offsets."""


@dataclass(frozen=True, kw_only=True)
class BucketPlan:
    """All buckets of a model."""

    buckets: tuple[Bucket, ...]
    """In the order in which backward fills them."""
    room: tuple[tuple[str, int], ...]
    """Elements in all, gaps included, of each piece of memory: one for each element type and device."""
    digest: int
    """64 bits over every name-independent fact of the plan: equal on all ranks or the job is wrong."""


def plan_buckets(
    parameters: Sequence[ParameterShape],
    *,
    cap_bytes: int | None,
    order: Sequence[int] | None = None,
    groups: Sequence[Sequence[int]] = (),
) -> BucketPlan:
    """Cut parameters into buckets of at most ``cap_bytes``; a larger one gets its own; None: no limit.

    ``order`` are the indices of the parameters to place, first the one whose gradient comes first; None
    stands for all of them in reverse. Every one of ``groups`` is a bucket by itself (one per element type),
    whatever its size.
    """
    order = list(reversed(range(len(parameters)))) if order is None else list(order)
    turn = {index: at for at, index in enumerate(order)}
    group_of = {index: number for number, group in enumerate(groups) for index in group}
    pieces = _with_small_ends(parameters, _pieces(parameters, order, group_of, cap_bytes), group_of)
    # A bucket is complete when the last of its gradients is there.
    pieces.sort(key=lambda piece: max(turn[index] for index in piece))
    room: dict[str, int] = {}
    buckets = []
    for piece in pieces:
        first = parameters[piece[0]]
        start, spans, used = room.get(first.memory, 0), [], 0
        for index in piece:
            spans.append(BucketSpan(parameter=index, offset=used, count=parameters[index].count))
            used += parameters[index].room
        buckets.append(
            Bucket(
                dtype=first.dtype,
                device=first.device,
                memory=first.memory,
                start=start,
                count=used,
                spans=tuple(spans),
            )
        )
        room[first.memory] = start + used
    facts = [(shape.dtype, shape.dims) for shape in parameters]
    layout = [(bucket.dtype, [span.parameter for span in bucket.spans]) for bucket in buckets]
    return BucketPlan(
        buckets=tuple(buckets), room=tuple(sorted(room.items())), digest=digest_of(repr((facts, layout)))
    )


def _pieces(
    parameters: Sequence[ParameterShape],
    order: Sequence[int],
    group_of: dict[int, int],
    cap_bytes: int | None,
) -> list[list[int]]:
    """Return which parameters make a bucket, each in the given order."""
    pieces: list[list[int]] = []
    open_pieces: dict[tuple[str, int | None], list[int]] = {}
    for index in order:
        shape = parameters[index]
        key = (shape.memory, group_of.get(index))
        piece = open_pieces.get(key)
        if piece is not None and key[1] is None and cap_bytes is not None:
            used = sum(_nbytes(parameters[other]) for other in piece)
            if used and used + _nbytes(shape) > cap_bytes:
                piece = None
        if piece is None:
            piece = open_pieces[key] = []
            pieces.append(piece)
        piece.append(index)
    return pieces


def _with_small_ends(
    parameters: Sequence[ParameterShape], pieces: list[list[int]], group_of: dict[int, int]
) -> list[list[int]]:
    """Cut the last of several pieces of a kind of memory, so that what comes last in backward is small."""
    last = {parameters[piece[0]].memory: at for at, piece in enumerate(pieces) if piece[0] not in group_of}
    first = {parameters[piece[0]].memory: at for at, piece in reversed(list(enumerate(pieces)))}
    cut: list[list[int]] = []
    for at, piece in enumerate(pieces):
        memory = parameters[piece[0]].memory
        begin = len(piece)
        if last.get(memory) == at != first[memory]:
            used = 0
            while begin and (used := used + _nbytes(parameters[piece[begin - 1]])) <= LAST_BYTES:
                begin -= 1
        cut += [part for part in (piece[:begin], piece[begin:]) if part]
    return cut


def _nbytes(shape: ParameterShape) -> int:
    return shape.room * shape.itemsize


def even_groups(parameters: Sequence[ParameterShape], number: int) -> list[list[int]]:
    """Cut parameters into at most ``number`` groups of about equal size, in the order of backward."""
    total = sum(_nbytes(shape) for shape in parameters)
    groups: list[list[int]] = [[] for _ in range(number)]
    before = 0
    for index in reversed(range(len(parameters))):
        nbytes = _nbytes(parameters[index])
        # A parameter belongs where its middle lies.
        middle = (2 * before + nbytes) * number // (2 * total) if total else 0
        groups[min(number - 1, middle)].append(index)
        before += nbytes
    return [group for group in groups if group]


def first_difference(mine: Sequence[ParameterShape], other: Sequence[ParameterShape]) -> str:
    """Say in words where two ranks' parameters differ, with ``mine`` first; empty where they do not."""
    for index, (one, two) in enumerate(zip(mine, other, strict=False)):
        if (one.dtype, one.dims) != (two.dtype, two.dims):
            return (
                f"parameter {index} is {one.name} {one.dtype}{list(one.dims)} "
                f"and {two.name} {two.dtype}{list(two.dims)}"
            )
    if len(mine) != len(other):
        return f"{len(mine)} and {len(other)} parameters"
    return ""

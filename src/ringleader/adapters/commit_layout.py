"""How the bytes of a commit lie in memory: arrays first, then a head that says what they are. Pure.

`commits` writes and reads them together with the other ranks.

    0      magic, bytes of the arrays, where the head begins, its length
    4096   the arrays that are equal on all ranks, one after the other; then those that may differ
    …      the head, pickled

Every rank of a host writes one slice of the equal arrays, and the first of them all the rest.
"""

from __future__ import annotations

import functools
import io
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import cloudpickle
import numpy

PAGE = 4096
ALIGNMENT = 64
"""Bytes; where arrays begin, so that any element type may lie there."""
MAGIC = b"RLCOMMIT"
_FIXED = struct.Struct("<8sQQQ")


class ArrayBytes(Protocol):
    """An array's bytes, in the order of its elements."""

    @property
    def spec(self) -> tuple[Any, ...]:
        """Return what `ArrayCodec.make` needs beside the bytes; it can be pickled and compared."""

    @property
    def nbytes(self) -> int:
        """Return how many there are."""

    def read_into(self, target: memoryview, start: int) -> None:
        """Copy as many as ``target`` takes, from ``start`` on."""

    def checksum(self, start: int, stop: int) -> int:
        """Return a sum over some of them that their order changes, of 62 bits; see `checksum_of`.

        ``start``, ``stop``: multiples of 8, or the end.
        """


class ArrayCodec(Protocol):
    """Takes arrays of a framework apart and makes them again."""

    def take(self, value: Any) -> ArrayBytes | None:
        """Return the bytes of an array, None for what is none, or is better pickled."""

    def make(self, spec: tuple[Any, ...], memory: memoryview, *, copy: bool) -> Any:
        """Return an array where it was, or without ``copy`` one of the host over memory, to be read only."""


class UnpicklableError(ValueError):
    """A value of a state cannot be pickled."""


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A value of a state, at the moment of a commit."""

    value: Any
    """Anything that can be pickled; its arrays are taken out."""
    differing: frozenset[int] = frozenset()
    """``id`` of arrays that ranks may have different: running statistics."""
    per_rank: Any = None
    """What is each rank's own; kept for all ranks on every host."""


@dataclass(kw_only=True)
class Part:
    """A captured value, taken apart."""

    name: str
    outline: bytes
    """The value, pickled, with numbers in place of its arrays."""
    arrays: list[ArrayBytes] = field(default_factory=list)
    differing: list[bool] = field(default_factory=list)
    """For each array."""
    per_rank: bytes | None = None

    @property
    def specs(self) -> list[tuple[Any, ...]]:
        """Return what the arrays are."""
        return [one.spec for one in self.arrays]


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    def __init__(self, file: io.BytesIO, part: Part, codec: ArrayCodec, differing: frozenset[int]) -> None:
        super().__init__(file, protocol=5)
        self._part, self._codec, self._differing = part, codec, differing

    def persistent_id(self, obj: Any) -> int | None:
        taken = self._codec.take(obj)
        if taken is None:
            return None
        self._part.arrays.append(taken)
        self._part.differing.append(id(obj) in self._differing)
        return len(self._part.arrays) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, outline: bytes, arrays: Sequence[Any]) -> None:
        super().__init__(io.BytesIO(outline))
        self._arrays = arrays

    def persistent_load(self, pid: int) -> Any:
        return self._arrays[pid]


def take_apart(name: str, captured: Captured, codec: ArrayCodec) -> Part:
    """Return a captured value as outline and arrays; `UnpicklableError` with its name where that fails."""
    part = Part(name=name, outline=b"")
    file = io.BytesIO()
    try:
        _Pickler(file, part, codec, captured.differing).dump(captured.value)
        if captured.per_rank is not None:
            part.per_rank = cloudpickle.dumps(captured.per_rank)
    except Exception as error:  # an object's own __reduce__ may raise anything
        kind = f"{type(captured.value).__module__}.{type(captured.value).__qualname__}"
        raise UnpicklableError(
            f"{name!r} of the state ({kind}) cannot be pickled: {type(error).__name__}: {error}. Keep in the "
            "state what training needs to go on, and make the rest again."
        ) from error
    part.outline = file.getvalue()
    return part


def put_together(outline: bytes, arrays: Sequence[Any]) -> Any:
    """Return the value of an outline and its arrays."""
    return _Unpickler(outline, arrays).load()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where an array lies."""

    array: ArrayBytes
    start: int
    """From the beginning of the commit, in bytes."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything of a commit lies."""

    equal: tuple[Place, ...]
    """Arrays that are equal on all ranks, in order."""
    differing: tuple[Place, ...]
    starts: Mapping[str, tuple[int, ...]]
    """Name of a part → where each of its arrays begins."""
    end_of_equal: int
    head_at: int

    def slice_of(self, local_rank: int, local_size: int) -> tuple[int, int]:
        """Return the bytes that a rank of the host writes of the equal arrays, from and to."""
        share = -(-(self.end_of_equal - PAGE) // local_size)
        share = -(-share // PAGE) * PAGE
        start = PAGE + share * local_rank
        return min(start, self.end_of_equal), min(start + share, self.end_of_equal)


def lay_out(parts: Iterable[Part], *, equal: bool) -> Layout:
    """Return where the arrays of all parts lie; without ``equal`` ranks may differ in all of them."""
    first: list[tuple[str, int, ArrayBytes]] = []
    second: list[tuple[str, int, ArrayBytes]] = []
    starts: dict[str, list[int]] = {}
    for part in parts:
        starts[part.name] = [0] * len(part.arrays)
        for at, (array, differs) in enumerate(zip(part.arrays, part.differing, strict=True)):
            (second if differs or not equal else first).append((part.name, at, array))
    placed: list[list[Place]] = [[], []]
    offset = end_of_equal = PAGE
    for number, chosen in enumerate((first, second)):
        for name, at, array in chosen:
            starts[name][at] = offset
            placed[number].append(Place(array=array, start=offset))
            offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        end_of_equal = offset if number == 0 else end_of_equal
    return Layout(
        equal=tuple(placed[0]),
        differing=tuple(placed[1]),
        starts={name: tuple(each) for name, each in starts.items()},
        end_of_equal=end_of_equal,
        head_at=-(-offset // PAGE) * PAGE,
    )


def next_pieces(
    sizes: Sequence[int], start: int, most_bytes: int, most_arrays: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return pieces of arrays of these sizes, taken one after the other, from their byte ``start`` on.

    A piece is the number of an array, from where and to where in it: multiples of 8, or its end. There are at
    most so many arrays with together about so many bytes. Also return the byte after the last one.
    """
    pieces: list[tuple[int, int, int]] = []
    position, stop = 0, start + most_bytes
    for at, nbytes in enumerate(sizes):
        begin, end = max(start - position, 0), min(stop - position, nbytes)
        if begin < end:
            if len(pieces) == most_arrays:
                return pieces, position
            pieces.append((at, begin // 8 * 8, end if end == nbytes else end // 8 * 8))
        position += nbytes
    return pieces, stop


def write_slice(memory: memoryview, places: Iterable[Place], start: int, stop: int) -> None:
    """Write the bytes from ``start`` to ``stop`` of a commit, as far as arrays lie there."""
    for place in places:
        begin, end = max(start, place.start), min(stop, place.start + place.array.nbytes)
        if begin < end:
            place.array.read_into(memory[begin:end], begin - place.start)


def make_head(
    parts: Iterable[Part], layout: Layout, *, size: int, per_rank: Sequence[Mapping[str, bytes]]
) -> bytes:
    """Return the head of a commit; ``per_rank`` are the values of each of the ``size`` ranks."""
    head = {
        "size": size,
        "parts": [(part.name, part.outline, part.specs, layout.starts[part.name]) for part in parts],
        "nbytes": {part.name: [one.nbytes for one in part.arrays] for part in parts},
        "per_rank": list(per_rank),
    }
    return pickle.dumps(head, protocol=5)


def write_head(memory: memoryview, layout: Layout, head: bytes) -> None:
    """Write the head, and where it lies."""
    memory[layout.head_at : layout.head_at + len(head)] = head
    memory[: _FIXED.size] = _FIXED.pack(MAGIC, layout.head_at - PAGE, layout.head_at, len(head))


@dataclass(frozen=True, kw_only=True)
class Content:
    """What a commit holds."""

    size: int
    """Number of ranks when it was made."""
    parts: Mapping[str, tuple[bytes, tuple[tuple[tuple[Any, ...], memoryview], ...]]]
    """Name → outline, and description and bytes of each array."""
    per_rank: Sequence[Mapping[str, bytes]]

    def value(self, name: str, codec: ArrayCodec, *, copy: bool) -> Any:
        """Return a part's value; without ``copy`` its arrays look at the commit's memory."""
        outline, arrays = self.parts[name]
        return put_together(outline, [codec.make(spec, memory, copy=copy) for spec, memory in arrays])

    def own(self, name: str, rank: int) -> Any:
        """Return what a rank had of its own in a part, None where there is nothing."""
        if rank >= len(self.per_rank) or name not in self.per_rank[rank]:
            return None
        return cloudpickle.loads(self.per_rank[rank][name])


def read_commit(memory: memoryview) -> Content:
    """Return what a commit holds; `ValueError` where the memory holds none."""
    magic, _area, head_at, length = _FIXED.unpack_from(memory)
    if magic != MAGIC:
        raise ValueError("this memory holds no commit")
    head = pickle.loads(memory[head_at : head_at + length])
    parts = {}
    for name, outline, specs, starts in head["parts"]:
        sizes = head["nbytes"][name]
        arrays = tuple(
            (spec, memory[start : start + nbytes])
            for spec, start, nbytes in zip(specs, starts, sizes, strict=True)
        )
        parts[name] = (outline, arrays)
    return Content(size=head["size"], parts=parts, per_rank=head["per_rank"])


BITS = 62
"""Of a checksum, so that it and its negative are 64-bit integers."""
BLOCK = 1 << 15
"""Words that are weighted and added up at once; 256 KiB, which caches hold."""
_ODD = 0x9E3779B97F4A7C15


@functools.cache
def checksum_weights() -> numpy.ndarray[Any, numpy.dtype[numpy.int64]]:
    """Return what the words of a block are multiplied by: `BLOCK` odd numbers of 64 bits, always the same."""
    mixed = numpy.arange(1, BLOCK + 1, dtype="uint64") * numpy.uint64(_ODD)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)):
        mixed = (mixed ^ (mixed >> numpy.uint64(shift))) * numpy.uint64(factor)
    return (mixed | numpy.uint64(1)).view("int64")


def combined(sums: Iterable[int]) -> int:
    """Return one sum of many, whose order counts, of 62 bits."""
    total = 0
    for one in sums:
        total = total * _ODD + one
    return total & ((1 << BITS) - 1)


def checksum_of(memory: memoryview) -> int:
    """Return a sum over bytes, of 62 bits, nearly as fast as they can be read.

    Words of 64 bits are weighted by where in a block they are, and blocks by their order: words that change
    places change the sum. The upper half of a word goes into its lower half first, since the lower bits of a
    product do not depend on the upper bits of its factors, in which numbers such as 1.0 and 2.0 differ.
    """
    whole = len(memory) // 8 * 8
    words, weights = numpy.frombuffer(memory[:whole], "int64"), checksum_weights()
    sums = []
    for start in range(0, len(words), BLOCK):
        block = words[start : start + BLOCK]
        sums.append(int(numpy.dot(block ^ (block >> 32), weights[: len(block)])))
    return combined([*sums, int.from_bytes(memory[whole:], "little")])


# NumPy's arrays

SMALLEST = 256
"""Bytes; smaller arrays are pickled with what they are in."""


@dataclass(frozen=True, kw_only=True)
class NumpyBytes:
    """The bytes of a contiguous array."""

    array: numpy.ndarray[Any, Any]
    flat: memoryview

    @property
    def spec(self) -> tuple[Any, ...]:
        """See `ArrayBytes`."""
        return ("numpy", self.array.dtype, self.array.shape)

    @property
    def nbytes(self) -> int:
        """See `ArrayBytes`."""
        return int(self.array.nbytes)

    def read_into(self, target: memoryview, start: int) -> None:
        """See `ArrayBytes`."""
        numpy.copyto(
            numpy.frombuffer(target, "uint8"),
            numpy.frombuffer(self.flat[start : start + len(target)], "uint8"),
        )

    def checksum(self, start: int, stop: int) -> int:
        """See `ArrayBytes`."""
        return checksum_of(self.flat[start:stop])


class NumpyCodec:
    """Takes NumPy's arrays apart; see `ArrayCodec`."""

    def take(self, value: Any) -> ArrayBytes | None:
        """Return the bytes of an array of numbers."""
        if type(value) is not numpy.ndarray or value.dtype.hasobject or value.nbytes < SMALLEST:
            return None
        array = numpy.ascontiguousarray(value)
        return NumpyBytes(array=array, flat=array.reshape(-1).view("uint8").data)

    def make(self, spec: tuple[Any, ...], memory: memoryview, *, copy: bool) -> Any:
        """Return an array, or without ``copy`` one over memory."""
        _kind, dtype, shape = spec
        array = numpy.frombuffer(memory, "uint8").view(dtype).reshape(shape)
        return array.copy() if copy else array

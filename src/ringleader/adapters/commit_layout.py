"""How the bytes of a commit are laid out in memory: arrays first, then a head that says what they are. Pure.

`commits` writes and reads them together with the other ranks.

    0      magic, bytes of the arrays, where the head begins, its length
    4096   the arrays that are equal on all ranks, one after the other; then those that may differ
    …      the head, pickled

Every rank of a host writes one slice of the equal arrays, and the first of them all the rest.
"""

from __future__ import annotations

import ctypes
import functools
import io
import pickle
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle
import numpy

from ringleader.engine.communicator import memory_at

PAGE = 4096
ALIGNMENT = 64
"""Bytes; where arrays begin, so that any element type may lie there."""
SMALLEST = 256
"""Bytes; smaller arrays are pickled with what they are in."""
MAGIC = b"RLCOMMIT"
_FIXED = struct.Struct("<8sQQQ")


@dataclass(frozen=True, kw_only=True, eq=False)
class ArrayBytes:
    """The bytes of a contiguous array in host memory, in the order of its elements.

    A subclass has those of memory elsewhere.
    """

    spec: tuple[Any, ...]
    """What `ArrayCodec.make` needs beside the bytes; it can be pickled and compared."""
    nbytes: int
    address: int
    array: Any
    """What keeps the memory alive."""

    def read_into(self, target: memoryview, start: int) -> None:
        """Copy as many as ``target`` takes, from ``start`` on."""
        if len(target):  # a tenth of what views of arrays cost, which counts where they are small
            there = ctypes.addressof(ctypes.c_char.from_buffer(target))
            ctypes.memmove(there, self.address + start, len(target))

    def checksum(self, start: int, stop: int) -> int:
        """Return `checksum_of` some of them; ``start`` and ``stop`` are multiples of 8, or the end."""
        return checksum_of(memory_at(self.address + start, stop - start))


class ArrayCodec:
    """Takes NumPy's arrays out of values and makes them again; subclasses also take those of a framework."""

    def take(self, value: Any) -> ArrayBytes | None:
        """Return the bytes of an array, None for what is none, or is better pickled."""
        if type(value) is not numpy.ndarray or value.dtype.hasobject or value.nbytes < SMALLEST:
            return None
        array = numpy.ascontiguousarray(value)
        spec = ("numpy", array.dtype, array.shape)
        return ArrayBytes(spec=spec, nbytes=array.nbytes, address=array.ctypes.data, array=array)

    def make(self, spec: tuple[Any, ...], memory: memoryview, *, copy: bool) -> Any:
        """Return an array where it was, or without ``copy`` one of the host over memory, to be read only."""
        _kind, dtype, shape = spec
        array = numpy.frombuffer(memory, "uint8").view(dtype).reshape(shape)
        return array.copy() if copy else array


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
            "state what training needs to continue, and make the rest again."
        ) from error
    part.outline = file.getvalue()
    return part


def put_together(outline: bytes, arrays: Sequence[Any]) -> Any:
    """Return the value of an outline and its arrays."""
    return _Unpickler(outline, arrays).load()


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where everything of a commit lies, in bytes from its beginning."""

    places: tuple[tuple[int, ArrayBytes], ...]
    """Where each array begins: first those that are equal on all ranks."""
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


def lay_out(parts: Sequence[Part], *, equal: bool) -> Layout:
    """Return where the arrays of all parts lie; without ``equal`` ranks may differ in all of them."""
    arrays = [
        (differs or not equal, part.name, at, array)
        for part in parts
        for at, (array, differs) in enumerate(zip(part.arrays, part.differing, strict=True))
    ]
    starts = {part.name: [0] * len(part.arrays) for part in parts}
    places: list[tuple[int, ArrayBytes]] = []
    offset = end_of_equal = PAGE
    for differs, name, at, array in sorted(arrays, key=lambda one: one[0]):
        starts[name][at] = offset
        places.append((offset, array))
        offset += -(-array.nbytes // ALIGNMENT) * ALIGNMENT
        end_of_equal = end_of_equal if differs else offset
    return Layout(
        places=tuple(places),
        starts={name: tuple(each) for name, each in starts.items()},
        end_of_equal=end_of_equal,
        head_at=-(-offset // PAGE) * PAGE,
    )


def next_pieces(
    sizes: Sequence[int], start: int, most_bytes: int, most_arrays: int
) -> tuple[list[tuple[int, int, int]], int]:
    """Return pieces of arrays of these sizes, taken one after the other, from their byte ``start`` on.

    A piece is the number of an array, from where and to where in it: multiples of 8, or its end. There are at
    most this many arrays with together about this many bytes. Also return the byte after the last one.
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


def write_slice(memory: memoryview, layout: Layout, start: int, stop: int) -> None:
    """Write the bytes from ``start`` to ``stop`` of a commit, as far as arrays lie there."""
    for place, array in layout.places:
        begin, end = max(start, place), min(stop, place + array.nbytes)
        if begin < end:
            array.read_into(memory[begin:end], begin - place)


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

    parts: Mapping[str, tuple[bytes, tuple[tuple[tuple[Any, ...], memoryview], ...]]]
    """Name → outline, and description and bytes of each array."""
    per_rank: Sequence[Mapping[str, bytes]]

    def value(self, name: str, codec: ArrayCodec, *, copy: bool) -> Any:
        """Return a part's value; without ``copy`` its arrays look at the commit's memory."""
        outline, arrays = self.parts[name]
        return put_together(outline, [codec.make(spec, memory, copy=copy) for spec, memory in arrays])

    def own(self, name: str, rank: int) -> Any:
        """Return what one rank alone had in a part, None where there is nothing."""
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
        found = zip(specs, starts, head["nbytes"][name], strict=True)
        parts[name] = outline, tuple((spec, memory[start : start + size]) for spec, start, size in found)
    return Content(parts=parts, per_rank=head["per_rank"])


# checksums

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
    """Return one sum of many, whose order counts, of 62 bits; any bit of one of them changes it."""
    total = 0
    for one in sums:
        total = (total * _ODD + (one ^ (one >> 32))) & ((1 << BITS) - 1)
    return total


def checksum_of(memory: memoryview, *, mixed: bool = True) -> int:
    """Return a sum over bytes, of 62 bits, nearly as fast as they can be read; fewer than 8 zeros may follow.

    Words of 64 bits are weighted by where in a block they are, and blocks by their order: words that change
    places change the sum, and so does any bit. The lower bits of a product do not depend on the upper bits of
    its factors, in which numbers such as 1.0 and 2.0 differ. So with ``mixed``, which takes twice the time,
    the upper half of a word goes into its lower half first: then two such numbers that change places count.
    """
    data, weights, sums = numpy.frombuffer(memory, "uint8"), checksum_weights(), []
    for start in range(0, data.size, 8 * BLOCK):
        block = data[start : start + 8 * BLOCK]
        if block.size % 8:
            block = numpy.append(block, numpy.zeros(-block.size % 8, "uint8"))
        words = block.view("int64")
        sums.append(int(numpy.dot(words ^ (words >> 32) if mixed else words, weights[: words.size])))
    return combined(sums)

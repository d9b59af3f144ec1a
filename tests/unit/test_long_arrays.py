"""Long arrays in segments, without MPI: ranks are threads, and pieces are done as late as they may be."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from ringleader.collectives.operations import ReduceOp, Signature
from ringleader.collectives.transports.link_measurement import LEAST_PIECE, MOST_PIECE, Link
from ringleader.collectives.transports.long_arrays import BUFFERS, LongArray, LongArrays


class Numbers:
    """The few kernels that are needed."""

    def count(self, array: Any) -> int:
        return len(array)

    def part(self, flat: Any, start: int, stop: int) -> Any:
        assert 0 <= start <= stop <= len(flat)
        return flat[start:stop]

    def copy(self, target: Any, source: Any) -> None:
        target[:] = source

    def scale(self, array: Any, factor: float) -> None:
        array *= factor

    def empty(self, shape: Any, _dtype: str) -> Any:
        return np.full(shape, np.nan, np.float32)

    def reduce(self, out: Any, parts: Any, _op: ReduceOp, _factor: float) -> None:
        out[:] = sum(parts[1:], parts[0].copy())


class Late:
    """What reduces between hosts: a piece is done just before the third one after it is asked for."""

    def reduce_stream(self, arrays: Iterable[Any], _dtype: str, _op: ReduceOp) -> Iterator[Any]:
        under_way: deque[Any] = deque()
        for array in arrays:
            under_way.append(array)
            if len(under_way) == 3:
                yield self.done(under_way.popleft())
        while under_way:
            yield self.done(under_way.popleft())

    def done(self, array: Any) -> Any:
        array *= 10  # the other hosts' part of the sum
        return array


class Flags:
    """The barrier of the ranks."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks)

    def barrier(self) -> None:
        self._barrier.wait(timeout=20)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 100, 16 * 3 * 7, 5000])
@pytest.mark.parametrize("in_place", [True, False])
def test_every_rank_has_the_scaled_sum(ranks: int, count: int, in_place: bool) -> None:
    flags = Flags(ranks)
    shared = [np.full(BUFFERS * ranks * 64, np.nan, np.float32) for _ in range(ranks)]
    signature = Signature(kind="allreduce", dtype="float32", shape=(count,), prescale=3.0)
    sources = [np.arange(count, dtype=np.float32) * (rank + 1) for rank in range(ranks)]
    targets = sources if in_place else [np.full(count, np.nan, np.float32) for _ in range(ranks)]
    want = np.arange(count, dtype=np.float32) * sum(range(1, ranks + 1)) * 3 * 10 / 2
    wrong: list[Any] = []

    def rank_program(me: int) -> None:
        arrays = LongArrays(
            kernels=Numbers(),  # type: ignore[arg-type]
            flags=flags,  # type: ignore[arg-type]
            cross=Late(),  # type: ignore[arg-type]
            me=me,
            enter=lambda _phase: None,
        )
        array = LongArray(
            source=sources[me], target=targets[me], signature=signature, op=ReduceOp.SUM, factor=0.5
        )
        arrays.reduce(array, shared, piece_bytes=64)
        if not np.array_equal(targets[me], want):
            wrong.append((me, targets[me]))

    threads = [threading.Thread(target=rank_program, args=(me,)) for me in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not wrong and not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    ("rate", "latency", "piece"),
    [
        (1e4, 1e-4, LEAST_PIECE),
        (62e6, 1e-4, 1 << 20),
        (250e6, 1e-4, 4 << 20),
        (62e6, 20e-3, MOST_PIECE),
        (1e12, 1e-4, MOST_PIECE),
    ],
)
def test_pieces_fit_the_line(rate: float, latency: float, piece: int) -> None:
    assert Link(latency_seconds=latency, bytes_per_second=rate).piece_bytes == piece

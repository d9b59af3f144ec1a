"""Long arrays in segments, without MPI: ranks are threads, and pieces are done as late as they may be."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ringleader.engine.operations import ReduceOp
from ringleader.engine.transports.pipeline import (
    LEAST_PIECE,
    MEASURED_FROM_BYTES,
    MOST_DEPTH,
    MOST_PIECE,
    Link,
    Pieces,
    arrays_behind,
)
from ringleader.engine.transports.plain_mpi import MpiReducer
from ringleader.engine.window.between_hosts import BetweenHosts, Stream


class Numbers:
    """The few kernels that are needed."""

    def count(self, array: Any) -> int:
        return len(array)

    def copy(self, target: Any, source: Any) -> None:
        target[:] = source

    def scale(self, array: Any, factor: float) -> None:
        array *= factor

    def empty(self, shape: Any, dtype: str) -> Any:
        return np.full(shape, np.nan, dtype)

    def reduce(self, out: Any, parts: Any, _op: ReduceOp, _factor: float) -> None:
        assert {part.dtype for part in parts} == {out.dtype}
        out[:] = sum(parts[1:], parts[0].copy())


class Late:
    """What reduces between hosts: every piece is done as late as it may be."""

    def __init__(self, depth: int) -> None:
        self.pieces, self._behind = Pieces(nbytes=64, depth=depth), arrays_behind(depth)

    def reduce_stream(
        self, arrays: Iterable[Any], _dtype: str, _op: ReduceOp, factor: float
    ) -> Iterator[Any]:
        under_way: deque[Any] = deque()
        for array in arrays:
            under_way.append(array)
            if len(under_way) == self._behind:
                yield self.done(under_way.popleft(), factor)
        while under_way:
            yield self.done(under_way.popleft(), factor)

    def done(self, array: Any, factor: float) -> Any:
        array *= 10 * factor  # the other hosts' part of the sum
        return array


class Flags:
    """The barrier of the ranks."""

    def __init__(self, ranks: int) -> None:
        self._barrier = threading.Barrier(ranks)

    def barrier(self) -> None:
        self._barrier.wait(timeout=20)


@pytest.mark.parametrize(("ranks", "slices"), [(1, 1), (2, 2), (3, 3), (3, 1), (4, 2)])
@pytest.mark.parametrize("count", [1, 16 * 3 * 7, 5000])
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("memory", ["in turns", "whole", "whole, of another type"])
def test_every_rank_has_the_scaled_sum(
    ranks: int, slices: int, count: int, in_place: bool, depth: int, memory: str
) -> None:
    flags = Flags(ranks)
    room = (arrays_behind(depth) + 2) * slices * 64 if memory == "in turns" else count
    dtype = "float64" if memory == "whole, of another type" else "float32"
    shared = [np.full(room, np.nan, dtype) for _ in range(ranks)]
    sources = [np.arange(count, dtype=np.float32) * (rank + 1) for rank in range(ranks)]
    targets = sources if in_place else [np.full(count, np.nan, np.float32) for _ in range(ranks)]
    want = np.arange(count, dtype=np.float32) * sum(range(1, ranks + 1)) * 3 * 10 / 2
    wrong: list[Any] = []

    def rank_program(me: int) -> None:
        hosts = BetweenHosts(
            kernels=Numbers(),  # type: ignore[arg-type]
            flags=flags,  # type: ignore[arg-type]
            cross=Late(depth),  # type: ignore[arg-type]
            registered=SimpleNamespace(me=me, slices=slices),  # type: ignore[arg-type]
            equal=True,
            enter=lambda _phase: None,
        )
        Stream(
            hosts,
            shared,
            dtype,
            sources[me],
            targets[me],
            op=ReduceOp.SUM,
            prescale=3.0,
            factor=0.5,
            converted=dtype != "float32",
        ).reduce()
        if not np.array_equal(targets[me], want):
            wrong.append((me, targets[me]))

    threads = [threading.Thread(target=rank_program, args=(me,)) for me in range(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert not wrong and not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize(
    ("rate", "latency", "piece", "depth"),
    [
        (1e4, 1e-4, LEAST_PIECE, 1),
        (62e6, 1e-4, 1 << 20, 1),
        (250e6, 1e-4, 4 << 20, 1),
        (62e6, 5e-3, 1 << 20, 3),
        (62e6, 50e-3, 1 << 20, MOST_DEPTH),
        (1.25e9, 1e-3, MOST_PIECE, 3),
        (1e12, 1e-4, MOST_PIECE, MOST_DEPTH),
    ],
)
def test_pieces_and_their_number_fit_the_line(rate: float, latency: float, piece: int, depth: int) -> None:
    link = Link(latency_seconds=latency, bytes_per_second=rate)
    assert (link.pieces.nbytes, link.pieces.depth) == (piece, depth)


class Line:
    """Calls of MPI between two hosts, each as fast as the other."""

    size, rank = 2, 0

    def __init__(self) -> None:
        self.swaps = 0

    def uncounted(self) -> Line:
        return self

    def integers(self, number: int) -> list[int]:
        return [number, number]

    def swap(self, _receive: Any, _send: Any) -> None:
        self.swaps += 1


def test_the_line_is_measured_once_before_the_first_long_reduction() -> None:
    calls: Any = Line()
    usual: Any = {"mpi_calls": calls, "kernels": Numbers(), "pieces": Pieces()}
    reducer = MpiReducer(**usual, between_hosts=True)
    assert not reducer.fit(MEASURED_FROM_BYTES - 1)
    assert not calls.swaps
    assert reducer.fit(MEASURED_FROM_BYTES)
    assert calls.swaps
    assert LEAST_PIECE <= reducer.pieces.nbytes <= MOST_PIECE
    calls.swaps = 0
    assert not reducer.fit(MEASURED_FROM_BYTES)
    assert not MpiReducer(**usual, between_hosts=False).fit(MEASURED_FROM_BYTES)
    assert not calls.swaps

"""Memory of which every rank of a host owns a part: sums go to the owners, values come from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringleader.collectives.kernels import Array, Kernels
from ringleader.collectives.operations import ReduceOp


def part_reducer(
    kernels: Kernels, memory: Sequence[Array], *, me: int, dtype: str, span: tuple[int, int], step: int
) -> Callable[[ReduceOp, float], None]:
    """Return what reduces the elements ``span`` of everybody's memory into that of the rank ``me``.

    It goes in pieces of ``step`` elements, in rank order, so that the bits are those of an allreduce.
    """
    pieces = _pieces(kernels, memory, span, step)
    # Own memory may be the last one to be added, so that the sum may not grow in it.
    scratch = kernels.empty((min(step, span[1] - span[0]),), dtype) if len(memory) > 2 and pieces else None

    def reduce(op: ReduceOp, factor: float) -> None:
        for views in pieces:
            if scratch is None:
                kernels.reduce(views[me], views, op, factor)
                continue
            total = kernels.part(scratch, 0, kernels.count(views[me]))
            kernels.reduce(total, views[:-1], op, 1.0)
            kernels.reduce(views[me], (total, views[-1]), op, factor)

    return reduce


def part_publisher(
    kernels: Kernels, memory: Sequence[Array], *, me: int, span: tuple[int, int], step: int
) -> Callable[[], None]:
    """Return what copies the elements ``span`` of the rank ``me`` into everybody else's memory."""
    pieces = _pieces(kernels, memory, span, step)

    def publish() -> None:
        # Whoever wrote the part wrote its end last, and that may still be in the cache.
        for views in reversed(pieces):
            for rank, view in enumerate(views):
                if rank != me:
                    kernels.copy(view, views[me])

    return publish


def _pieces(kernels: Kernels, memory: Sequence[Array], span: tuple[int, int], step: int) -> list[list[Array]]:
    start, stop = span
    return [
        [kernels.part(part, at, min(at + step, stop)) for part in memory] for at in range(start, stop, step)
    ]

"""What operations ask of their arguments in every framework, refused before other ranks hear of it."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.operations import ReduceOp
from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.collectives.rank_group import Group
from ringleader.collectives.transports.adasum import power_of_two
from ringleader.common.reductions import Adasum, Average, Sum


def check_reduction(op: ReduceOp, dtype: str, group: Group) -> None:
    """Refuse a reduction that has no meaning for an element type or a group of ranks."""
    if op is Average:
        if dtype == "bool":
            raise ValueError("bool tensors have no average; use op=hvd.Max for any, op=hvd.Min for all")
    elif op is Adasum:
        if group is not PROCESS.get().group:
            raise NotImplementedError("Adasum does not support non-global process sets.")
        if not power_of_two(group.ranks.size):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported.")
        if "float" not in dtype:
            raise ValueError(f"Adasum is for floating-point tensors, and this one is {dtype}")


def check_scattered_reduction(op: ReduceOp, dtype: str, group: Group) -> ReduceOp:
    """Return the reduction of a reducescatter, which may be a mean or a sum."""
    if op not in (Average, Sum):
        raise HorovodInternalError(f"reducescatter is for Average and Sum, not {ReduceOp(op).name.title()}")
    op = ReduceOp(op)
    check_reduction(op, dtype, group)
    return op


def check_rows(shape: Sequence[int], verb: str) -> None:
    """Refuse a tensor without rows where an operation is on rows; ``verb``: what cannot be done with it."""
    if not len(shape):
        raise ValueError(f"a tensor without dimensions cannot be {verb}; use a reshape to (1,)")


def check_splits(rows: int, splits: Sequence[int] | None, size: int) -> tuple[int, ...] | None:
    """Return the rows for each rank, None for equal parts; `ValueError` where they do not fit the tensor."""
    if splits is None:
        if rows % size:
            raise ValueError(f"without splits the first dimension ({rows}) has to be a multiple of {size}")
        return None
    counts = tuple(splits)
    if len(counts) != size:
        raise ValueError(f"splits has {len(counts)} entries for {size} ranks")
    if min(counts) < 0 or sum(counts) > rows:
        raise ValueError(f"splits {list(counts)} do not fit the {rows} rows of the tensor")
    return counts

"""How the part of the parameters that a rank owns is cut into tensors for the wrapped optimizer. Pure.

Elements go into one tensor where they lie side by side, belong to one group of the optimizer and have the
same counts: a parameter that was thawed later has made fewer steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from ringleader.collectives.bucket_plan import BucketPlan


@dataclass(frozen=True, kw_only=True)
class ShardSpan:
    """Elements of one parameter in a shard."""

    parameter: int
    """The parameter, as the plan numbers it."""
    start: int
    """First element of the parameter."""
    stop: int
    """One past the last element of the parameter."""
    offset: int
    """Where they begin in the shard."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A tensor for the wrapped optimizer."""

    bucket: int
    """The bucket that it lies in."""
    start: int
    """First element in the bucket."""
    stop: int
    """One past the last element in the bucket."""
    group: int
    """The optimizer's group."""
    spans: tuple[ShardSpan, ...]
    """What it holds, gaps left out."""


def cut_shards(
    plan: BucketPlan,
    *,
    owned: Sequence[tuple[int, int]],
    kinds: Sequence[tuple[int, Hashable]],
    longest: Sequence[int | None],
) -> list[Shard]:
    """Cut the elements that a rank owns.

    ``owned`` has a span of elements for each bucket, ``kinds`` for each parameter its group and what else
    must be equal within a shard, and ``longest`` for each group the most elements of a shard (None: no
    limit).
    """
    shards = []
    for index, (bucket, (low, high)) in enumerate(zip(plan.buckets, owned, strict=True)):
        run: list[tuple[int, int, int]] = []  # parameter, and its elements by their place in the bucket
        last = None
        for span in bucket.spans:
            start, stop = max(low, span.offset), min(high, span.offset + span.count)
            if start >= stop:
                continue
            kind = kinds[span.parameter]
            if run and kind != last:
                shards += _cut(plan, index, run, kinds, longest)
                run = []
            run.append((span.parameter, start, stop))
            last = kind
        if run:
            shards += _cut(plan, index, run, kinds, longest)
    return shards


def _cut(
    plan: BucketPlan,
    bucket: int,
    run: Sequence[tuple[int, int, int]],
    kinds: Sequence[tuple[int, Hashable]],
    longest: Sequence[int | None],
) -> list[Shard]:
    """Cut elements of one kind that lie side by side into shards of at most the group's length."""
    group = kinds[run[0][0]][0]
    begin, end = run[0][1], run[-1][2]
    offsets = {span.parameter: span.offset for span in plan.buckets[bucket].spans}
    step = longest[group] or end - begin
    shards = []
    for start in range(begin, end, step):
        stop = min(start + step, end)
        spans = tuple(
            ShardSpan(
                parameter=parameter,
                start=max(first, start) - offsets[parameter],
                stop=min(last, stop) - offsets[parameter],
                offset=max(first, start) - start,
            )
            for parameter, first, last in run
            if max(first, start) < min(last, stop)
        )
        if spans:
            shards.append(Shard(bucket=bucket, start=start, stop=stop, group=group, spans=spans))
    return shards

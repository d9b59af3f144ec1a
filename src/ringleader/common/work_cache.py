"""A cache of works: the description of a reduction that comes again in every step is made once.

Describing an operation costs more than a few KiB cost to reduce. So the description of a reduction that is
done is kept, without its tensor, until a like one is submitted under the same name.
"""

from __future__ import annotations

from ringleader.collectives.operations import ReduceOp, Work

CAPACITY = 4096
"""Descriptions that are kept."""
WORKS: dict[str | None, Work] = {}
"""Works that are done, by the name that the script gave them. An adapter takes one out to do it again, if it
fits the array."""


def keep_work(work: Work) -> None:
    """Keep the description of a reduction in place that is done and that nobody asks about any more."""
    name = work.local_name
    # Whether Adasum can be had depends on more than the tensor, and is checked each time.
    if name is None or work.signature.op is ReduceOp.ADASUM:
        return
    if len(WORKS) >= CAPACITY:
        WORKS.clear()
    work.array = work.out = None
    WORKS[name] = work

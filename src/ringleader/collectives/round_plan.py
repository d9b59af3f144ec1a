"""What a round does with the operations that are pending: their digest, their order, what travels together.

A training asks for the same operations in every step. Where all of them were described before (see
`Work.repeated`) and are pending in the same order, the plan of then is the plan of now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from ringleader.collectives.fusion_buffer import Batch
from ringleader.collectives.operations import JOIN, MASK, Work

MOST_PLANS = 64
"""Plans that are kept."""
_DIGEST = attrgetter("digest")
_ORDER = attrgetter("order")
_REPEATED = attrgetter("repeated")


@dataclass(kw_only=True, eq=False, slots=True)
class RoundPlan:
    """How to do the works that are pending together, once all ranks are known to have them."""

    pending: list[Work]
    """In the order in which this rank submitted them."""
    digest: int
    """Equal on ranks that have the same works pending, in whatever order."""
    joins: bool
    """Whether this rank has joined: who did so last is not in the digest."""
    in_order: list[Work] = field(init=False)
    """The same works, in an order that all ranks can tell."""
    batches: list[tuple[Batch | None, list[Work]]] | None = None
    """What travels together, and what travels alone. None before the ranks have agreed for the first time:
    they make memory for it together."""

    def __post_init__(self) -> None:
        self.in_order = sorted(self.pending, key=_ORDER)


class RoundPlans:
    """The plans of one engine."""

    def __init__(self) -> None:
        """Begin with none."""
        self._plans: dict[tuple[int, int], RoundPlan] = {}

    def of(self, pending: Sequence[Work]) -> RoundPlan:
        """Return the plan for works that are pending, one at least."""
        works = list(pending)
        key = (id(works[0]), len(works))
        known = self._plans.get(key)
        if known is not None and known.pending == works:  # works are equal when they are the same
            return known
        plan = RoundPlan(
            pending=works,
            digest=sum(map(_DIGEST, works)) & MASK,
            joins=any(work.name == JOIN for work in works),
        )
        # Nothing else is kept: a plan would keep the arrays of its works alive.
        if len(works) > 1 and all(map(_REPEATED, works)):
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return plan

    def close(self) -> None:
        """Forget all plans."""
        self._plans.clear()

"""A reduction in place of memory at one address, all that it takes looked up: two calls without arguments.

What is prepared looks at memory of the ranks, and goes by a table. Where either changes it is forgotten, and
prepared anew when it is wanted next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

CAPACITY = 4096
"""So many are remembered at a time."""


class PreparedReduction:
    """What an adapter keeps for memory that a script has reduced. Empty until a transport prepares it."""

    __slots__ = ("flat", "laid_out", "reduce", "stage")

    def __init__(self, flat: Any) -> None:
        """``flat``: that memory as a flat array of `FlatKernels`; None where that cannot be had."""
        self.flat = flat
        self.stage: Callable[[], None] | None = None
        """Lays the values out for the other ranks, before all meet. None: nothing is prepared."""
        self.reduce: Callable[[], None]
        """Leaves the result in the memory; all ranks have met, and do the same."""
        self.laid_out = 0
        """What `Transport.stage` would return."""

    def prepare(self, stage: Callable[[], None], reduce: Callable[[], None], laid_out: int) -> None:
        """Be prepared to reduce so."""
        self.reduce, self.laid_out = reduce, laid_out
        self.stage = stage

    def forget(self) -> None:
        """Be prepared for nothing, and look at no memory but the script's."""
        self.stage = None
        self.reduce = _nothing


class PreparedReductions:
    """Those of one transport, so that all can be forgotten."""

    def __init__(self) -> None:
        """Begin with none."""
        self._known: list[PreparedReduction] = []

    def add(self, prepared: PreparedReduction) -> None:
        """Remember one that was prepared."""
        if len(self._known) >= CAPACITY:
            self.forget()
        self._known.append(prepared)

    def forget(self) -> None:
        """Have all be prepared anew when they are wanted next."""
        for prepared in self._known:
            prepared.forget()
        self._known.clear()


def _nothing() -> None:
    raise AssertionError("a reduction that was forgotten")

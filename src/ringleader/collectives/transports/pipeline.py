"""Arrays that travel one behind the other, several of them at a time, each in some steps. Pure.

While the results of one array travel, so do the values of those behind it, and the caller makes the next. So
a line is idle in neither direction, as long as enough of them are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.collectives.kernels import Array

Requests = Sequence[Any]
STEPS = 2
"""Steps that an array has at most: its values go out, its results come back."""


def arrays_behind(depth: int) -> int:
    """Return how many arrays are asked for after one before it is certain to be done."""
    return STEPS * depth + 1


@dataclass(kw_only=True, eq=False, slots=True)
class _UnderWay:
    """One array that has begun."""

    array: Array
    steps: Iterator[Requests]
    requests: Requests | None
    """Of the step that it is in; None: it is done."""
    rounds: int = 0
    """How many others have begun since."""


class Pipeline:
    """How arrays follow each other."""

    def __init__(
        self, *, finish: Callable[[Requests], None], abandon: Callable[[Requests], None], depth: int
    ) -> None:
        """``finish`` waits for requests; ``abandon`` is given those that nobody waits for after an error.

        ``depth``: a step is waited for when so many further arrays have begun, at least 1.
        """
        self._finish, self._abandon, self._depth = finish, abandon, depth
        self._under_way: deque[_UnderWay] = deque()

    def run(self, arrays: Iterable[Array], steps: Callable[[Array], Iterator[Requests]]) -> Iterator[Array]:
        """Yield each array, in their order, when it has made all its ``steps``.

        These yield the requests of each step, which are finished before the next one begins. Whoever brings
        equal arrays and depths begins the same steps in the same order.
        """
        try:
            for array in arrays:
                own = steps(array)
                begun = _UnderWay(array=array, steps=own, requests=next(own, None))
                self._advance()
                self._under_way.append(begun)
                yield from self._done()
            while self._under_way:
                self._advance()
                yield from self._done()
        except BaseException:
            for one in self._under_way:
                self._abandon(one.requests or ())
            raise

    def _advance(self) -> None:
        """Finish the steps that are old enough, and begin the next ones."""
        for one in self._under_way:
            one.rounds += 1
            if one.requests is not None and one.rounds % self._depth == 0:
                requests, one.requests = one.requests, ()
                self._finish(requests)
                one.requests = next(one.steps, None)

    def _done(self) -> Iterator[Array]:
        while self._under_way and self._under_way[0].requests is None:
            yield self._under_way.popleft().array

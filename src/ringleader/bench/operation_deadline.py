"""Ends a rank whose operation does not return: inside MPI nobody would notice a peer that hangs."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ringleader.launch.rank_answer import send

LOOK_SECONDS = 0.25
TELL_SECONDS = 2.0
"""Until a rank ends after it has told: the others' deadlines pass meanwhile, and they tell where they are."""
EXIT_CODE = 1


class OperationDeadline:
    """Watches from a thread of its own; answers ``stuck {"step": 7, "what": …, "seconds": …}``, ends it.

    ``step`` counts what was watched: of ranks that do the same, the one with the lowest is behind.
    """

    def __init__(
        self,
        *,
        tell: Callable[[str, Any], None] = send,
        end: Callable[[int], object] = os._exit,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``tell`` and ``end`` are replaced in tests."""
        self._tell, self._end, self._clock = tell, end, clock
        self._until: tuple[float, int, str, float] | None = None
        self._step = 0
        threading.Thread(target=self._watch, name="operation-deadline", daemon=True).start()

    @contextmanager
    def within(self, seconds: float, what: str) -> Iterator[None]:
        """Let what is done inside take so many seconds at most."""
        self._step += 1
        self._until = (self._clock() + seconds, self._step, what, seconds)
        try:
            yield
        finally:
            self._until = None

    def _watch(self) -> None:
        while True:
            time.sleep(LOOK_SECONDS)
            until = self._until
            if until is not None and self._clock() > until[0]:
                self._tell("stuck", {"step": until[1], "what": until[2], "seconds": until[3]})
                time.sleep(TELL_SECONDS)
                self._end(EXIT_CODE)
                return

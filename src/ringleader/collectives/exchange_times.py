"""How long a rank exchanges gradients, and how much of that it only waits for the slowest rank."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager


class ExchangeTimes:
    """Sums over all exchanges of one engine."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Begin with zero."""
        self.waiting_seconds = 0.0
        """Time in which exchanges of gradients waited for the slowest rank."""
        self.exchange_seconds = 0.0
        """Time in which they moved data."""
        self._clock = clock
        self._since: float | None = None
        """Since when the script waits for gradients that the queue carries; None: it does not."""
        self._stood = 0.0
        """Part of that wait in which other ranks had not arrived."""

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Account for a wait of the script for gradients in the queue, which may run several rounds."""
        self._stood, self._since = 0.0, self._clock()
        began = self._since
        try:
            yield
        finally:
            self._since = None
            waited = self._clock() - began
            stood = min(self._stood, waited)
            self.waiting_seconds += stood
            self.exchange_seconds += waited - stood

    def met(self, began: float) -> None:
        """Note that a barrier of a round is over, which this rank reached at ``began``."""
        since = self._since
        if since is not None:
            self._stood += max(0.0, self._clock() - max(began, since))

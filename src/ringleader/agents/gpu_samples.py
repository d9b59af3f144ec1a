"""What the GPUs of this host do while a job runs, by NVML; `traffic_counters` has what its network carries.

NVML may hang as drivers do, and its answers take milliseconds. So a thread asks it, and the agent, which must
not wait, sends what came last.
"""

from __future__ import annotations

import threading
import time

from ringleader.agents.light_imports import Any, Callable

SILENCE_SECONDS = 5.0
"""After which NVML has hung."""


def _open() -> Any:
    from ringleader.fabric.readers.nvml import Load  # ctypes takes a while

    return Load()


class GpuSamples:
    """Asks NVML in a thread."""

    def __init__(
        self, opened: Callable[[], Any] = _open, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """``opened()`` returns what has ``read()``; both may raise."""
        self._opened, self._clock = opened, clock
        self._wanted = threading.Semaphore(0)
        self._found: dict[str, Any] = {}
        self._asked_at: float | None = None
        """When what is being answered was asked; ``None``: nothing is."""
        self._said = ""
        self._has_thread = False

    def _answer(self) -> None:
        load = None
        while True:
            self._wanted.acquire()
            try:
                load = load or self._opened()
                self._found = {"gpus": load.read()}
            except Exception as error:  # whatever it is, the agent and the job continue
                load, self._found = None, {"fault": f"GPUs: {error}"}
            self._asked_at = None

    def take(self) -> dict[str, Any]:
        """Return ``gpus`` or a ``fault`` that was not returned before, and have the next ones asked for."""
        now, found = self._clock(), self._found
        self._found = {}
        if not self._has_thread:
            self._has_thread = True
            threading.Thread(target=self._answer, name="ringleader-gpus", daemon=True).start()
        if self._asked_at is None:
            self._asked_at = now
            self._wanted.release()
        elif now - self._asked_at > SILENCE_SECONDS:
            found = {"fault": f"GPUs: NVML has not answered for {SILENCE_SECONDS:g} s"}
        fault = found.get("fault", "")
        if fault and fault == self._said:
            return {}
        self._said = fault if found else self._said
        return found

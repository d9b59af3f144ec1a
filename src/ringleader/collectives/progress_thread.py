"""The progress thread: goes on with what is pending while the script does something else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class ProgressThread:
    """A thread that sleeps until woken, then works as long as there is something to do."""

    def __init__(self, work: Callable[[], float], grace: float) -> None:
        """Take the piece of work; it returns after how many seconds to come again, 0 for when woken.

        ``grace`` is the time from the first wake to the first piece of work. The thread starts when first
        needed.
        """
        self._work = work
        self._grace = grace
        self._wakeup = threading.Event()
        self.awake = False
        """Whether it knows that there is something to do."""
        self._stopping = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Say that there is something to do."""
        if self.awake:
            return
        self.awake = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="ringleader-progress", daemon=True)
            self._thread.start()
        self._wakeup.set()

    def _serve(self) -> None:
        while not self._stopping:
            self._wakeup.wait()
            self._wakeup.clear()
            nap = self._grace
            while nap and not self._stopping:
                time.sleep(nap)
                nap = self._work()
                if not nap:
                    # What was submitted before this line woke nobody, so it is looked for once more.
                    self.awake = False
                    nap = self._work()
                    self.awake = nap > 0

    def stop(self, timeout: float) -> bool:
        """End the thread after the piece of work that is going on; return whether it ended in time."""
        self._stopping = True
        self._wakeup.set()
        if self._thread is not None:
            self._thread.join(timeout)
            return not self._thread.is_alive()
        return True

"""A time by which something must be done. Path and names are Horovod's."""

from __future__ import annotations

import time


class TimeoutException(Exception):  # noqa: N818 - Horovod's name
    """It is not done."""

    def __init__(self, message: str) -> None:
        """Keep the message."""
        super().__init__(message)
        self.message = message


class Timeout:
    """Begins when it is made."""

    def __init__(self, timeout: float, message: str) -> None:
        """``timeout`` in seconds; ``{activity}`` in the message is what is waited for."""
        self._timeout, self._message = timeout, message
        self._until = time.monotonic() + timeout

    def remaining(self) -> float:
        """Return the seconds that are left, at least 0."""
        return max(0.0, self._until - time.monotonic())

    def timed_out(self) -> bool:
        """Return whether none are left."""
        return time.monotonic() > self._until

    def check_time_out_for(self, activity: str) -> None:
        """Raise TimeoutException where none are left."""
        if self.timed_out():
            text = self._message.format(activity=activity).rstrip()
            raise TimeoutException(f"{text.removesuffix('.')}. Timeout after {self._timeout} seconds.")

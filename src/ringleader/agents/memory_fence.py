"""A fence for memory that processes share: some processors, aarch64 among them, reorder what they see of it.

Standard library only, as host agents use it.
"""

from __future__ import annotations

import _thread


class Fence:
    """Orders this thread's reads and writes of shared memory before it against those after it.

    A lock that is taken and given back twice: what was before it is done when the first is given back, what
    follows begins when the second is taken.
    """

    def __init__(self) -> None:
        """Make the lock."""
        self._lock = _thread.allocate_lock()

    def __call__(self) -> None:
        """Be the fence."""
        with self._lock:
            pass
        with self._lock:
            pass

"""A list that may be called, for scripts that say ``optimizer.variables()``."""

from __future__ import annotations

from typing import Any


class CallableList(list[Any]):
    """Returns itself where a script calls it."""

    def __call__(self) -> CallableList:
        """Return the list."""
        return self

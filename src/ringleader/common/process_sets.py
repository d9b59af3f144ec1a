"""Process sets under the path from which scripts import them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_WHERE = "ringleader.torch.process_sets"
__all__ = ["ProcessSet", "add_process_set", "global_process_set", "remove_process_set"]  # noqa: F822


def __getattr__(name: str) -> Any:
    """Return one of the names above. They are imported when asked for, as a framework comes with them."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(_WHERE), name)

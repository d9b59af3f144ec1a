"""The class that Horovod's adapters are made of, for scripts that hold one.

Path and names are Horovod's. The functions are those of the framework's adapter.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["HorovodBasics"]

_ADAPTER = "ringleader.torch"
"""Imported when a function is asked for: this module needs no framework."""


class HorovodBasics:
    """``init``, ``rank``, ``size``, ``mpi_built``, ``Average`` and so on, as attributes of one object."""

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        """Take what names a compiled library there; nothing is compiled here, so it counts for nothing."""

    def __getattr__(self, name: str) -> Any:
        """Return the adapter's function or value of that name."""
        adapter = import_module(_ADAPTER)
        if name.startswith("_") or not hasattr(adapter, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)
        return getattr(adapter, name)

"""What Horovod keeps in ``horovod.runner`` and scripts import from there; the name is Horovod's."""

from __future__ import annotations

from typing import Any


def __getattr__(name: str) -> Any:
    """Return ``run``, which is `ringleader.run`; it is imported when asked for."""
    if name != "run":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from ringleader.api import run

    return run

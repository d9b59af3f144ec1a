"""Whether a script's framework is there: said before the framework's part of Ringleader is imported."""

from __future__ import annotations

import sys
from importlib.util import find_spec


def check_framework(module: str, title: str, cure: str) -> None:
    """Raise `ModuleNotFoundError` with this Python's path and a cure where a framework is not installed."""
    if sys.modules.get(module) is None and find_spec(module) is None:
        raise ModuleNotFoundError(f"{title} is not installed for {sys.executable}: {cure}", name=module)

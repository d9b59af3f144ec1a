"""Whether a script's framework is there, and new enough: said before its part of Ringleader is imported."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

OLDEST = {"torch": "2.8", "tensorflow": "2.16", "keras": "3.5", "jax": "0.5", "mxnet": "1.9"}
"""The oldest that Ringleader is tested with; of PyTorch older ones are refused."""


def check_framework(module: str, title: str, cure: str, *, least: str = "") -> None:
    """Raise `ModuleNotFoundError` with this Python's path and a cure where a framework is not installed.

    `ImportError` where its version is below ``least``, which is the oldest that was tried.
    """
    loaded = sys.modules.get(module)
    if loaded is None and find_spec(module) is None:
        raise ModuleNotFoundError(f"{title} is not installed for {sys.executable}: {cure}", name=module)
    if not least:
        return
    try:
        found = str(getattr(loaded, "__version__", "") or version(module))
    except PackageNotFoundError:  # a build without metadata: only its import can tell
        return
    if too_old(found, least):
        raise ImportError(
            f"{title} {found} is installed for {sys.executable} and {least} or later is needed: {cure}",
            name=module,
        )


def too_old(found: str, least: str) -> bool:
    """Return whether a version is below another; what is not a version never is. Pure."""
    numbers = [[int(part) for part in re.findall(r"\d+", text)[:2]] for text in (found, least)]
    return bool(numbers[0]) and numbers[0] < numbers[1]

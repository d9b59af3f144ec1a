"""Versions compared as numbers: ``2.10`` is newer than ``2.9``, ``2.8`` stands for every ``2.8.x``. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

NUMBER = re.compile(r"\d+")


@lru_cache(4096)
def key(version: str) -> tuple[int, ...]:
    """Return what versions are sorted by: numbers, without ``+cu128``. ``1.8.0.post0`` is after ``1.8.0``."""
    return tuple(int(number) for number in NUMBER.findall(version.partition("+")[0]))


def matches(version: str, asked: str) -> bool:
    """Tell whether a version is the one asked for, or one of its releases: ``2.8.0`` is a ``2.8``."""
    wanted = key(asked)
    return key(version)[: len(wanted)] == wanted


def at_least(version: str, floor: str) -> bool:
    """Tell whether a version is no older than another, as far as both say: ``12`` passes for ``12.4``."""
    length = min(len(key(version)), len(key(floor)))
    return key(version)[:length] >= key(floor)[:length]


def series(version: str, parts: int = 2) -> str:
    """Return the first parts of a version: ``12.8`` of ``12.8.1``."""
    return ".".join(str(number) for number in key(version)[:parts])


def newest(versions: Iterable[str]) -> str:
    """Return the newest version; empty where there is none."""
    return max(versions, key=key, default="")


def nearest(version: str, known: Iterable[str], count: int = 3) -> tuple[str, ...]:
    """Return the known versions next to one that does not exist, in rising order."""
    ordered = sorted(set(known), key=key)
    older = [one for one in ordered if key(one) < key(version)]
    newer = [one for one in ordered if key(one) >= key(version)]
    lower = min(len(older), max(count - len(newer), (count + 1) // 2))
    return (*older[len(older) - lower :], *newer[: count - lower])

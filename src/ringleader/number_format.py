"""Numbers as people read them, in messages and reports. Pure; the only place that rounds them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

NONE = "–"
"""Shown where a number was not measured."""
T = TypeVar("T")


def shown(value: T | None, text: Callable[[T], str]) -> str:
    """Return a value as ``text`` writes it; ``–`` where there is none."""
    return NONE if value is None else text(value)


def span(low: float | None, high: float | None, text: Callable[[float], str]) -> str:
    """Return from where to where: ``2–3``; ``–`` where one of the two is not known."""
    return NONE if low is None or high is None else f"{text(low)}–{text(high)}"


def percent(part: float) -> str:
    """0.744 → ``74%``."""
    return f"{100 * part:.0f}%"


def times(factor: float) -> str:
    """5.934 → ``5.93×``, 31.72 → ``31.7×``."""
    return f"{factor:.2f}×" if factor < 10 else f"{factor:.1f}×"


def thousands(value: float) -> str:
    """Four significant digits at most below 10,000, integers above: ``7.953``, ``812.3``, ``12,345``."""
    if value >= 1000:
        return f"{value:,.0f}"
    if value >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if value >= 10 else f"{value:.3f}"


def seconds(value: float) -> str:
    """Three significant digits in s, ms or µs."""
    if value == 0:
        return "0 s"
    for unit, scale in (("s", 1.0), ("ms", 1e3)):
        if value * scale >= 0.9995:  # 1.00 s, and not 1,000 ms
            return f"{_three(value * scale)} {unit}"
    return f"{_three(value * 1e6)} µs"


def _three(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"


def plural(count: int, noun: str) -> str:
    """1 → ``1 rank``, 8 → ``8 ranks``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def gigabytes(rate: float) -> str:
    """Bytes per second in GB/s, three significant digits down to 0.0001: ``12.5``, ``0.0512``."""
    value = rate / 1e9
    if value >= 99.95:
        return f"{value:,.0f}"
    if value >= 9.995:
        return f"{value:.1f}"
    if value >= 0.9995:
        return f"{value:.2f}"
    decimals = 3 if value >= 0.09995 else 4 if value >= 0.009995 else 5 if value >= 0.0009995 else 6
    return f"{value:.{decimals}f}"

"""Rates of networks and memory as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

BITS = (("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3))
_BYTES = (("GB/s", 1e9), ("MB/s", 1e6), ("kB/s", 1e3))


def bit_rate(*rates: float) -> str:
    """``98.2 Mbit/s``; of several, the lowest to the highest in one unit: ``95 to 102 Mbit/s``."""
    return _span(rates, BITS, "bit/s")


def byte_rate(*rates: float) -> str:
    """``12.4 GB/s``; of several, the lowest to the highest."""
    return _span(rates, _BYTES, "B/s")


def _span(rates: Sequence[float], units: Sequence[tuple[str, float]], smallest: str) -> str:
    low, high = min(rates), max(rates)
    unit, scale = next(((unit, scale) for unit, scale in units if high >= scale), (smallest, 1.0))
    texts = [three_digits(one / scale) for one in (low, high)]
    return f"{texts[0]} {unit}" if texts[0] == texts[1] else f"{texts[0]} to {texts[1]} {unit}"


def three_digits(value: float) -> str:
    """Return three significant digits: ``390``, ``98.2``, ``9.41``."""
    if value >= 99.95:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"

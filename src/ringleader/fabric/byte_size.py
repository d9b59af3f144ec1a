"""Sizes in bytes as people read them. Pure."""

from __future__ import annotations

MIB = 1 << 20


def byte_size(nbytes: int) -> str:
    """268435456 → ``256 MiB``; three digits at most: ``1.25 GiB``, ``12.5 KiB``, ``512 bytes``."""
    value, unit = float(nbytes), 0
    units = ("bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    # 1023.5 KiB would be written as 1024 KiB.
    while value >= 1023.5 and unit < len(units) - 1:
        value, unit = value / 1024, unit + 1
    if unit == 0:
        return f"{nbytes} byte{'s' * (nbytes != 1)}"
    return f"{_three_digits(value)} {units[unit]}"


def _three_digits(value: float) -> str:
    if value >= 99.95:
        return f"{value:,.0f}"
    text = f"{value:.1f}" if value >= 9.995 else f"{value:.2f}"
    return text.rstrip("0").rstrip(".")

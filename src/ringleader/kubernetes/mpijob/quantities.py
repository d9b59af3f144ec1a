"""Kubernetes quantities, 500m and 2Gi: what they come to, their sums, and which are none. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction

_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
LARGEST = 2**63 - 1
"""What Kubernetes counts up to: it takes a larger amount for this one (resource.ParseQuantity, 1.36)."""
_POWERS = 99
"""Powers of ten that are distinguished, in either direction: an amount may not take minutes to work out."""
QUANTITY = r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]+)?"
"""How a quantity is written: 2, 0.5, 500m, 2Gi, 1e3."""


def value(text: str | int | float) -> Fraction:
    """Return a quantity as a number. ValueError for what is none."""
    match = re.fullmatch(QUANTITY, str(text))
    if match is None:
        raise ValueError(text)
    suffix = match[3] or ""
    number = Fraction(str(text).removesuffix(suffix))
    if suffix[1:] and suffix not in _BINARY:
        return number * _ten_to(max(-_POWERS, min(int(suffix[1:]), _POWERS)))
    if suffix in _BINARY:
        return number * Fraction(2 ** _BINARY[suffix])
    return number * _ten_to(_DECIMAL[suffix])


def fault(amount: str | float) -> str:
    """Return why something is not an amount that a cluster counts; empty where it is one."""
    try:
        number = value(amount)
    except ValueError:
        return f"{str(amount)[:80]!r} is not a quantity"
    return (
        f"{str(amount)[:80]!r} is not a finite amount: 2^63-1 is the largest" if abs(number) > LARGEST else ""
    )


def text(number: Fraction, *, is_binary: bool = False) -> str:
    """Return a number as a quantity: with the largest suffix that leaves it whole."""
    if is_binary and number.denominator == 1 and number != 0:
        fits = [suffix for suffix, bits in _BINARY.items() if number.numerator % 2**bits == 0]
        return f"{number.numerator >> _BINARY[fits[-1]]}{fits[-1]}" if fits else str(number.numerator)
    for suffix, power in (("", 0), ("m", -3), ("u", -6)):
        scaled = number / _ten_to(power)
        if scaled.denominator == 1:
            return f"{scaled.numerator}{suffix}"
    nano = number * 10**9
    return f"{-(-nano.numerator // nano.denominator)}n"  # what is finer is rounded up, as Kubernetes does


def _ten_to(power: int) -> Fraction:
    return Fraction(10**power) if power >= 0 else Fraction(1, 10**-power)


def total(parts: Iterable[tuple[Mapping[str, str | int | float], int]]) -> dict[str, str]:
    """Return the sum of resources, each taken this many times; ones that come to nothing are left out."""
    sums: dict[str, Fraction] = {}
    binary: dict[str, bool] = {}
    for resources, times in parts:
        for name, amount in resources.items():
            sums[name] = sums.get(name, Fraction(0)) + value(amount) * times
            binary[name] = binary.get(name, False) or str(amount).endswith("i")
    return {name: text(number, is_binary=binary[name]) for name, number in sums.items() if number}

"""Integers times a factor: exact, cut toward zero, never wrapped; one rule for NumPy's and PyTorch's arrays.

A factor stands for the simplest fraction that is this number in float64: 1/49 divides by 49, 0.1 by 10. The
product is that of Python's integers; where the type cannot hold it, the nearest number that it can. A factor
without such a fraction, such as 1/3 + 1e-12, multiplies in float64. For floats see `numpy_arithmetic`.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Any

PIECE_ELEMENTS = 1 << 16
"""Elements that are scaled at once: what lies between takes eight bytes of each several times."""
_SMALL = 1 << 31
"""Numerators and denominators are below it, so that the product of two fits in 63 bits."""
_MOST = (1 << 63) - 1


@lru_cache(maxsize=1024)
def fraction_of(factor: float) -> tuple[int, int] | None:
    """Return the numerator and denominator that a factor stands for, None where they are not small."""
    if not math.isfinite(factor) or abs(factor) >= _SMALL:
        return None
    found = Fraction(factor).limit_denominator(_SMALL - 1)
    small = abs(found.numerator) < _SMALL and float(found) == factor
    return (found.numerator, found.denominator) if small else None


def scale_integers(
    array: Any,
    count: int,
    factor: float,
    limits: tuple[int, int],
    *,
    where: Callable[..., Any],
    to_float: Callable[[Any], Any],
    to_int: Callable[[Any], Any],
    write: Callable[[Any, Any], object],
) -> None:
    """Multiply ``count`` integers in place. ``limits``: the least and the greatest that their type can hold.

    The functions are those of the arrays' library, with float64 and int64; a uint64 is computed by its bits.
    """
    step = max(1, PIECE_ELEMENTS * len(array) // count) if count > PIECE_ELEMENTS else 0
    for piece in [array[at : at + step] for at in range(0, len(array), step)] if step else [array]:
        write(piece, _scaled(to_int(piece), factor, limits, where, to_float, to_int))


def _scaled(
    values: Any,
    factor: float,
    limits: tuple[int, int],
    where: Callable[..., Any],
    to_float: Callable[[Any], Any],
    to_int: Callable[[Any], Any],
) -> Any:
    """Compute on amounts as unsigned numbers of 64 bits, halved so that signed arithmetic can divide them."""
    least, most = limits
    negative = values < 0 if least < 0 else values != values
    amount = where(negative, -values, values)
    half, odd = (amount >> 1) & _MOST, amount & 1
    ratio = fraction_of(factor)
    if ratio is None:
        product = (to_float(half) * 2 + to_float(odd)) * min(abs(factor), sys.float_info.max)
        product = where(product < 2.0**64, product, 2.0**64)
        high = product // 2.0**32
        result = to_int(high) * (1 << 32) + to_int(product - high * 2.0**32)
        over, under = (product >= float(limit + 1) for limit in (most, -least))
    else:
        numerator, denominator = abs(ratio[0]), ratio[1]
        if denominator == 1:  # whole parts below must fit in 63 bits
            numerator, denominator = 2 * numerator, 2
        rest = half % denominator * 2 + odd
        whole = half // denominator * 2 + rest // denominator
        rest = rest % denominator * numerator // denominator
        result = whole * numerator + rest
        over, under = (_exceeds(whole, rest, numerator, limit) for limit in (most, -least))
    if factor < 0:
        negative = ~negative & (amount != 0)
    above, below = (limit - (1 << 64) if limit > _MOST else limit for limit in limits[::-1])
    return where(negative, where(under, below, -result), where(over, above, result))


def _exceeds(whole: Any, rest: Any, numerator: int, limit: int) -> Any:
    """Return whether ``whole`` times the numerator plus ``rest``, which is less than it, is over a limit."""
    if not numerator:
        return whole < 0
    top, top_rest = divmod(limit, numerator)
    return (whole > min(top, _MOST)) | ((whole == min(top, _MOST)) & (rest > top_rest))

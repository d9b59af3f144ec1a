"""NumPy's vector arithmetic: what reduces and scales arrays, for every adapter that lets NumPy do so.

Integers are scaled by one rule for NumPy's and PyTorch's arrays: exact, cut toward zero, never wrapped. A
factor stands for the simplest fraction that is this number in float64: 1/49 divides by 49, 0.1 by 10. The
product is that of Python's integers; where the type cannot hold it, the nearest number that it can. A factor
without such a fraction, such as 1/3 + 1e-12, multiplies in float64.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from contextvars import Context
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

import numpy

from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import divisor_of

Array = numpy.ndarray[Any, Any]
COMBINE: dict[ReduceOp, Any] = {
    ReduceOp.SUM: numpy.add,
    ReduceOp.MIN: numpy.minimum,
    ReduceOp.MAX: numpy.maximum,
    ReduceOp.PRODUCT: numpy.multiply,
}
"""What reduces two arrays; of bools a sum is "or", a product "and"."""
HALF_TYPES = ("float16", "bfloat16")
FULL_TYPES = ("float32", "float64")

PIECE_ELEMENTS = 1 << 15
"""Elements that are scaled at once: what lies between takes eight bytes of each several times."""
_SMALL = 1 << 31
"""Numerators and denominators are below it, so that the product of two fits in 63 bits."""
_MOST = (1 << 63) - 1


@lru_cache(maxsize=64)
def dtype_named(name: str) -> numpy.dtype[Any]:
    """Return NumPy's type for a neutral name; bfloat16 is that of ``ml_dtypes``, as in TensorFlow and JAX."""
    if name == "bfloat16":
        import ml_dtypes

        found: numpy.dtype[Any] = numpy.dtype(ml_dtypes.bfloat16)
        return found
    return numpy.dtype(name)


def scale(array: Array, factor: float) -> None:
    """Multiply in place, or divide by n where the factor is one n-th: half types in float32, integers
    exactly. NumPy's warnings are the caller's to silence."""
    name = array.dtype.name
    if name in FULL_TYPES:
        function, number = scaling(name, factor)
        function(array, number, array)
    elif name in HALF_TYPES:
        function, number = scaling("float32", factor)
        function(array, number, array, dtype="float32", casting="unsafe")
    elif name != "bool":
        _scale_integers(array, factor)


def scaling(dtype: str, factor: float) -> tuple[Callable[..., object], float]:
    """Return the function that `scale` comes to for a type, of an array, a number and the array, and that."""
    if dtype not in FULL_TYPES:
        return (lambda array, factor, _out: scale(array, factor)), factor
    divisor = divisor_of(factor)
    return (numpy.divide, divisor) if divisor else (numpy.multiply, factor)


def pieces(count: int) -> list[slice]:
    """Return the pieces of `PIECE_ELEMENTS` that a long array is worked on in."""
    return [slice(at, at + PIECE_ELEMENTS) for at in range(0, count, PIECE_ELEMENTS)]


def _scale_integers(array: Array, factor: float) -> None:
    limits = numpy.iinfo(array.dtype)
    ratio = fraction_of(factor)
    # Of another layout NumPy would divide a flat copy.
    if array.flags.c_contiguous and ratio is not None and ratio[0] == 1 and ratio[1] <= limits.max:
        _divide_integers(array, ratio[1])
        return
    scale_integers(
        array,
        array.size,
        factor,
        (int(limits.min), int(limits.max)),
        where=numpy.where,
        to_float=lambda integers: integers.astype("float64"),
        to_int=lambda numbers: numbers.astype("int64"),
        write=partial(numpy.copyto, casting="unsafe"),
    )


def _divide_integers(array: Array, divisor: int) -> None:
    """Divide in place and cut toward zero: averages, for which NumPy has vector kernels that round down."""
    flat = array.reshape(-1)
    for part in pieces(flat.size):
        some = flat[part]
        if some.dtype.kind == "i":
            negative = some >> (8 * some.itemsize - 1)
            numpy.add(some, negative & (divisor - 1), some)
        numpy.floor_divide(some, divisor, some)


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


def float_reduction(chunks: Sequence[Sequence[Array]]) -> Callable[[ReduceOp, float], None]:
    """Return a function that reduces each chunk's float32 or float64 arrays, scales, and writes into all."""
    copy, pieces = numpy.copyto, [(first, others) for first, *others in chunks]

    def reduce(op: ReduceOp, factor: float) -> None:
        combine, divisor = COMBINE[op], divisor_of(factor)
        for first, others in pieces:
            for other in others:
                combine(first, other, out=first)
            if divisor:
                numpy.divide(first, divisor, first)
            elif factor != 1.0:
                numpy.multiply(first, factor, first)
            for other in others:
                copy(other, first)

    return partial(silent_caller(), reduce)


def silent_caller() -> Callable[..., Any]:
    """Return what calls a function without NumPy's warnings of its numbers: gradients may be infinite.

    For one thread at a time, and not from within itself. It takes a tenth of the time of `numpy.errstate`,
    which counts in short operations.
    """
    if int(numpy.__version__.split(".")[0]) < 2:  # the state is the thread's there, not the context's
        return _call_silently
    context = Context()
    context.run(numpy.seterr, all="ignore")
    return context.run


def _call_silently(function: Callable[..., Any], *arguments: Any, **words: Any) -> Any:
    with numpy.errstate(all="ignore"):
        return function(*arguments, **words)


class NumpyFlat:
    """See `ringleader.engine.reduction_kernels.FlatKernels`; ``take`` and ``give`` are the framework's."""

    def __init__(self, dtype: str, take: Callable[[Any], Any], give: Callable[[Array], Any]) -> None:
        """Take the element type, and the ways from the framework's arrays to NumPy's 1-D ones and back."""
        self._dtype = dtype
        self.take = take
        self.give = give
        self.copy: Callable[[Array, Array], None] = numpy.copyto
        self._call = silent_caller()

    def over(self, memory: Any, dtype: str, count: int) -> Array:
        """Return an array over memory that others may see."""
        kind = dtype_named(dtype)
        return numpy.frombuffer(memory, kind, count) if count else numpy.empty(0, kind)

    def copier(self, target: Array) -> Callable[[Array], None]:
        """Return what copies into a short array: by its buffer that takes a third of NumPy's time."""
        if target.dtype.name == "bfloat16":  # has no buffer
            return lambda source: numpy.copyto(target, source)
        buffer: Any = target
        return partial(memoryview(buffer).__setitem__, slice(None))

    def scale(self, flat: Array, factor: float) -> None:
        """Multiply in place; see `Kernels.scale`."""
        self._call(scale, flat, factor)

    def reducer(self, op: ReduceOp, factor: float) -> Callable[[Array, Sequence[Array]], None]:
        """Return what reduces parts in their order and scales the result."""
        call, combine = self._call, COMBINE[op]

        def by_name(first: Array, second: Array, out: Array) -> None:
            call(combine, first, second, out=out)

        # By its place the result costs less, but these do not take it so any more.
        into = by_name if op in (ReduceOp.MIN, ReduceOp.MAX) else partial(call, combine)
        last, number = scaling(self._dtype, factor)

        def reduce(out: Array, parts: Sequence[Array]) -> None:
            into(parts[0], parts[1], out)
            if len(parts) > 2:
                for part in parts[2:]:
                    into(out, part, out)
            if factor != 1.0:
                call(last, out, number, out)

        return reduce

    def calls(
        self, out: Array, parts: Sequence[Array], op: ReduceOp, factor: float
    ) -> Sequence[Callable[[], Any]]:
        """Return calls without a frame of Python."""
        call, combine, (first, *rest) = self._call, COMBINE[op], parts
        last, number = scaling(self._dtype, factor)
        steps: list[Callable[[], Any]] = []
        for part in rest:
            steps.append(partial(call, combine, first, part, out=out))
            first = out
        return steps if factor == 1.0 else [*steps, partial(call, last, out, number, out)]

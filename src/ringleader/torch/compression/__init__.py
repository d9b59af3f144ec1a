"""Gradients made smaller for the wire: what scripts can ask for, and how each is carried out.

Path and the names ``Compression``, ``Compressor``, ``NoneCompressor`` and ``FP16Compressor`` are Horovod's.
"""

from __future__ import annotations

from typing import Any

import torch

from ringleader.adapters.compression import CastCompressor, Compressor, NoneCompressor, check_compression
from ringleader.torch.compression.powersgd import PowerSGD
from ringleader.torch.compression.reducer import CompressorReducer, ErrorFeedbackCompressor, Reducer
from ringleader.torch.compression.topk import TopK

__all__ = [
    "BF16Compressor",
    "Compression",
    "Compressor",
    "FP16Compressor",
    "NoneCompressor",
    "PowerSGD",
    "TopK",
]


class _HalfPrecision(CastCompressor):
    @staticmethod
    def cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        return tensor.to(dtype)


class FP16Compressor(_HalfPrecision):
    """Send floating-point tensors as float16."""

    wire_dtype = torch.float16


class BF16Compressor(_HalfPrecision):
    """Send floating-point tensors as bfloat16, which has float32's range."""

    wire_dtype = torch.bfloat16


class Compression:
    """What a script can ask for."""

    none = NoneCompressor
    """Send gradients as they are."""
    fp16 = FP16Compressor
    """Send floating-point gradients as float16."""
    bf16 = BF16Compressor
    """Send floating-point gradients as bfloat16."""
    topk = TopK
    """``Compression.topk(ratio)``: send the largest elements, add up the others for later."""
    powersgd = PowerSGD
    """``Compression.powersgd(rank)``: send matrices of low rank, add up what they miss for later."""


WIRE_DTYPES: dict[Any, torch.dtype | None] = {
    NoneCompressor: None,
    FP16Compressor: torch.float16,
    BF16Compressor: torch.bfloat16,
}
"""Compressions that do no more than change the element type, for which gradients need not leave their bucket,
and the type in which floating-point gradients travel (None: their own)."""


def wire_dtype_of(compression: Any) -> tuple[bool, torch.dtype | None]:
    """Return whether a compression only changes the element type, and to which (None: to none)."""
    kind = compression if isinstance(compression, type) else type(compression)
    return kind in WIRE_DTYPES, WIRE_DTYPES.get(kind)


def reducer_of(compression: Compressor | type[Compressor]) -> Reducer | None:
    """Return what exchanges gradients under a compression that is not only a smaller element type."""
    if wire_dtype_of(compression)[0]:
        return None
    if isinstance(compression, ErrorFeedbackCompressor):
        return compression.reducer()
    return CompressorReducer(compression)


def describe_compression(compression: Any) -> str:
    """Return a text that is equal on all ranks if the compression is: its class, and its plain arguments.

    Arguments that are not plain values appear by their class alone: their text may hold an address.
    """
    kind = compression if isinstance(compression, type) else type(compression)
    text = f"{kind.__module__}.{kind.__qualname__}"
    if isinstance(compression, type):
        return text
    fields = sorted(getattr(compression, "__dict__", {}).items())
    return f"{text}({', '.join(f'{name}={_plain(value)}' for name, value in fields)})"


def _plain(value: Any) -> str:
    if isinstance(value, (int, float, str, bytes, torch.dtype)) or value is None:
        return repr(value)
    if type(value) in (list, tuple):
        return f"[{', '.join(map(_plain, value))}]"
    if isinstance(value, type):
        return f"{value.__module__}.{value.__qualname__}"
    return type(value).__qualname__


def checked_compression(compression: Any) -> Any:
    """Return the compression; `ValueError` where it is not one, or lacks its argument."""
    if compression in (TopK, PowerSGD):
        name, example = ("topk", "0.01") if compression is TopK else ("powersgd", "2")
        raise ValueError(f"give its argument, as in Compression.{name}({example})")
    check_compression(compression)
    return compression

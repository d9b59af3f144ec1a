"""What makes gradients smaller for the wire: the backend's own `Compression`, as scripts import it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringleader.keras.generation import backend


class NoneCompressor:
    """Leave everything as it is."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor


class HalfPrecisionCompressor:
    """Send floating-point arrays in ``wire_dtype``; leave the others."""

    wire_dtype: str

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return a copy in the smaller type, and the first type."""
        small = tensor.astype(cls.wire_dtype) if "float" in str(tensor.dtype) else tensor
        return small, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return the array in the type that ``compress`` noted."""
        return tensor.astype(ctx)


class FP16Compressor(HalfPrecisionCompressor):
    """Send floating-point arrays as float16."""

    wire_dtype = "float16"


class BF16Compressor(HalfPrecisionCompressor):
    """Send floating-point arrays as bfloat16, which has float32's range."""

    wire_dtype = "bfloat16"


class ArrayCompression:
    """The algorithms for arrays of JAX."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def _chosen() -> Any:
    if backend() == "jax":
        return ArrayCompression
    return import_module(f"ringleader.{backend()}.compression").Compression


Compression: Any = _chosen()
"""The backend's algorithms: ``none``, ``fp16``, ``bf16``."""

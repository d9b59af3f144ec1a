"""Tensors made smaller for the wire. Path and names are Horovod's."""

from __future__ import annotations

from typing import Any, ClassVar

import tensorflow as tf

from ringleader.common.compression import Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class HalfPrecisionCompressor(Compressor):
    """Sends floating-point tensors in ``wire_dtype``; leaves the others."""

    wire_dtype: ClassVar[tf.DType]

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return a copy in the smaller type, and the first type."""
        tensor = tf.convert_to_tensor(tensor)
        small = tf.cast(tensor, cls.wire_dtype) if tensor.dtype.is_floating else tensor
        return small, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return the tensor in the type that ``compress`` noted."""
        return tf.cast(tensor, ctx) if ctx.is_floating else tensor


class FP16Compressor(HalfPrecisionCompressor):
    """Sends floating-point tensors as float16."""

    wire_dtype = tf.float16


class BF16Compressor(HalfPrecisionCompressor):
    """Sends floating-point tensors as bfloat16, which has float32's range."""

    wire_dtype = tf.bfloat16


class Compression:
    """What the argument ``compression`` of operations can be."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

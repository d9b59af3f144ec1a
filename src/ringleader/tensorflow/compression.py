"""Tensors made smaller for the wire. Path and names are Horovod's."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from ringleader.adapters.compression import CastCompressor, Compressor, NoneCompressor

__all__ = ["BF16Compressor", "Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class _HalfPrecision(CastCompressor):
    @staticmethod
    def cast(tensor: Any, dtype: tf.DType) -> Any:
        return tf.cast(tensor, dtype)

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        return super().compress(tf.convert_to_tensor(tensor))


class FP16Compressor(_HalfPrecision):
    """Sends floating-point tensors as float16."""

    wire_dtype = tf.float16


class BF16Compressor(_HalfPrecision):
    """Sends floating-point tensors as bfloat16, which has float32's range."""

    wire_dtype = tf.bfloat16


class Compression:
    """What the argument ``compression`` of operations can be."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

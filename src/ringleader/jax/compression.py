"""Element types in which arrays travel. Names are Horovod's."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp


class Compressor:
    """The interface: compress before the exchange, decompress after it.

    Your own class with these two static methods works too, under `jax.jit` if both can be traced. What
    ``compress`` returns is exchanged, so it must have the same shape and type on all ranks.
    """

    @staticmethod
    def compress(tensor: jax.Array) -> tuple[jax.Array, Any]:
        """Return the array for the wire and what `decompress` needs."""
        raise TypeError("a compressor must define compress")

    @staticmethod
    def decompress(tensor: jax.Array, ctx: Any) -> jax.Array:
        """Return the array in its first type."""
        raise TypeError("a compressor must define decompress")


class NoneCompressor(Compressor):
    """Leave everything as it is."""

    @staticmethod
    def compress(tensor: jax.Array) -> tuple[jax.Array, Any]:
        """Return the array itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: jax.Array, ctx: Any) -> jax.Array:
        """Return the array itself."""
        return tensor


class HalfPrecisionCompressor(Compressor):
    """Send floating-point arrays in ``wire_dtype``; leave the others."""

    wire_dtype: ClassVar[Any]

    @classmethod
    def compress(cls, tensor: jax.Array) -> tuple[jax.Array, Any]:
        """Return the array in the smaller type, and the first type."""
        floating = jnp.issubdtype(tensor.dtype, jnp.floating)
        return tensor.astype(cls.wire_dtype) if floating else tensor, tensor.dtype

    @classmethod
    def decompress(cls, tensor: jax.Array, ctx: Any) -> jax.Array:
        """Return the array in the type that ``compress`` noted."""
        return tensor.astype(ctx)


class FP16Compressor(HalfPrecisionCompressor):
    """Send floating-point arrays as float16."""

    wire_dtype = jnp.float16


class BF16Compressor(HalfPrecisionCompressor):
    """Send floating-point arrays as bfloat16, which has float32's range."""

    wire_dtype = jnp.bfloat16


class Compression:
    """What can be asked for as ``compression``."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor

"""Gradients made smaller for the wire. Path and names are Horovod's."""

from __future__ import annotations

from typing import Any

from mxnet.ndarray import NDArray

__all__ = ["Compression", "Compressor", "FP16Compressor", "NoneCompressor"]


class Compressor:
    """The interface: compress before the exchange, decompress after it.

    Your own class with these two static methods works in `DistributedTrainer` too. What ``compress``
    returns is summed over the ranks, so it must have the same shape and type on all of them.
    """

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """Return the array for the wire and what `decompress` needs."""
        raise TypeError("a compressor must define compress")

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """Return the array in its first type."""
        raise TypeError("a compressor must define decompress")


class NoneCompressor(Compressor):
    """Leave everything as it is."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """Return the array itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """Return the array itself."""
        return tensor


class FP16Compressor(Compressor):
    """Send floating-point arrays as float16; leave the others."""

    @staticmethod
    def compress(tensor: NDArray) -> tuple[NDArray, Any]:
        """Return a copy in float16, and the first type."""
        small = tensor.astype("float16", copy=False) if "float" in str(tensor.dtype) else tensor
        return small, tensor.dtype

    @staticmethod
    def decompress(tensor: NDArray, ctx: Any) -> NDArray:
        """Return the array in the type that ``compress`` noted."""
        return tensor.astype(ctx, copy=False)


class Compression:
    """What a script can ask for."""

    none = NoneCompressor
    """Send gradients as they are."""
    fp16 = FP16Compressor
    """Send floating-point gradients as float16."""

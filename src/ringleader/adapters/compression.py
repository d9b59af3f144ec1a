"""Tensors made smaller for the wire: the interface, and the algorithms that need no framework.

Names are Horovod's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar


class Compressor:
    """The interface: compress before the exchange, decompress after it.

    Your own class with these two static methods works too. What ``compress`` returns is exchanged, so it must
    have the same shape and type on all ranks. What compiles a program traces both.
    """

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor for the wire and what `decompress` needs."""
        raise TypeError("a compressor must define compress")

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor in its first type."""
        raise TypeError("a compressor must define decompress")


def check_compression(compression: Any) -> None:
    """Raise `ValueError` for what is not a compressor."""
    if not all(callable(getattr(compression, name, None)) for name in ("compress", "decompress")):
        raise ValueError(
            f"compression is one of hvd.Compression, not {compression!r}, which lacks compress or decompress"
        )


class NoneCompressor(Compressor):
    """Leave everything as it is."""

    @staticmethod
    def compress(tensor: Any) -> tuple[Any, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: Any, ctx: Any) -> Any:
        """Return the tensor itself."""
        return tensor


def run_compressed(
    compression: type[Compressor], tensors: Sequence[Any], run: Callable[[list[Any]], Sequence[Any]]
) -> list[Any]:
    """Do an operation on several tensors in their compressed form; `ValueError` for no compressor."""
    if compression is NoneCompressor:
        return list(run(list(tensors)))
    check_compression(compression)
    pairs = [compression.compress(tensor) for tensor in tensors]
    results = run([small for small, _context in pairs])
    return [
        compression.decompress(one, context) for one, (_small, context) in zip(results, pairs, strict=True)
    ]


class CastCompressor(Compressor):
    """Send floating-point tensors in ``wire_dtype``; leave the others. As it is, for arrays like NumPy's."""

    wire_dtype: ClassVar[Any]

    @staticmethod
    def cast(tensor: Any, dtype: Any) -> Any:
        """Return the tensor in another type; itself where it has that."""
        return tensor.astype(dtype, copy=False)

    @classmethod
    def compress(cls, tensor: Any) -> tuple[Any, Any]:
        """Return the tensor in the smaller type, and the first type."""
        floating = "float" in str(tensor.dtype)
        return cls.cast(tensor, cls.wire_dtype) if floating else tensor, tensor.dtype

    @classmethod
    def decompress(cls, tensor: Any, ctx: Any) -> Any:
        """Return the tensor in the type that ``compress`` noted."""
        return cls.cast(tensor, ctx)


class FP16ArrayCompressor(CastCompressor):
    """Send floating-point arrays as float16."""

    wire_dtype = "float16"


class BF16ArrayCompressor(CastCompressor):
    """Send floating-point arrays as bfloat16, which has float32's range."""

    wire_dtype = "bfloat16"


class ArrayCompression:
    """What can be asked for as ``compression`` of such arrays."""

    none = NoneCompressor
    fp16 = FP16ArrayCompressor
    bf16 = BF16ArrayCompressor

"""Gradients made smaller for the wire."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


class Compressor:
    """The interface: compress before the exchange, decompress after it.

    A class of your own with these two static methods works in `DistributedOptimizer` too. What ``compress``
    returns is summed over the ranks, so it must have the same shape and type on all of them.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor for the wire and what `decompress` needs."""
        raise TypeError("a compressor has a compress method of its own")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in its first type."""
        raise TypeError("a compressor has a decompress method of its own")


class NoneCompressor(Compressor):
    """Leave everything as it is."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor itself."""
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor itself."""
        return tensor


class FP16Compressor(Compressor):
    """Send floating-point tensors as float16; leave the others."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return a float16 copy and the first type."""
        return _smaller(tensor, torch.float16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in the type that ``compress`` noted."""
        return tensor.to(ctx)


class BF16Compressor(Compressor):
    """Send floating-point tensors as bfloat16, which has float32's range; leave the others."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return a bfloat16 copy and the first type."""
        return _smaller(tensor, torch.bfloat16), tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in the type that ``compress`` noted."""
        return tensor.to(ctx)


def _smaller(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.dtype.is_floating_point else tensor


class _ForGradients(Compressor):
    """A compression that remembers what it left out; only `DistributedOptimizer` can use it."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Refuse: there is nothing to remember in for a single operation."""
        raise ValueError("this compression keeps an account per gradient: pass it to DistributedOptimizer")


@dataclass(frozen=True)
class TopK(_ForGradients):
    """Send the largest elements of all gradients together, and the rest in a later step."""

    ratio: float
    """Part of the elements that is sent, above 0 and at most 1."""

    def __post_init__(self) -> None:
        """Check the ratio."""
        if not 0 < self.ratio <= 1:
            raise ValueError("top-k needs a ratio above 0 and at most 1")


@dataclass(frozen=True)
class PowerSGD(_ForGradients):
    """Send every matrix as a product of two thin ones, and what that misses in a later step.

    Vogels, Karimireddy and Jaggi, "PowerSGD: practical low-rank gradient compression", NeurIPS 2019.
    """

    rank: int
    """Columns of the thin matrices, at least 1."""

    def __post_init__(self) -> None:
        """Check the rank."""
        if self.rank < 1:
            raise ValueError("PowerSGD needs a rank of at least 1")


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


def wire_dtype_of(compression: Any) -> tuple[bool, torch.dtype | None]:
    """Return whether a compression only changes the element type, and to which (None: to none)."""
    kind = compression if isinstance(compression, type) else type(compression)
    return kind in WIRE_DTYPES, WIRE_DTYPES.get(kind)


def described(compression: Any) -> str:
    """Return words that are equal on all ranks if the compression is: its class, and its plain arguments.

    Arguments that are no plain values stand there by their class alone: their words may hold an address.
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
    """Return the compression; `ValueError` where it is none, or lacks its argument."""
    if compression in (TopK, PowerSGD):
        name, example = ("topk", "0.01") if compression is TopK else ("powersgd", "2")
        raise ValueError(f"say how much: Compression.{name}({example})")
    if not all(callable(getattr(compression, name, None)) for name in ("compress", "decompress")):
        raise ValueError(f"{compression!r} is no compressor: it needs the methods compress and decompress")
    return compression


WIRE_DTYPES: dict[Any, torch.dtype | None] = {
    NoneCompressor: None,
    FP16Compressor: torch.float16,
    BF16Compressor: torch.bfloat16,
}
"""Compressions that do no more than change the element type, for which gradients need not leave their bucket,
and the type in which floating-point gradients travel (None: their own)."""

"""What a compressor is, and the one that leaves everything as it is. Names are Horovod's."""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """The interface: compress before the exchange, decompress after it.

    Your own class with these two static methods works in `DistributedOptimizer` too. What ``compress``
    returns is summed over the ranks, so it must have the same shape and type on all of them.
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return the tensor for the wire and what `decompress` needs."""
        raise TypeError("a compressor must define compress")

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in its first type."""
        raise TypeError("a compressor must define decompress")


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

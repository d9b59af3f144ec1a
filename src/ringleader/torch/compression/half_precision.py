"""float16 and bfloat16 on the wire: floating-point tensors travel in a smaller element type."""

from __future__ import annotations

from typing import Any

import torch

from ringleader.torch.compression.compressor import Compressor


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

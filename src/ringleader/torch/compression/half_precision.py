"""float16 and bfloat16 on the wire: floating-point tensors travel in a smaller element type."""

from __future__ import annotations

from typing import Any, ClassVar

import torch

from ringleader.common.compression import Compressor


class HalfPrecisionCompressor(Compressor):
    """Send floating-point tensors in ``wire_dtype``; leave the others."""

    wire_dtype: ClassVar[torch.dtype]

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Return a copy in the smaller type, and the first type."""
        small = tensor.to(cls.wire_dtype) if tensor.dtype.is_floating_point else tensor
        return small, tensor.dtype

    @classmethod
    def decompress(cls, tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Return the tensor in the type that ``compress`` noted."""
        return tensor.to(ctx)


class FP16Compressor(HalfPrecisionCompressor):
    """Send floating-point tensors as float16."""

    wire_dtype = torch.float16


class BF16Compressor(HalfPrecisionCompressor):
    """Send floating-point tensors as bfloat16, which has float32's range."""

    wire_dtype = torch.bfloat16

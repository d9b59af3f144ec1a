"""What keeps residuals."""

from __future__ import annotations

from typing import Any

import torch

from ringleader.common.compression import Compressor


class ErrorFeedbackCompressor(Compressor):
    """A compression that keeps a residual per parameter; only `DistributedOptimizer` can use it.

    Error feedback: what a step does not send of a gradient is kept, and added to the next step's. What was
    sent in all steps and what is still kept add up to the sum of the gradients (Stich, Cordonnier and Jaggi,
    "Sparsified SGD with memory", NeurIPS 2018).
    """

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Refuse: a single operation has nowhere to keep a residual."""
        raise ValueError("this compression keeps a residual per gradient: pass it to DistributedOptimizer")


def residual_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which residuals of such gradients are kept: half types would lose some."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype

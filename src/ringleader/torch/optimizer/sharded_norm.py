"""Clipping gradients of which every rank has a part."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp
from ringleader.common.object_exchange import sum_numbers


def clip_parts(
    engine: Engine,
    parts: Sequence[torch.Tensor],
    *,
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool,
    name: str,
) -> torch.Tensor:
    """Scale 1-D parts of gradients to a norm over all ranks of at most ``max_norm``; return what it was.

    Collective. `RuntimeError` for a norm that is not finite, on all ranks, where that is asked for.
    """
    norms = [float(torch.linalg.vector_norm(part, norm_type, dtype=_wide(part))) for part in parts]
    if math.isinf(norm_type):
        total = sum_numbers(engine, array("d", [max(norms, default=0.0)]), name, ReduceOp.MAX)[0]
    else:
        powers = sum(norm**norm_type for norm in norms)
        total = sum_numbers(engine, array("d", [powers]), name)[0] ** (1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped."
        )
    factor = max_norm / (total + 1e-6)
    if not factor >= 1.0:  # also where the norm is not a number, as PyTorch does
        for part in parts:
            part.mul_(factor)
    first = parts[0] if parts else torch.zeros(())
    return torch.tensor(total, dtype=first.dtype, device=first.device)


def _wide(part: torch.Tensor) -> torch.dtype:
    """Return the type in which the norm of a part is computed."""
    return torch.float64 if part.dtype == torch.float64 else torch.float32

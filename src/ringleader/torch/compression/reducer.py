"""Gradients over the ranks when what travels is not the gradient itself: what a reducer does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp
from ringleader.common.compression import Compressor
from ringleader.torch.engine_operations import reduce_all, reduction


@dataclass(frozen=True, kw_only=True)
class GradientReduction:
    """The reduction that a script wants for its gradients. Equal on all ranks."""

    engine: Engine
    """Does it, for the ranks that take part."""
    name: str
    """Begins the names of its operations; tells this optimizer from others."""
    op: ReduceOp
    """The reduction; ``AVERAGE`` divides by the number of ranks."""
    prescale: float
    """Factor on each rank's gradients before the sum."""
    postscale: float
    """Factor on the result."""

    def factor_on_sum(self) -> float:
        """Return the factor on a sum over the ranks; `ValueError` for any other operation."""
        if self.op is ReduceOp.AVERAGE:
            return 1.0 / self.engine.ranks.size
        if self.op is ReduceOp.SUM:
            return 1.0
        raise ValueError(f"this compression supports a sum or an average, not {self.op.name.lower()}")


class Reducer(Protocol):
    """Reduces gradients over the ranks. What it remembers of parameters outlives the engine's memory."""

    def begin(self, reduction: GradientReduction, parameters: Sequence[torch.Tensor]) -> None:
        """Reduce the gradients of these parameters from now on; forget all others.

        `ValueError` where it has no such reduction.
        """
        ...

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Replace the contents of the parameters' gradients by the reduction over the ranks. Collective."""
        ...


class CompressorReducer:
    """A reducer that sends every gradient as the script's own compressor makes it."""

    def __init__(self, compressor: Compressor | type[Compressor]) -> None:
        """Take what has ``compress`` and ``decompress``, as `Compressor` describes it."""
        self._compressor = compressor

    def begin(self, reduction: GradientReduction, parameters: Sequence[torch.Tensor]) -> None:
        """See `Reducer`."""
        self._reduction = reduction

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Compress, reduce what that gives, decompress."""
        wanted = self._reduction
        small = [self._compressor.compress(gradient) for gradient in gradients]
        works = [
            reduction(
                tensor.contiguous().clone() if tensor is gradient else tensor.contiguous(),
                f"{wanted.name}.gradient.{at}",
                op=wanted.op,
                prescale=wanted.prescale,
                postscale=wanted.postscale,
            )
            for at, (gradient, (tensor, _context)) in enumerate(zip(gradients, small, strict=True))
        ]
        reduce_all(wanted.engine, works)
        for gradient, work, (tensor, context) in zip(gradients, works, small, strict=True):
            gradient.copy_(self._compressor.decompress(work.out.view(tensor.shape), context))

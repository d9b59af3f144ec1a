"""Gradients that stay in this rank's own memory, because what travels is something smaller.

`LocalGradients` does what `GradientBuckets` does for a script; a *reducer* decides what travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ringleader.collectives.engine import Engine
from ringleader.torch.compression.compressor import Compressor, PowerSGD, TopK
from ringleader.torch.compression.powersgd import PowerSgdReducer
from ringleader.torch.compression.topk import TopKReducer
from ringleader.torch.engine_operations import anybody, reduce_all, reduction
from ringleader.torch.optimizer.bucket_memory import Manner, Named


class Reducer(Protocol):
    """Reduces gradients over the ranks. What it remembers of parameters outlives an exchanger."""

    def begin(self, engine: Engine, manner: Manner, parameters: Sequence[torch.Tensor]) -> None:
        """Reduce the gradients of these parameters from now on, on these ranks; forget all others.

        `ValueError` where it has no such reduction.
        """
        ...

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Replace the contents of the parameters' gradients by the reduction over the ranks. Collective."""
        ...


class LocalGradients:
    """The gradients of some parameters, each where autograd put it."""

    asks_first = True
    """The ranks agree before anything is exchanged: what a reducer keeps of a parameter that was frozen
    must not move it any more, and a new one is to go through the reducer too."""

    def __init__(self, engine: Engine, parameters: Named, manner: Manner, reducer: Reducer) -> None:
        """Take the parameters, the same ones in the same order on all ranks."""
        self.noticed: dict[int, int] = {}
        """Always empty: sparse gradients become dense here."""
        self.sparse: dict[int, int] = {}
        """Always empty."""
        self._engine = engine
        self._name = f"{manner.serial}.asks"
        self._parameters = [tensor for _name, tensor in parameters]
        self._reducer = reducer
        self._asks = False
        reducer.begin(engine, manner, self._parameters)

    def arrived(self, parameter: torch.Tensor) -> None:
        """Wait until all gradients are there."""

    def ask(self) -> None:
        """Let the next exchange tell all ranks that this one has something to agree on."""
        self._asks = True

    def exchange(self) -> bool:
        """Reduce all gradients over the ranks, or return True, with nothing done, where a rank asks."""
        asked, self._asks = self._asks, False
        if anybody(self._engine, asked, self._name):
            return True
        self.resume()
        return False

    def resume(self) -> None:
        """Reduce all gradients over the ranks. A parameter without a gradient counts as zero here."""
        idle = []
        gradients = []
        for parameter in self._parameters:
            grad = parameter.grad
            if grad is None:
                grad = torch.zeros_like(parameter)
                if not parameter.requires_grad:
                    idle.append(parameter)
            elif grad.is_sparse:
                grad = grad.to_dense()
            if parameter.grad is not grad:
                parameter.grad = grad
            gradients.append(grad.detach())
        self._reducer.reduce(self._parameters, gradients)
        for parameter in idle:
            if parameter.grad is not None and not parameter.grad.any():
                parameter.grad = None

    def adopt(self, sparse: dict[int, int]) -> dict[int, torch.Tensor]:
        """Nothing is ever sparse."""
        return {}

    def recut(self, cap_bytes: int | None) -> int:
        """Return the number of buckets: there are none."""
        return 0

    def leave(self) -> None:
        """Hold no memory of the engine."""


class OneByOne:
    """Every gradient as the script's compressor makes it."""

    def __init__(self, compressor: Any) -> None:
        """Take what has ``compress`` and ``decompress``, as `Compressor` describes it."""
        self._compressor = compressor

    def begin(self, engine: Engine, manner: Manner, parameters: Sequence[torch.Tensor]) -> None:
        """Remember nothing but the ranks."""
        self._engine = engine
        self._manner = manner

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Compress, reduce what that gives, decompress."""
        manner = self._manner
        small = [self._compressor.compress(gradient) for gradient in gradients]
        works = [
            reduction(
                tensor.contiguous().clone() if tensor is gradient else tensor.contiguous(),
                f"{manner.serial}.gradient.{at}",
                op=manner.op,
                prescale=manner.prescale,
                postscale=manner.postscale,
            )
            for at, (gradient, (tensor, _context)) in enumerate(zip(gradients, small, strict=True))
        ]
        reduce_all(self._engine, works)
        for gradient, work, (tensor, context) in zip(gradients, works, small, strict=True):
            gradient.copy_(self._compressor.decompress(work.out.view(tensor.shape), context))


def reducer_of(compression: Compressor | type[Compressor]) -> Reducer:
    """Return what exchanges gradients under a compression that is not only a smaller element type."""
    if isinstance(compression, TopK):
        return TopKReducer(compression)
    if isinstance(compression, PowerSGD):
        return PowerSgdReducer(compression)
    return OneByOne(compression)

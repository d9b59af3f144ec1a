"""Gradients that stay in this rank's own memory, because what travels is something smaller.

`LocalGradients` does what `GradientBuckets` does for a script; a *reducer* decides what travels.
"""

from __future__ import annotations

import torch

from ringleader.collectives.engine import Engine
from ringleader.common.object_exchange import any_rank
from ringleader.torch.compression.reducer import GradientReduction, Reducer
from ringleader.torch.optimizer.gradient_config import GradientConfig, Named
from ringleader.torch.optimizer.gradient_exchange import GradientExchange


class LocalGradients(GradientExchange):
    """The gradients of some parameters, each where autograd put it."""

    agrees_first = True
    """The ranks agree before anything is exchanged: what a reducer keeps of a parameter that was frozen
    must not move it any more, and a new one is to go through the reducer too."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig, reducer: Reducer) -> None:
        """Take the parameters, the same ones in the same order on all ranks."""
        super().__init__()
        self._engine = engine
        self._name = f"{config.serial}.asks"
        self._parameters = [tensor for _name, tensor in parameters]
        self._reducer = reducer
        reduction = GradientReduction(
            engine=engine,
            name=str(config.serial),
            op=config.op,
            prescale=config.prescale,
            postscale=config.postscale,
        )
        reducer.begin(reduction, self._parameters)

    def exchange(self) -> bool:
        """Reduce all gradients, or return True, with nothing done, where a rank requests an agreement."""
        mine, self._wants_agreement = self._wants_agreement, False
        if any_rank(self._engine, mine, self._name):
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

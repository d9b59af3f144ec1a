"""What an optimizer has exchange its gradients: each where it is, or in buckets (`gradient_buckets`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from ringleader.adapters.object_exchange import any_rank
from ringleader.engine.group_engine import Engine
from ringleader.torch.gradient_config import GradientConfig, Named

if TYPE_CHECKING:
    from ringleader.torch.compression.reducer import Reducer


def idle_ones(parameters: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return the parameters that are frozen and have no gradient here."""
    return [one for one in parameters if one.grad is None and not one.requires_grad]


def drop_zeros(idle: Iterable[torch.Tensor]) -> None:
    """Have None again for what is frozen where the exchange shows that no rank has a gradient."""
    for parameter in idle:
        grad = parameter.grad
        if grad is not None and not (grad._nnz() if grad.is_sparse else grad.any()):
            parameter.grad = None


class GradientExchange:
    """The exchange of some parameters' gradients; see `GradientBuckets` and `LocalGradients`."""

    agrees_first = False
    """Whether the ranks agree before anything is exchanged. If not, they agree in the course of an exchange,
    so that a step in which no rank requests it costs nothing more."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig) -> None:
        """Take the parameters, the same ones in the same order on all ranks, with nothing to agree on."""
        self._engine, self._config = engine, config
        self._parameters = [tensor for _name, tensor in parameters]
        self.new_sparse: dict[int, int] = {}
        """Parameters (by index) whose gradients turned out to be sparse here, not yet known to all ranks, and
        the number of sparse dimensions."""
        self.sparse: dict[int, int] = {}
        """Parameters that all ranks know to have sparse gradients."""
        self.restart = False
        """Whether parameters have another type or layout here than the exchange was made for."""
        self.left_out: set[int] = set()
        """Parameters (by index) whose gradients this exchange could not take: they are exchanged after it."""
        self._wants_agreement = False
        self.too_late = False
        """Whether this rank noticed something too late for the last exchange: it is sent with the next."""

    @property
    def under_way(self) -> bool:
        """Whether gradients of this step travel already."""
        return False

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        """Note that a gradient is complete."""

    def request_agreement(self) -> None:
        """Let the next exchange tell all ranks that this one has something to agree on."""
        self._wants_agreement = True

    def _any_rank(self, asks: bool) -> bool:
        """Return whether a rank has something to agree on: a small exchange. Collective."""
        return any_rank(self._engine, asks, f"{self._config.serial}.asks")

    def exchange(self) -> bool:
        """Reduce all gradients over the ranks; return whether a rank requests an agreement.

        Then all ranks get True; they exchange what they noticed and `resume`. A parameter without a gradient
        counts as zero here.
        """
        raise NotImplementedError

    def resume(self) -> None:
        """Exchange what was left for after the agreement. Collective."""
        raise NotImplementedError

    def take_changes(self) -> tuple[bool, list[int]]:
        """Return ``restart`` and ``left_out``, which the other ranks get now, and forget them."""
        changes = self.restart, sorted(self.left_out)
        self.restart = False
        self.left_out.clear()
        return changes

    def set_sparse(self, sparse: dict[int, int]) -> dict[int, torch.Tensor]:
        """Know which gradients are sparse, from all ranks.

        Returns, for each, the sum of those that were dense on some ranks and are exchanged already.
        """
        return {}

    def resize(self, cap_bytes: int | None) -> int:
        """Cut the same memory into other buckets, of at most ``cap_bytes``; return how many. Collective."""
        return 0

    def detach(self) -> None:
        """Move the gradients into memory of this rank's own, before the engine's memory goes."""


class LocalGradients(GradientExchange):
    """The gradients of some parameters, each where autograd put it: what travels is something smaller.

    It does what `GradientBuckets` does for a script; a *reducer* decides what travels.
    """

    agrees_first = True
    """The ranks agree before anything is exchanged: what a reducer keeps of a parameter that was frozen
    must not move it any more, and a new one is to go through the reducer too."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig, reducer: Reducer) -> None:
        """See `GradientExchange`."""
        super().__init__(engine, parameters, config)
        self._reducer = reducer
        reducer.begin(engine, config, self._parameters)

    def exchange(self) -> bool:
        """Reduce all gradients, or return True, with nothing done, where a rank requests an agreement."""
        mine, self._wants_agreement = self._wants_agreement, False
        if self._any_rank(mine):
            return True
        self.resume()
        return False

    def resume(self) -> None:
        """Reduce all gradients over the ranks. A parameter without a gradient counts as zero here."""
        idle = idle_ones(self._parameters)
        gradients = []
        for parameter in self._parameters:
            grad = parameter.grad
            if grad is None:
                grad = torch.zeros_like(parameter)
            elif grad.is_sparse:
                grad = grad.to_dense()
            if parameter.grad is not grad:
                parameter.grad = grad
            gradients.append(grad.detach())
        self._reducer.reduce(self._parameters, gradients)
        drop_zeros(idle)

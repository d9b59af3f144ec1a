"""The optimizer under ``op=Adasum``: ranks combine what their own steps changed, not their gradients.

Every rank lets the wrapped optimizer make its step with its own gradients; the difference that this made to
each parameter is combined over the ranks by the Adasum rule, and applied to where the step began.

Maleki, Musuvathi, Mytkowicz et al., "Scaling distributed training with adaptive summation", MLSys 2021.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import torch

from ringleader.adapters.process_sets import global_process_set, group_of
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp
from ringleader.torch.compression.reducer import ErrorFeedbackCompressor
from ringleader.torch.engine_operations import reduce_all, reduction
from ringleader.torch.gradient_config import GradientConfig, Named
from ringleader.torch.optimizer.gradient_exchange import GradientExchange
from ringleader.torch.optimizer.optimizer_settings import OptimizerSettings
from ringleader.torch.optimizer.replicated_optimizer import ReplicatedMixin
from ringleader.torch.optimizer.trained_parameters import TrainedParameters


class AdasumMixin(ReplicatedMixin):
    """What `DistributedOptimizer` puts in front of the wrapped class under Adasum."""

    def init_mixin(self, named: Named, settings: OptimizerSettings, passes: int) -> Self:
        """See `OptimizerMixin`."""
        if isinstance(settings.compression, ErrorFeedbackCompressor):
            raise ValueError("this compression supports a sum or an average of gradients, not adasum")
        super().init_mixin(named, settings, passes)
        self._trained_parameters = TrainedParameters(drop_frozen=False)
        return self

    def prepare(self) -> None:
        """Meet the other ranks; `ValueError` where they have other parameters. Collective."""
        size = group_of(global_process_set, "Allreduce").ranks.size
        if size & (size - 1):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")
        super().prepare()

    def _new_exchanger(self, engine: Engine, config: GradientConfig) -> GradientExchange:
        return StepExchange(engine, self._named, config)

    def synchronize(self) -> None:
        """Do nothing: there is nothing to exchange before the step."""

    def skip_synchronize(self) -> Any:
        """Refuse: what is exchanged is known only after the step."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def _exchange_for_step(self) -> None:
        super().synchronize()

    def _exchanging(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        self._exchange_for_step()
        return closure

    def _apply(self, closure: Callable[[], Any] | None) -> Any:
        """Let the wrapped optimizer make its step, and combine what it changed with the other ranks."""
        exchanger = self._exchanger
        if self._unsynchronized or not isinstance(exchanger, StepExchange):
            return super()._apply(closure)
        before = exchanger.copies()
        result = super()._apply(closure)
        exchanger.combine(before, self._settings.compression)
        self._forget_passes()  # those of a closure, which ran after the exchange of gradients was over
        return result


class StepExchange(GradientExchange):
    """What the steps of all ranks changed of some parameters; of gradients there is nothing to exchange."""

    agrees_first = True

    def exchange(self) -> bool:
        """Return whether a rank requests an agreement; see `GradientExchange`."""
        mine, self._wants_agreement = self._wants_agreement, False
        return self._any_rank(mine)

    def resume(self) -> None:
        """See `GradientExchange`."""

    def copies(self) -> list[torch.Tensor]:
        """Return where the parameters are before a step."""
        return [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def combine(self, before: list[torch.Tensor], compressor: Any) -> None:
        """Replace every parameter by where it was plus what all ranks' steps changed. Collective."""
        steps = zip(self._parameters, before, strict=True)
        small = [compressor.compress(parameter - start) for parameter, start in steps]
        works = [
            reduction(delta.contiguous(), f"{self._config.serial}.delta.{at}", op=ReduceOp.ADASUM)
            for at, (delta, _context) in enumerate(small)
        ]
        reduce_all(self._engine, works)
        steps = zip(self._parameters, before, strict=True)
        for (parameter, start), work, (_delta, context) in zip(steps, works, small, strict=True):
            parameter.copy_(start + compressor.decompress(work.out, context))

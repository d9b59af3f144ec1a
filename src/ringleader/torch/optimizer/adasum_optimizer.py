"""The optimizer under ``op=Adasum``: ranks combine what their own steps changed, not their gradients.

Every rank lets the wrapped optimizer make its step with its own gradients; the difference that this made to
each parameter is combined over the ranks by the Adasum rule, and applied to where the step began.

Maleki, Musuvathi, Mytkowicz et al., "Scaling distributed training with adaptive summation", MLSys 2021.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Self

import torch

from ringleader.adapters.object_exchange import any_rank, gather_objects
from ringleader.adapters.process_sets import global_process_set, group_of
from ringleader.adapters.step_metrics import StepMetrics
from ringleader.engine.operations import ReduceOp
from ringleader.torch.basics import session
from ringleader.torch.compression.reducer import ErrorFeedbackCompressor
from ringleader.torch.engine_operations import reduce_all, reduction
from ringleader.torch.gradient_config import Named
from ringleader.torch.optimizer.optimizer_mixin import OptimizerMixin
from ringleader.torch.optimizer.optimizer_settings import OptimizerSettings
from ringleader.torch.optimizer.trained_parameters import TrainedParameters

_SERIAL = itertools.count()


class AdasumMixin(OptimizerMixin):
    """What `DistributedOptimizer` puts in front of the wrapped class under Adasum."""

    def init_mixin(self, named: Named, settings: OptimizerSettings, passes: int) -> Self:
        """See `OptimizerMixin`."""
        if isinstance(settings.compression, ErrorFeedbackCompressor):
            raise ValueError("this compression supports a sum or an average of gradients, not adasum")
        self._trained_parameters = TrainedParameters(drop_frozen=False)
        return super().init_mixin(named, settings, passes)

    def prepare(self) -> None:
        """Meet the other ranks; `ValueError` where they have other parameters. Collective."""
        current = session()
        group = group_of(global_process_set, "Allreduce")
        size = group.ranks.size
        if size & (size - 1):
            raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")
        self._engine = group.engine
        self._metrics = StepMetrics.from_environment(current.engine, timelines=current.timelines)
        self._named = self._choose_trained()
        self._trained = [parameter for _name, parameter in self._named]
        shapes = [(str(p.dtype), tuple(p.shape)) for p in self._trained]
        answers = gather_objects(self._engine, (next(_SERIAL), shapes), "adasum")
        self._serial = answers[0][0]
        if any(theirs != answers[0][1] for _serial, theirs in answers):
            raise ValueError("the optimizer's parameters differ between ranks")
        self._hook(self._trained)
        current.at_shutdown.add(self._shut_down)
        self._ready = True

    def _shut_down(self) -> None:
        self._ready = False

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        if not self._unsynchronized:
            self._count(parameter)

    def synchronize(self) -> None:
        """Do nothing: there is nothing to exchange before the step."""

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Refuse: what is exchanged is known only after the step."""
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")

    def _agree(self) -> None:
        """Agree with the other ranks on parameters that were thawed or added since the last step."""
        asks = self._trained_parameters.changed(self.param_groups)
        if not any_rank(self._engine, asks, f"{self._serial}.asks"):
            return
        mine = self._trained_parameters.propose(self.param_groups)
        if (
            self._trained_parameters.agree(gather_objects(self._engine, mine, f"{self._serial}.noticed"))
            is not None
        ):
            self.prepare()

    @torch.no_grad()
    def _combine(self, before: list[torch.Tensor]) -> None:
        """Replace every parameter by where it was plus what all ranks' steps changed."""
        compressor = self._settings.compression
        small = [
            compressor.compress(parameter - start)
            for parameter, start in zip(self._trained, before, strict=True)
        ]
        works = [
            reduction(delta.contiguous(), f"{self._serial}.delta.{at}", op=ReduceOp.ADASUM)
            for at, (delta, _context) in enumerate(small)
        ]
        reduce_all(self._engine, works)
        for parameter, start, work, (_delta, context) in zip(
            self._trained, before, works, small, strict=True
        ):
            parameter.copy_(start + compressor.decompress(work.out, context))

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Let the wrapped optimizer make its step, and combine what it changed with the other ranks."""
        if not self._ready:
            self.prepare()
        if self._unsynchronized:
            return super().step(closure)  # type: ignore[misc]
        self._agree()
        group = group_of(global_process_set, "Allreduce")
        self._check.exchanged(group, self._named, f"{self._serial}.consistency")
        before = [parameter.detach().clone() for parameter in self._trained]
        result = super().step(closure)  # type: ignore[misc]
        self._combine(before)
        self._forget_passes()
        self._metrics.step()
        return result

    step.hooked = True  # type: ignore[attr-defined]

"""The optimizer that every rank has whole: the gradients of all ranks are exchanged before every step."""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any, Self

import torch

from ringleader.adapters.autotune import Autotune, autotune
from ringleader.adapters.object_exchange import gather_objects
from ringleader.adapters.process_sets import group_of, number_of
from ringleader.adapters.reductions import Average
from ringleader.adapters.step_metrics import StepMetrics
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp
from ringleader.torch.basics import session
from ringleader.torch.compression import (
    describe_compression,
    reducer_of,
    wire_dtype_of,
)
from ringleader.torch.engine_operations import reduce_all, reduction, sum_over_ranks, sum_sparse
from ringleader.torch.gradient_config import GradientConfig, Named, agree_on_config
from ringleader.torch.optimizer.gradient_buckets import GradientBuckets
from ringleader.torch.optimizer.gradient_exchange import (
    GradientExchange,
    LocalGradients,
    drop_zeros,
    idle_ones,
)
from ringleader.torch.optimizer.optimizer_mixin import OptimizerMixin, remove_hooks
from ringleader.torch.optimizer.trained_parameters import TrainedParameters

if TYPE_CHECKING:
    from ringleader.torch.optimizer.optimizer_settings import OptimizerSettings

BUCKET_BYTES = 8 << 20
"""Bucket size where buckets travel while backward continues; on one host all gradients are one bucket."""
TOO_LATE = (
    "A parameter on a GPU with a gradient joined the optimizer, or was unfrozen, after backward had begun; "
    "the gradients of that step are exchanged without it. Do that before backward, or after optimizer.step()."
)
LEFT_OUT = (
    "the gradient of {name} has another type or shape than the parameter, but not on rank {rank}: give it "
    "the same on all ranks"
)
TWO_OPTIMIZERS = (
    "another optimizer of the same parameters exchanges the gradients of this step already. To step two of "
    "them in turn, make both with a bucket_cap_mb above the size of the model, and without groups: then "
    "nothing travels before step()."
)
_SERIAL = itertools.count()
"""Numbers the optimizers of this process; rank 0's numbers are everybody's."""

_EXCHANGING: weakref.WeakSet[ReplicatedMixin] = weakref.WeakSet()
"""Optimizers that hold gradients. A gradient is in one place, so each parameter belongs to the last of them
that was made or used; the others make new buckets when they are used again."""


class ReplicatedMixin(OptimizerMixin):
    """What `DistributedOptimizer` puts in front of the wrapped class if every rank makes the whole step."""

    _buckets: type[GradientBuckets] = GradientBuckets

    def init_mixin(self, named: Named, settings: OptimizerSettings, passes: int) -> Self:
        """See `OptimizerMixin`."""
        self._should_synchronize = True
        self._synchronized = False
        self._reducer = reducer_of(settings.compression)
        shard = settings.shard
        self._trained_parameters = TrainedParameters(
            drop_frozen=shard or self._reducer is not None, keep_zeros=shard
        )
        self._exchanger: GradientExchange | None = None
        self._autotune: Autotune | None = None
        return super().init_mixin(named, settings, passes)

    # peers

    def prepare(self) -> None:
        """Meet the other ranks, and make buckets and hooks for the parameters of now. Collective."""
        current, settings = session(), self._settings
        everywhere = number_of(settings.process_set) == 0
        self._metrics = StepMetrics(current)
        self.release()
        self._ready, self._meets = True, False
        current.at_shutdown.add(self.release)
        if not everywhere and settings.process_set.included() is False:
            return
        group = group_of(settings.process_set, "Allreduce")
        self._engine: Engine = group.engine
        # A sharded optimizer has one bucket for each element type, whatever its size, and Adasum has none.
        tries = not settings.shard and settings.op is not ReduceOp.ADASUM
        if tries and (self._autotune is None or self._autotune.engine is not group.engine):
            self._autotune = autotune(group.engine, settings.cap_bytes)
            if self._autotune is not None:
                current.at_join.add(self._autotune.end)
        if group.ranks.size == 1 or group.engine.transport.name == "uncoupled":
            self._meets = group.ranks.size > 1
            return
        self._named = self._choose_trained()
        config = self._config(self._named, group.ranks.hosts)
        config = agree_on_config(
            group.engine, self._named, config, describe_compression(settings.compression)
        )
        self._serial = config.serial
        self._exchanger = self._new_exchanger(group.engine, config)
        self._hook([parameter for _name, parameter in self._named])

    def _new_exchanger(self, engine: Engine, config: GradientConfig) -> GradientExchange:
        """Return what exchanges the gradients, which no other optimizer has from now on."""
        mine = {id(p) for _name, p in self._named}
        for other in [other for other in _EXCHANGING if other is not self and other.holds(mine)]:
            if other._exchanger is not None and other._exchanger.under_way:
                raise RuntimeError(TWO_OPTIMIZERS)
            other.release()
        _EXCHANGING.add(self)
        if self._reducer is not None:
            return LocalGradients(engine, self._named, config, self._reducer)
        buckets = self._buckets(engine, self._named, config)
        self._metrics.set_buckets(buckets.count)
        return buckets

    def _config(self, named: Named, hosts: int) -> GradientConfig:
        """Return how gradients are exchanged, as this rank has it; all ranks must have the same."""
        settings, tuner = self._settings, self._autotune
        average, whole = settings.op is Average, not settings.shard
        apart = hosts > 1 or any(parameter.is_cuda for _name, parameter in named)
        cap_bytes = settings.cap_bytes or (BUCKET_BYTES if apart else None)
        return GradientConfig(
            op=settings.op,
            prescale=1.0 / settings.predivide if average else 1.0,
            postscale=settings.predivide if average else 1.0,
            wire_dtype=wire_dtype_of(settings.compression)[1],
            cap_bytes=(cap_bytes if tuner is None else tuner.cap_bytes) if whole else None,
            groups=settings.grouped(named) if whole else (),
            # On one host the processors that would move the bytes are those that compute: nothing is gained.
            overlap=apart and whole,
            sparse_as_dense=settings.sparse_as_dense,
            sharded=settings.shard,
            serial=next(_SERIAL),
        )

    def holds(self, parameters: set[int]) -> bool:
        """Return whether it exchanges the gradient of one of these parameters (given by identity)."""
        return self._exchanger is not None and any(id(p) in parameters for _name, p in self._named)

    def release(self) -> None:
        """Let go of the engine's memory; the next step makes new buckets."""
        remove_hooks(self._hooks)
        self._forget_passes()
        if self._exchanger is not None:
            self._exchanger.detach()
            self._exchanger = None
        self._ready = False

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        """Called by backward when a parameter's gradient is there."""
        exchanger = self._exchanger
        if exchanger is None or self._unsynchronized:
            return
        self._metrics.gradient()
        self._synchronized = False
        if not self._passes and not exchanger.agrees_first:
            self._request_if_changed(exchanger)
        if self._count(parameter):
            exchanger.gradient_ready(parameter)

    # what ranks agree on anew

    def _request_if_changed(self, exchanger: GradientExchange) -> None:
        """Let the exchange tell everybody that other parameters are to take part, if that is so."""
        if self._trained_parameters.changed(self.param_groups):
            exchanger.request_agreement()

    def _agree(self, exchanger: GradientExchange) -> None:
        """Tell all ranks what this one noticed, finish the exchange, and continue with other parameters."""
        # Which frozen parameters have a gradient on some rank shows when all are exchanged.
        resumed = self._trained_parameters.drop_frozen and not exchanger.agrees_first
        if resumed:
            exchanger.resume()
        mine = (
            exchanger.new_sparse,
            self._trained_parameters.propose(self.param_groups),
            exchanger.take_changes(),
            self._has_whole_state(),
        )
        facts = gather_objects(self._engine, mine, f"{self._serial}.noticed")
        sparse, proposals, changes, whole = map(list, zip(*facts, strict=True))
        new = self._trained_parameters.agree(proposals)
        if exchanger.agrees_first:
            if new is not None:
                self.prepare()
            if self._exchanger is not None:
                self._exchanger.resume()
            return
        if not resumed:
            exchanger.resume()
        self._take_sparse(exchanger, {at: dims for one in sparse for at, dims in one.items()})
        anew = self._begin_anew(new, changes)
        self._agreed(divide=anew or any(whole))

    def _has_whole_state(self) -> bool:
        """Return whether the optimizer's state is to be divided among the ranks."""
        return False

    def _agreed(self, *, divide: bool) -> None:
        """Note that the ranks agreed; ``divide``: on other parameters, or a state that some have whole."""

    def _take_sparse(self, exchanger: GradientExchange, sparse: dict[int, int]) -> None:
        """Exchange gradients that turned out to be sparse, on any rank, and know them as such."""
        self._exchange_sparse(exchanger.set_sparse(sparse) if sparse else {}, sparse)

    def _begin_anew(self, new: list[torch.Tensor] | None, changes: list[tuple[bool, list[int]]]) -> bool:
        """Make new buckets where parameters came or changed, and exchange what the last ones did not have.

        ``changes`` are those of all ranks (see `GradientExchange.take_changes`). Returns whether there are
        new buckets. `ValueError`, on all ranks, where a gradient was left out on some ranks alone.
        """
        named, left_out = self._named, sorted({at for _restart, those in changes for at in those})
        anew = new is not None or any(restart for restart, _left_out in changes)
        if anew:
            self.prepare()
        for rank, (_restart, those) in enumerate(changes):
            missing = sorted(set(left_out).difference(those))
            if missing:
                raise ValueError(LEFT_OUT.format(name=named[missing[0]][0], rank=rank))
        self._exchange_singly([*(new or []), *(named[at][1] for at in left_out)])
        return anew

    def _exchange_sparse(self, dense: dict[int, torch.Tensor], which: dict[int, int]) -> None:
        factor = 1.0 / self._engine.ranks.size if self._settings.op is Average else 1.0
        for at, dims in sorted(which.items()):
            name, parameter = self._named[at]
            label = f"{self._serial}.{name}"
            idle = idle_ones([parameter])
            sum_sparse(self._engine, parameter, dims, label, factor=factor, more=dense.get(at))
            drop_zeros(idle)

    def _exchange_singly(self, parameters: list[torch.Tensor]) -> None:
        works = []
        idle = idle_ones(parameters)
        sparse = [one for one in parameters if one.grad is not None and one.grad.is_sparse]
        dims = [one.grad.sparse_dim() for one in sparse if one.grad is not None]
        for at, parameter in enumerate(parameters):
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.detach()
            parameter.grad = (grad.to_dense() if grad.is_sparse else grad).contiguous()
            works.append(reduction(parameter.grad, f"{self._serial}.unfrozen.{at}", op=self._settings.op))
        reduce_all(self._engine, works)
        drop_zeros(idle)
        for parameter, count in zip(sparse, dims, strict=True):
            if parameter.grad is not None and self._settings.sparse_as_dense:
                parameter.grad = parameter.grad.to_sparse(count)

    # Horovod's methods

    def loaded(self) -> None:
        """See `OptimizerMixin`."""
        self._synchronized = False
        self._should_synchronize = True
        super().loaded()

    def synchronize(self) -> None:
        """Exchange the gradients, so that they may be looked at or clipped before `step`."""
        self.hide_zeros()
        if not self._ready:
            self.prepare()
        exchanger = self._exchanger
        if exchanger is not None:
            with self._exchange_of_a_step(exchanger):
                known = dict(exchanger.sparse)
                if exchanger.exchange():
                    self._agree(exchanger)
                elif exchanger.too_late and self._trained_parameters.unknown_gradient(self.param_groups):
                    raise RuntimeError(TOO_LATE)
                if known and not self._settings.sparse_as_dense:
                    self._exchange_sparse({}, known)
        elif self._meets:  # ranks that are in step, but exchange nothing
            self._engine.meet()
        self._synchronized = True

    @contextmanager
    def _exchange_of_a_step(self, exchanger: GradientExchange) -> Iterator[None]:
        """Note what is done within it as the exchange of a step; afterwards compare parameters where due."""
        self._metrics.exchange()
        self._request_if_changed(exchanger)
        try:
            yield
        finally:
            self._forget_passes()
        self._metrics.exchanged()
        # Trials are not to time that.
        if self._exchanger is not None and (self._autotune is None or self._autotune.over):
            group = group_of(self._settings.process_set, "Allreduce")
            self._check.exchanged(group, self._named, f"{self._serial}.consistency")

    def skip_synchronize(self) -> AbstractContextManager[None]:
        """Within it, `step` does not exchange: for scripts that called `synchronize` themselves."""
        return self._without_exchange()

    @contextmanager
    def _without_exchange(self) -> Iterator[None]:
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Exchange the gradients unless told otherwise, and let the wrapped optimizer make its step.

        With a ``closure`` the gradients are exchanged every time it was called, and the loss that it returns
        is reduced as they are: an optimizer that decides by the loss decides alike on all ranks.
        """
        inner = closure
        self.hide_zeros()
        if self._should_synchronize and not self._unsynchronized:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after "
                    "optimizer.synchronize(). This can cause training slowdown. You may want to consider "
                    "using optimizer.skip_synchronize() context if you use optimizer.synchronize() in your "
                    "code.",
                    stacklevel=2,
                )
            if closure is None:
                self._exchange_for_step()
            else:
                inner = self._exchanging(closure)
        elif not self._ready:
            self.prepare()
        self._synchronized = False
        result = self._apply(inner)
        self._synchronized = False
        self._metrics.step()
        tuner = self._autotune if self._exchanger is not None else None
        if tuner is not None and tuner.step(f"{self._serial}.autotune") and self._exchanger is not None:
            self._metrics.set_buckets(self._exchanger.resize(tuner.cap_bytes))
        return result

    step.hooked = True  # type: ignore[attr-defined]
    """The hooks of a step are called by the wrapped class's `step`; this one must not call them again."""

    def _exchange_for_step(self) -> None:
        """Exchange as much of the gradients as the step needs."""
        self.synchronize()

    def _apply(self, closure: Callable[[], Any] | None) -> Any:
        """Let the wrapped optimizer make its step with the gradients that are there."""
        return super().step(closure)  # type: ignore[misc]

    def _exchanging(self, closure: Callable[[], Any]) -> Callable[[], Any]:
        """Return a closure after which the gradients and the loss are those of all ranks."""

        def evaluate() -> Any:
            loss = closure()
            self._exchange_for_step()
            if loss is None or self._exchanger is None:
                return loss
            factor = 1.0 / self._engine.ranks.size if self._settings.op is Average else 1.0
            values = torch.as_tensor(loss).detach().reshape(1).to("cpu", torch.float64, copy=True)
            sum_over_ranks(self._engine, values, f"{self._serial}.loss", factor)
            if isinstance(loss, torch.Tensor):
                return values.to(loss.device, loss.dtype).view(loss.shape)
            return values.item()

        return evaluate

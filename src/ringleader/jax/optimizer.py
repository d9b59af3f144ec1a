"""DistributedOptimizer: an optimizer of optax on the gradients of all ranks, of one pass or of several."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ringleader.adapters.compression import run_compressed
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average
from ringleader.adapters.step_metrics import SessionMetrics
from ringleader.engine.operations import ReduceOp
from ringleader.jax.collective import ALLREDUCE, Collective, flatten
from ringleader.jax.compression import Compression, Compressor


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    compression: type[Compressor] = Compression.none,
    op: ReduceOp = Average,
    gradient_predivide_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
) -> Any:
    """Return an optimizer of optax that reduces all gradients over the ranks before it uses them.

    ``optimizer`` is a gradient transformation of optax; TypeError for anything else. All gradients of an
    update are exchanged together, under `jax.jit` by one callback. In `optax.chain` what stands before it
    sees this rank's gradients, and what is within it those of all ranks. Nothing around it may skip an update
    on some ranks alone.

    ``op`` is Average, Sum or Adasum. ``gradient_predivide_factor`` splits the division of an average:
    gradients are divided by it before they are added up, and by the rest afterwards. With
    ``backward_passes_per_step`` each rank adds up the gradients of this many updates (averages them with
    ``average_aggregated_gradients``), and then they are exchanged once and ``optimizer`` takes its step.
    """
    import optax

    if not (callable(getattr(optimizer, "init", None)) and callable(getattr(optimizer, "update", None))):
        raise TypeError(
            "hvd.DistributedOptimizer takes a gradient transformation of optax such as optax.adam(0.001), "
            f"not {type(optimizer).__name__}"
        )
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor is for op=hvd.Average")
    if backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step={backward_passes_per_step}: at least 1")
    inner = optax.with_extra_args_support(optimizer)
    metrics = SessionMetrics()
    reduction = (op, 1 / gradient_predivide_factor, float(gradient_predivide_factor))

    def update(updates: Any, state: Any, params: Any = None, **extra_args: Any) -> tuple[Any, Any]:
        leaves, structure, tree_name = flatten(updates, "DistributedOptimizer")
        exchange = GradientExchange(
            operation=ALLREDUCE,
            name=name or tree_name,
            process_set=process_set,
            arguments=reduction,
            metrics=metrics,
        )
        reduced = run_compressed(compression, leaves, exchange.apply)
        taken = jax.tree_util.tree_unflatten(structure, reduced)
        return inner.update(taken, state, params, **extra_args)

    reducing = optax.GradientTransformationExtraArgs(inner.init, update)
    if backward_passes_per_step == 1:
        return reducing
    return accumulated(reducing, backward_passes_per_step, average=average_aggregated_gradients)


@dataclass(frozen=True, kw_only=True)
class GradientExchange(Collective):
    """The reduction of a step's gradients."""

    metrics: SessionMetrics
    """Counts the steps of the optimizer."""

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Exchange arrays of the host and count the step."""
        metrics = self.metrics()
        metrics.set_buckets(1)
        metrics.exchange()
        try:
            return super().run(arrays, traced=traced)
        finally:
            metrics.exchanged()
            metrics.step()


class AccumulationState(NamedTuple):
    """The state of an optimizer that takes a step every few updates."""

    inner_state: Any
    """That of the optimizer that takes the steps."""
    gradients: Any
    """Sums of this rank's gradients since the last step."""
    passes: jax.Array
    """Updates since the last step."""


def accumulated(optimizer: Any, passes: int, *, average: bool) -> Any:
    """Return an optimizer whose every ``passes``-th update is one of ``optimizer``, with summed gradients.

    The other updates are zeros and cost no exchange. ``average``: the mean instead of the sum.
    """
    import optax

    def init(params: Any) -> AccumulationState:
        zeros = jax.tree_util.tree_map(jnp.zeros_like, params)
        return AccumulationState(optimizer.init(params), zeros, jnp.zeros((), jnp.int32))

    def update(updates: Any, state: AccumulationState, params: Any = None, **extra_args: Any) -> Any:
        sums = jax.tree_util.tree_map(lambda one, other: one + other, state.gradients, updates)

        def step() -> tuple[Any, AccumulationState]:
            taken = jax.tree_util.tree_map(lambda one: one / passes, sums) if average else sums
            made, inner = optimizer.update(taken, state.inner_state, params, **extra_args)
            zeros = jax.tree_util.tree_map(jnp.zeros_like, sums)
            return made, AccumulationState(inner, zeros, jnp.zeros_like(state.passes))

        def wait() -> tuple[Any, AccumulationState]:
            likes, _state = jax.eval_shape(step)  # updates may be of another type than gradients
            zeros = jax.tree_util.tree_map(lambda like: jnp.zeros(like.shape, like.dtype), likes)
            return zeros, AccumulationState(state.inner_state, sums, state.passes + 1)

        return jax.lax.cond(state.passes + 1 >= passes, step, wait)

    return optax.GradientTransformationExtraArgs(init, update)

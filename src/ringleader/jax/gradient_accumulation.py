"""Gradients of several passes added up on each rank, so that they are exchanged once."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp


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

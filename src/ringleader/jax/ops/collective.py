"""One operation on all leaves of a tree: at once on arrays, as one callback of a program on what is traced.

Under `jax.jit` an operation becomes one call of Python within the compiled program. JAX keeps these calls in
the order of the program. XLA runs calls without an order as it likes, and each blocks one of its threads
until the other ranks come to the same: ranks that began with different ones would wait for each other
forever. An ordered call was measured to take 450 µs, one without order 250 to 360 µs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from jax.experimental import io_callback

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.common.numpy_adapter import Array
from ringleader.common.process_sets import ProcessSet
from ringleader.common.submit_operation import Operation
from ringleader.jax.arrays import shapes_of, to_jax, to_numpy
from ringleader.jax.basics import after_programs

try:
    from jax._src.core import trace_state_clean as _is_untraced
except ImportError:  # a version of JAX that has it elsewhere: only constants of a traced function differ

    def _is_untraced() -> bool:
        return True


def is_traced(leaves: Sequence[Any]) -> bool:
    """Return whether a call is part of a program that JAX makes, by its arguments or where it stands."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or not _is_untraced()


@dataclass(frozen=True, kw_only=True)
class Collective:
    """An operation of one kind; a subclass says which."""

    title: ClassVar[str]
    """Begins the messages of errors."""
    operation: ClassVar[Operation]
    """What the engine does with the leaves."""
    name: str
    """Tells the operation from others; equal on all ranks."""
    process_set: ProcessSet
    inputs: tuple[jax.ShapeDtypeStruct, ...] = ()
    """Shapes and types of the leaves, set by `apply`."""

    @property
    def arguments(self) -> tuple[Any, ...]:
        """What the operation takes after the process set."""
        return ()

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results of a traced call, which must be known before it runs."""
        return self.inputs

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Exchange arrays of the host; raises what the engine raises."""
        if len(arrays) == 1:
            return (self.operation.run(arrays[0], self.name, self.process_set, *self.arguments),)
        return self.operation.run_group(arrays, self.name, self.process_set, *self.arguments)

    def gradients(self, grads: list[Any], inputs: Sequence[jax.ShapeDtypeStruct]) -> list[Any]:
        """Return the gradients of inputs for those of the outputs. Where Horovod's differ, they are those."""
        raise NotImplementedError

    def apply(self, leaves: Sequence[Any]) -> list[Any]:
        """Do the operation on arrays or tracers; the results are differentiable."""
        if not leaves:
            return []
        told = replace(self, inputs=shapes_of(leaves))
        if is_traced(leaves):
            return list(_differentiable(told, *leaves))
        return list(told.exchange(leaves))

    def exchange(self, leaves: Sequence[Any]) -> tuple[Any, ...]:
        """Do the operation on arrays now, or on tracers when the program runs."""
        if is_traced(leaves):
            self._check_place(leaves)
            return tuple(io_callback(self, self.outputs(), *leaves, ordered=True))
        after_programs()
        results = self.run([to_numpy(leaf) for leaf in leaves], traced=False)
        return tuple(to_jax(one, leaf) for one, leaf in zip(results, leaves, strict=True))

    def __call__(self, *leaves: Any) -> tuple[Array, ...]:
        """Exchange what a compiled program brings; called by XLA."""
        try:
            return tuple(self.run([to_numpy(leaf) for leaf in leaves], traced=True))
        except HorovodInternalError as error:
            # Of an exception JAX keeps the text alone, and scripts look for this name in it.
            raise HorovodInternalError(str(error)) from error

    def _check_place(self, leaves: Sequence[Any]) -> None:
        """Refuse transformations that have no meaning for this, and programs in which several devices, or
        several processes, would come to it."""
        tracers = {type(leaf).__name__ for leaf in leaves}  # JAX does not offer the classes
        if "BatchTracer" in tracers:
            raise ValueError(
                f"hvd.{self.title.lower()} is inside jax.vmap, which would exchange each element by itself; "
                f"call hvd.{self.title.lower()} outside, on what jax.vmap returns"
            )
        if "JVPTracer" in tracers:
            raise ValueError(
                f"hvd.{self.title.lower()} has first derivatives in reverse mode (jax.grad, jax.vjp) alone; "
                "take others of what one rank computes, and exchange those"
            )
        mesh = jax.sharding.get_abstract_mesh()
        if any(mesh.shape[axis] > 1 for axis in mesh.manual_axes):
            raise ValueError(
                f"hvd.{self.title.lower()} is inside shard_map or pmap, where each device would call it and "
                "nothing says which devices belong together; reduce over the devices first (jax.lax.psum), "
                f"and call hvd.{self.title.lower()} outside"
            )
        if jax.process_count() > 1:
            raise ValueError(
                f"hvd.{self.title.lower()} cannot be compiled after jax.distributed.initialize(), where one "
                "process would call it for all; use JAX's own collectives within jit, or leave that call out"
            )


@partial(jax.custom_vjp, nondiff_argnums=(0,))
def _differentiable(collective: Collective, *leaves: Any) -> tuple[Any, ...]:
    return collective.exchange(leaves)


def _forward(collective: Collective, *leaves: Any) -> tuple[tuple[Any, ...], None]:
    return collective.exchange(leaves), None


def _backward(collective: Collective, _residuals: None, grads: tuple[Any, ...]) -> tuple[Any, ...]:
    """Exchange the gradients of leaves that have one, in one call; integers have none."""
    there = [at for at, like in enumerate(collective.inputs) if jnp.issubdtype(like.dtype, jnp.inexact)]
    if not there:
        return (None,) * len(grads)
    found = collective.gradients([grads[at] for at in there], [collective.inputs[at] for at in there])
    done = dict(zip(there, found, strict=True))
    return tuple(done.get(at) for at in range(len(grads)))


_differentiable.defvjp(_forward, _backward)

"""One operation on all leaves of a tree: at once on arrays, as one callback of a program on what is traced.

`operations` has the functions of scripts, which make these.

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
import numpy
from jax.experimental import io_callback

from ringleader.adapters.array_operations import OPERATIONS
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.process_sets import ProcessSet, group_of
from ringleader.adapters.reductions import Average, Sum
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.exceptions import HorovodInternalError
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
    """An operation of one kind; a subclass says which. See `operation_kinds.GradientCalls` too."""

    operation: ClassVar[Operation]
    """What the engine does with the leaves."""
    name: str
    """Tells the operation from others; equal on all ranks."""
    process_set: ProcessSet
    arguments: tuple[Any, ...] = ()
    """What the operation takes after the process set."""
    inputs: tuple[jax.ShapeDtypeStruct, ...] = ()
    """Shapes and types of the leaves, set by `apply`."""

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results of a traced call, which must be known before it runs."""
        return self.inputs

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Exchange arrays of the host; raises what the engine raises."""
        if len(arrays) == 1:
            return (self.operation.run(arrays[0], self.name, self.process_set, *self.arguments),)
        return self.operation.run_group(arrays, self.name, self.process_set, *self.arguments)

    def gradients(self, grads: list[Any]) -> Sequence[Any]:
        """Return the gradients of the inputs for those of the outputs."""
        assert self.operation.gradient is not None
        return self.operation.gradient(self, grads, self.counts(traced=is_traced(grads)))

    def counts(self, *, traced: bool) -> Sequence[Any]:
        """Return, for each result, how many rows came from each rank, where the gradient asks for that."""
        return [()] * len(self.inputs)

    def reduce(self, grads: Sequence[Any], arguments: tuple[Any, ...]) -> Sequence[Any]:
        """See `GradientCalls`."""
        name = f"{self.name}.grad"
        return Allreduce(name=name, process_set=self.process_set, arguments=arguments).apply(grads)

    def gather(self, grads: Sequence[Any]) -> Sequence[Any]:
        """See `GradientCalls`; there are as many rows as in the inputs."""
        rows = tuple(like.shape[0] for like in self.inputs)
        return Allgather(name=f"{self.name}.grad", process_set=self.process_set, rows=rows).apply(grads)

    def own_rows(self, whole: Any, counts: Sequence[int], rank: int) -> Any:
        """See `GradientCalls`."""
        start = sum(counts[:rank])
        return whole[start : start + counts[rank]]

    def zeros(self, likes: Sequence[Any]) -> Sequence[Any]:
        """See `GradientCalls`."""
        return [jnp.zeros_like(one) for one in likes]

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
        title = self.operation.title.lower()
        tracers = {type(leaf).__name__ for leaf in leaves}  # JAX does not offer the classes
        if "BatchTracer" in tracers:
            raise ValueError(
                f"hvd.{title} is inside jax.vmap, which would exchange each element by itself; "
                f"call hvd.{title} outside, on what jax.vmap returns"
            )
        if "JVPTracer" in tracers:
            raise ValueError(
                f"hvd.{title} has first derivatives in reverse mode (jax.grad, jax.vjp) alone; "
                "take others of what one rank computes, and exchange those"
            )
        mesh = jax.sharding.get_abstract_mesh()
        if any(mesh.shape[axis] > 1 for axis in mesh.manual_axes):
            raise ValueError(
                f"hvd.{title} is inside shard_map or pmap, where each device would call it and "
                "nothing says which devices belong together; reduce over the devices first (jax.lax.psum), "
                f"and call hvd.{title} outside"
            )
        if jax.process_count() > 1:
            raise ValueError(
                f"hvd.{title} cannot be compiled after jax.distributed.initialize(), where one "
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
    chosen = replace(collective, inputs=tuple(collective.inputs[at] for at in there))
    done = dict(zip(there, chosen.gradients([grads[at] for at in there]), strict=True))
    return tuple(done.get(at) for at in range(len(grads)))


_differentiable.defvjp(_forward, _backward)


# kinds


@dataclass(frozen=True, kw_only=True)
class Allreduce(Collective):
    """A reduction of every leaf, whose gradient is the same reduction of the gradients."""

    operation = OPERATIONS.allreduce

    def gradients(self, grads: list[Any]) -> Sequence[Any]:
        """See `Collective`."""
        if self.arguments[0] not in (Average, Sum):
            raise NotImplementedError(
                f"hvd.allreduce with op={self.arguments[0].name.title()} has no gradient"
            )
        return super().gradients(grads)


@dataclass(frozen=True, kw_only=True)
class Allgather(Collective):
    """All ranks' rows of every leaf, whose gradient is this rank's rows of the average."""

    operation = OPERATIONS.allgather_rows
    rows: tuple[int, ...] | None = None
    """Rows of the results where they are known; None: every rank brings as many as this one."""

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results."""
        size = group_of(self.process_set, self.operation.title).ranks.size
        rows = self.rows or tuple(like.shape[0] * size for like in self.inputs)
        return tuple(
            jax.ShapeDtypeStruct((count, *like.shape[1:]), like.dtype)
            for count, like in zip(rows, self.inputs, strict=True)
        )

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Gather arrays of the host, and check what a compiled program took for granted."""
        pairs = super().run(arrays, traced=traced)
        for _rows, counts in pairs if traced and self.rows is None else ():
            if len(set(counts)) > 1:
                raise HorovodInternalError(
                    f"Allgather under jax.jit needs as many rows on every rank, and there are {counts}, by "
                    "rank; pad the arrays, or call hvd.allgather outside of jit"
                )
        return [rows for rows, _counts in pairs]

    def counts(self, *, traced: bool) -> Sequence[Any]:
        """See `Collective`. Where rows are known they are those of a reducescatter."""
        size = group_of(self.process_set, self.operation.title).ranks.size
        if self.rows is not None:
            return [[scattered_rows(whole, rank, size) for rank in range(size)] for whole in self.rows]
        own = [like.shape[0] for like in self.inputs]
        if traced:
            return [[rows] * size for rows in own]
        after_programs()
        everyones = OPERATIONS.allgather.run(
            numpy.array([own], "int64"), f"{self.name}.rows", self.process_set
        )
        return everyones.T.tolist()


@dataclass(frozen=True, kw_only=True)
class Broadcast(Collective):
    """The root's leaves on all ranks; the gradient is the average, on the root."""

    operation = OPERATIONS.broadcast


@dataclass(frozen=True, kw_only=True)
class Alltoall(Collective):
    """Equal parts of the rows of every leaf for each rank; the gradient goes back the same way."""

    operation = OPERATIONS.alltoall

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Exchange rows of arrays of the host, and check what a compiled program took for granted."""
        pairs = super().run(arrays, traced=traced)
        for array, (rows, counts) in zip(arrays, pairs, strict=True):
            if traced and rows.shape != array.shape:
                raise HorovodInternalError(
                    f"Alltoall under jax.jit needs as many rows on every rank; this one got {counts}, in the "
                    "order of ranks; call hvd.alltoall outside of jit"
                )
        return [rows for rows, _counts in pairs]

    def gradients(self, grads: list[Any]) -> Sequence[Any]:
        """Return the gradients to where the rows came from."""
        return replace(self, name=f"{self.name}.grad").apply(grads)


@dataclass(frozen=True, kw_only=True)
class Reducescatter(Collective):
    """This rank's rows of the reduction of every leaf; the gradient is all ranks' gradients, gathered."""

    operation = OPERATIONS.reducescatter

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results."""
        ranks = group_of(self.process_set, self.operation.title).ranks
        return tuple(
            jax.ShapeDtypeStruct(
                (scattered_rows(like.shape[0], ranks.rank, ranks.size), *like.shape[1:]), like.dtype
            )
            for like in self.inputs
        )


def scattered_rows(whole: int, rank: int, size: int) -> int:
    """Return a rank's rows of a reducescatter: the first ranks get one more where they cannot be shared."""
    return whole // size + (rank < whole % size)

"""One operation on all leaves of a tree: at once on arrays, as one callback of a program on what is traced.

`operations` has the functions of scripts, which make these.

Under `jax.jit` an operation becomes one call of Python within the compiled program. JAX keeps these calls in
the order of the program. XLA runs calls without an order as it likes, and each blocks one of its threads
until the other ranks come to the same: ranks that began with different ones would wait for each other
forever. An ordered call was measured to take 450 µs, one without order 250 to 360 µs.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax.experimental import io_callback

from ringleader.adapters.array_operations import OPERATIONS
from ringleader.adapters.compression import Compressor, NoneCompressor, run_compressed
from ringleader.adapters.numpy_adapter import Array, dtype_name
from ringleader.adapters.process_sets import ProcessSet, group_of
from ringleader.adapters.reductions import Average, Sum
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.exceptions import HorovodInternalError

LONGEST_NAME = 40
"""Characters of a tree's keys that an operation's name has."""

try:
    from jax._src.core import trace_state_clean as _is_untraced
except ImportError:  # a version of JAX that has it elsewhere: only constants of a traced function differ

    def _is_untraced() -> bool:
        return True


def after_programs() -> None:
    """Wait until compiled programs that were called have ended.

    A call returns before its program ends, and what the script does next must come after the program's
    operations on every rank. Raises the error of a program that failed.
    """
    jax.effects_barrier()


def is_traced(leaves: Sequence[Any]) -> bool:
    """Return whether a call is part of a program that JAX makes, by its arguments or where it stands."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or not _is_untraced()


ALLREDUCE, ALLTOALL, REDUCESCATTER = OPERATIONS.allreduce, OPERATIONS.alltoall, OPERATIONS.reducescatter
ALLGATHER = OPERATIONS.allgather_rows


@dataclass(frozen=True, kw_only=True)
class Collective:
    """An operation on all leaves of a tree. See `operation_kinds.GradientCalls` too."""

    operation: Operation
    """What the engine does with the leaves."""
    name: str
    """Tells the operation from others; equal on all ranks."""
    process_set: ProcessSet
    arguments: tuple[Any, ...] = ()
    """What the operation takes after the process set."""
    inputs: tuple[jax.ShapeDtypeStruct, ...] = ()
    """Shapes and types of the leaves, set by `apply` where it is traced."""
    rows: tuple[int, ...] | None = None
    """Rows of an allgather's results where they are known; None: every rank brings as many as this one."""

    def apply(self, leaves: Sequence[Any]) -> list[Any]:
        """Do the operation on arrays or tracers; the results are differentiable.

        What this rank sees to be wrong is refused, also while a program is traced.
        """
        group = group_of(self.process_set, self.operation.title)
        for leaf in leaves:
            self.operation.check(group, leaf.shape, dtype_name(leaf), *self.arguments)
        if not leaves:
            return []
        if not is_traced(leaves):
            return list(self.exchange(leaves))
        shapes = tuple(jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves)
        return list(_differentiable(replace(self, inputs=shapes), *leaves))

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
        title = f"hvd.{self.operation.title.lower()}"
        tracers = {type(leaf).__name__ for leaf in leaves}  # JAX does not offer the classes
        if "BatchTracer" in tracers:
            raise ValueError(
                f"{title} is inside jax.vmap, which would exchange each element by itself; "
                f"call {title} outside, on what jax.vmap returns"
            )
        if "JVPTracer" in tracers:
            raise ValueError(
                f"{title} has first derivatives in reverse mode (jax.grad, jax.vjp) alone; "
                "take others of what one rank computes, and exchange those"
            )
        mesh = jax.sharding.get_abstract_mesh()
        if any(mesh.shape[axis] > 1 for axis in mesh.manual_axes):
            raise ValueError(
                f"{title} is inside shard_map or pmap, where each device would call it and "
                "nothing says which devices belong together; reduce over the devices first (jax.lax.psum), "
                f"and call {title} outside"
            )
        if jax.process_count() > 1:
            raise ValueError(
                f"{title} cannot be compiled after jax.distributed.initialize(), where one "
                "process would call it for all; use JAX's own collectives within jit, or leave that call out"
            )

    def outputs(self) -> tuple[jax.ShapeDtypeStruct, ...]:
        """Return the shapes of the results of a traced call, which must be known before it runs."""
        ranks = group_of(self.process_set, self.operation.title).ranks
        if self.operation is REDUCESCATTER:
            rows = [scattered_rows(like.shape[0], ranks.rank, ranks.size) for like in self.inputs]
        elif self.operation is ALLGATHER:
            rows = list(self.rows or [like.shape[0] * ranks.size for like in self.inputs])
        else:
            return self.inputs
        return tuple(
            jax.ShapeDtypeStruct((count, *like.shape[1:]), like.dtype)
            for count, like in zip(rows, self.inputs, strict=True)
        )

    def run(self, arrays: Sequence[Array], *, traced: bool) -> Sequence[Array]:
        """Exchange arrays of the host, and check what a compiled program took for granted."""
        if len(arrays) == 1:
            results = (self.operation.run(arrays[0], self.name, self.process_set, *self.arguments),)
        else:
            results = self.operation.run_group(arrays, self.name, self.process_set, *self.arguments)
        if self.operation not in (ALLGATHER, ALLTOALL):
            return results
        for _rows, counts in results if traced and self.rows is None else ():
            if len(set(counts)) > 1:
                title = self.operation.title
                raise HorovodInternalError(
                    f"{title} under jax.jit needs as many rows on every rank, and there are {counts}, by "
                    f"rank; pad the arrays, or call hvd.{title.lower()} outside of jit"
                )
        return [rows for rows, _counts in results]

    def gradients(self, grads: list[Any]) -> Sequence[Any]:
        """Return the gradients of the inputs for those of the outputs."""
        if self.operation is ALLREDUCE and self.arguments[0] not in (Average, Sum):
            raise NotImplementedError(
                f"hvd.allreduce with op={self.arguments[0].name.title()} has no gradient"
            )
        if self.operation.gradient is None:  # an alltoall's go back to where the rows came from
            return self._of_gradients(self.operation, self.arguments).apply(grads)
        return self.operation.gradient(self, grads, self._counts(traced=is_traced(grads)))

    def _counts(self, *, traced: bool) -> Sequence[Any]:
        """Return, for each result, how many rows came from each rank, where the gradient asks for that."""
        if self.operation is not ALLGATHER:
            return [()] * len(self.inputs)
        size = group_of(self.process_set, self.operation.title).ranks.size
        if self.rows is not None:  # those of a reducescatter
            return [[scattered_rows(whole, rank, size) for rank in range(size)] for whole in self.rows]
        own = [like.shape[0] for like in self.inputs]
        if traced:
            return [[rows] * size for rows in own]
        after_programs()
        mine, name = numpy.array([own], "int64"), f"{self.name}.rows"
        return OPERATIONS.allgather.run(mine, name, self.process_set).T.tolist()

    def _of_gradients(self, operation: Operation, arguments: tuple[Any, ...]) -> Collective:
        return Collective(
            operation=operation, name=f"{self.name}.grad", process_set=self.process_set, arguments=arguments
        )

    def reduce(self, grads: Sequence[Any], arguments: tuple[Any, ...]) -> Sequence[Any]:
        """See `GradientCalls`."""
        return self._of_gradients(ALLREDUCE, arguments).apply(grads)

    def gather(self, grads: Sequence[Any]) -> Sequence[Any]:
        """See `GradientCalls`; there are as many rows as in the inputs."""
        rows = tuple(like.shape[0] for like in self.inputs)
        return replace(self._of_gradients(ALLGATHER, ()), rows=rows).apply(grads)

    def own_rows(self, whole: Any, counts: Sequence[int], rank: int) -> Any:
        """See `GradientCalls`."""
        start = sum(counts[:rank])
        return whole[start : start + counts[rank]]

    def zeros(self, likes: Sequence[Any]) -> Sequence[Any]:
        """See `GradientCalls`."""
        return [jnp.zeros_like(one) for one in likes]


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


# trees of arrays, and arrays of JAX's and of NumPy's: on CPUs the same memory, both ways


def flatten(tree: Any, title: str) -> tuple[list[Any], Any, str]:
    """Return the leaves of a tree as arrays or tracers, what puts them together, and a name for such trees.

    Numbers and NumPy's arrays become JAX's, floats with the bits that it has (32, unless told). The name is
    the same for trees of the same keys on all ranks. Raises `ValueError` for a leaf that cannot be exchanged,
    naming it and the operation (``title``).
    """
    pairs, structure = jax.tree_util.tree_flatten_with_path(tree)
    paths = [jax.tree_util.keystr(path) for path, _leaf in pairs]
    leaves = [_leaf(leaf, path, title) for path, (_path, leaf) in zip(paths, pairs, strict=True)]
    return leaves, structure, _tree_name(paths)


def _tree_name(paths: Sequence[str]) -> str:
    """Return a name for a tree: its keys, or of many the first and the last and a digest."""
    name = ",".join(paths)
    if len(name) <= LONGEST_NAME:
        return name or "array"
    return f"{paths[0][:LONGEST_NAME]}..{paths[-1][:LONGEST_NAME]}.{zlib.crc32(name.encode()):08x}"


def _leaf(leaf: Any, path: str, title: str) -> Any:
    where = f"{title}: the leaf {path} of the tree" if path else f"{title}: the argument"
    if not isinstance(leaf, jax.Array):  # tracers are instances, too
        try:
            given, leaf = leaf, jnp.asarray(leaf)
        except (TypeError, OverflowError) as error:
            raise ValueError(f"{where} is not an array or a number of JAX's: {error}") from None
        if leaf.dtype.kind in "iu" and not numpy.array_equal(given, leaf):
            raise ValueError(
                f"{where} has integers that need 64 bits, and JAX has 32; "
                'jax.config.update("jax_enable_x64", True) gives it 64'
            )
    elif not isinstance(leaf, jax.core.Tracer) and not leaf.is_fully_addressable:
        raise ValueError(
            f"{where} is spread over several processes of jax.distributed; use JAX's own collectives for it"
        )
    try:
        dtype_name(leaf)
    except (ValueError, AttributeError):
        raise ValueError(f"{where} has elements of type {leaf.dtype}, which cannot be exchanged") from None
    return leaf


def to_numpy(array: jax.Array) -> Array:
    """Return the elements of an array: on a CPU in the same memory, which must not be written."""
    return numpy.asarray(array)


def to_jax(array: Array, like: jax.Array) -> jax.Array:
    """Return an array of a result, on the devices of ``like``; on a CPU in the result's memory.

    JAX takes aligned memory without a copy, so nothing else may use the result any more.
    """
    place: Any = None
    if getattr(like, "committed", True):
        place = like.sharding if like.shape == array.shape else min(like.devices(), key=lambda one: one.id)
    return jax.device_put(array, place, may_alias=True)


def on_tree(
    operation: Operation,
    tree: Any,
    name: str | None,
    process_set: ProcessSet,
    arguments: tuple[Any, ...] = (),
    compression: type[Compressor] = NoneCompressor,
) -> Any:
    """Return a tree like another one with the results of an operation on its leaves."""
    leaves, structure, tree_name = flatten(tree, operation.title)
    collective = Collective(
        operation=operation, name=name or tree_name, process_set=process_set, arguments=arguments
    )
    return jax.tree_util.tree_unflatten(structure, run_compressed(compression, leaves, collective.apply))


def scattered_rows(whole: int, rank: int, size: int) -> int:
    """Return a rank's rows of a reducescatter: the first ranks get one more where they cannot be shared."""
    return whole // size + (rank < whole % size)

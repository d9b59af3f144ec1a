"""From a script's tensors to operations on arrays, eagerly and in graphs, with gradients.

There are three ways. What runs eagerly is done at once, by Python. In a `tf.function` a whole operation, on
one tensor or a group of them, is one call into Python, and TensorFlow makes these calls in the order of the
program. In the graph of a session there is no such order: see `ringleader.tensorflow.session_operations`.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy
import tensorflow as tf

from ringleader.adapters.array_operations import OPERATIONS
from ringleader.adapters.numpy_adapter import Array
from ringleader.adapters.process_sets import ProcessSet, number_of
from ringleader.adapters.submit_operation import Operation
from ringleader.engine.exceptions import HorovodInternalError, MismatchError
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.tensorflow.eager_tensors import (
    argument_error,
    array_of,
    as_tensor,
    check_types,
    is_recording,
    refuse_jit_compile,
    tensor_over,
    tensorflow_error,
)
from ringleader.tensorflow.session_operations import in_session

Tensors = Sequence[Any]


@dataclass(frozen=True, kw_only=True)
class Call:
    """An operation as a script asked for it, without its tensors; see `operation_kinds.GradientCalls`."""

    name: str | None
    """The script's."""
    process_set: ProcessSet
    """The ranks that take part."""
    arguments: tuple[Any, ...] = ()
    """What the operation takes beyond these; in graphs also tensors, whose values are looked up later."""
    grouped: bool = False
    """Whether it is on a group, which may have one tensor only."""
    ignore_name_scope: bool = False
    """Whether its name in a graph is without the scopes that it is built in."""

    def reduce(self, grads: Tensors, arguments: tuple[Any, ...]) -> Tensors:
        """See `GradientCalls`."""
        return ALLREDUCE.run(grads, self._alike(arguments))[0]

    def gather(self, grads: Tensors) -> Tensors:
        """See `GradientCalls`."""
        return ALLGATHER.run(grads, self._alike(()))[0]

    def _alike(self, arguments: tuple[Any, ...]) -> Call:
        return Call(name=None, process_set=self.process_set, arguments=arguments, grouped=self.grouped)

    def own_rows(self, whole: Any, counts: Any, rank: int) -> Any:
        """See `GradientCalls`."""
        start = tf.reduce_sum(counts[:rank])
        return whole[start : start + counts[rank]]

    def zeros(self, likes: Tensors) -> Tensors:
        """See `GradientCalls`."""
        with tf.control_dependencies(likes):  # else a session would not run what other ranks wait for
            return [tf.zeros_like(one) for one in likes]


@dataclass(frozen=True, kw_only=True)
class DifferentiableOperation:
    """One kind of operation whose gradients are operations too."""

    operation: Operation
    """The same on arrays."""
    with_rows: bool = False
    """Whether each of its results is a pair: an array, and how many rows came from each rank."""
    other_rows: bool = False
    """Whether an output has another number of rows, not known before the operation is done."""

    def gradients(self, call: Call, _inputs: Tensors, rows: Tensors, upstream: Tensors) -> Tensors:
        """Return the gradients of the inputs; ``rows``: those that came from each rank, if any."""
        assert self.operation.gradient is not None
        return self.operation.gradient(call, upstream, rows)

    def run(self, tensors: Tensors, call: Call) -> tuple[Tensors, Tensors]:
        """Do the operation; return its results, and the rows of each if it has such."""
        inputs = [as_tensor(tensor) for tensor in tensors]
        run = self._run_eagerly
        if not tf.executing_eagerly():
            run = partial(self._build, name=graph_name(self.operation.title, inputs, call))
        elif not is_recording():
            return run(inputs, call)
        count = len(inputs)

        @tf.custom_gradient
        def differentiable(*inputs: Any) -> Any:
            results, rows = run(inputs, call)

            def gradients(*upstream: Any) -> Any:
                return list(self.gradients(call, inputs, rows, upstream[:count]))

            return [*results, *rows], gradients

        outputs = differentiable(*inputs)
        return outputs[:count], outputs[count:]

    def _run_eagerly(self, inputs: Tensors, call: Call) -> tuple[Tensors, Tensors]:
        """Do it now."""
        try:
            if call.grouped:
                arrays = [array_of(tensor) for tensor in inputs]
                outcomes = self.operation.run_group(arrays, call.name, call.process_set, *call.arguments)
            else:
                array = array_of(inputs[0])
                outcomes = (self.operation.run(array, call.name, call.process_set, *call.arguments),)
        except (ValueError, MismatchError) as error:
            check_types(inputs)
            raise tensorflow_error(error) from error
        if not self.with_rows:
            return [tensor_over(array) for array in outcomes], ()
        results = [tensor_over(array) for array, _rows in outcomes]
        return results, [tf.constant(rows, tf.int32) for _array, rows in outcomes]

    def _build(self, inputs: Tensors, call: Call, *, name: str) -> tuple[Tensors, Tensors]:
        """Make it a part of the graph that is being built."""
        refuse_jit_compile()
        check_types(inputs)
        check_registered(call.process_set, self.operation.title)
        if tf.compat.v1.get_default_graph().building_function:
            outputs = self._in_function(inputs, call, name)
        else:
            outputs = in_session(
                self.operation,
                inputs,
                name,
                call.process_set,
                call.arguments,
                grouped=call.grouped,
                with_rows=self.with_rows,
            )
        count = len(inputs)
        for tensor, output in zip(inputs, outputs, strict=False):
            shape = tensor.shape
            if self.other_rows and shape.rank:
                shape = tf.TensorShape([None]).concatenate(shape[1:])
            output.set_shape(shape)
        return outputs[:count], outputs[count:]

    def _in_function(self, inputs: Tensors, call: Call, name: str) -> Tensors:
        """Add one call into Python, which views the inputs and gives its arrays away, both without a copy."""
        count = len(inputs)
        later = [at for at, argument in enumerate(call.arguments) if tf.is_tensor(argument)]

        def exchange(*arrays: Array) -> list[Array]:
            arguments = list(call.arguments)
            for at, value in zip(later, arrays[count:], strict=True):
                arguments[at] = value
            data = [numpy.asarray(array) for array in arrays[:count]]
            try:
                if call.grouped:
                    outcomes = self.operation.run_group(data, name, call.process_set, *arguments)
                else:
                    outcomes = (self.operation.run(data[0], name, call.process_set, *arguments),)
            except MismatchError as error:
                # All that TensorFlow keeps of an exception is its name and words.
                raise HorovodInternalError(str(error)) from error
            if not self.with_rows:
                return list(outcomes)
            rows = [numpy.asarray(each, numpy.int32) for _array, each in outcomes]
            return [*(array for array, _rows in outcomes), *rows]

        types = [tensor.dtype.base_dtype for tensor in inputs]
        if self.with_rows:
            types += [tf.int32] * count
        operands = [*inputs, *(call.arguments[at] for at in later)]
        # Stateful, or TensorFlow would compute it once where the inputs are constants.
        with in_written_order() as follow:
            outputs = tf.numpy_function(
                exchange, operands, types, stateful=True, name=name.rpartition("/")[2]
            )
            follow(outputs[0])
        for rows in outputs[count:]:
            rows.set_shape([None])
        return list(outputs)


_LATEST: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""Graph of a branch or loop → the node of the latest call that was added to it."""


@contextmanager
def in_written_order() -> Iterator[Callable[[Any], None]]:
    """Have the call that is added follow those before it; the context's value is told a result of it.

    TensorFlow sees to that in a `tf.function`, but not in a branch or a loop of a session's graph, where
    calls that wait for each other on different ranks would block all threads.
    """
    graph = tf.compat.v1.get_default_graph()
    if getattr(graph, "_add_control_dependencies", True):
        yield lambda result: None
        return
    latest = _LATEST[graph]() if graph in _LATEST else None
    with tf.control_dependencies([] if latest is None else [latest]):
        yield lambda result: _LATEST.__setitem__(graph, weakref.ref(result.op))


def check_registered(process_set: ProcessSet, title: str) -> None:
    """Refuse a set that does not exist; before `init` that is not known, and members alone run the graph."""
    number, session = number_of(process_set), PROCESS.session
    if (
        number != 0
        and session is not None
        and (number is None or session.registry.table.ranks(number) is None)
    ):
        raise argument_error(f"{title}: the process set provided is not registered, or was removed.")


def graph_name(title: str, inputs: Tensors, call: Call) -> str:
    """Return a name for an operation in the default graph that is its own there, and the same on all ranks.

    As in Horovod it is that of the script or of the tensors, within the scope it is built in. What has no
    name is also called after the `tf.function`, of which several may run at once.
    """
    graph = tf.compat.v1.get_default_graph()
    if call.name is not None:
        if not isinstance(call.name, str):
            raise argument_error(f"the name of an operation is a string, not {call.name!r}")
        wanted, scope = call.name, ""
    else:
        kind = f"Horovod{'Grouped' * call.grouped}{title}"
        # A constant that was made outside of the graph has none.
        ends = [getattr(one, "name", "constant") for one in (inputs[0], inputs[-1])]
        wanted = re.sub("[^a-zA-Z0-9_]", "_", "_".join([kind, *ends[: 1 + call.grouped]]))
        # TensorFlow adds a number to names of functions in which ranks may differ.
        scope = re.sub(r"(_\d+)+$", "", getattr(graph, "name", None) or "")
    found: str = graph.unique_name(wanted)
    if call.ignore_name_scope:
        found = found.rpartition("/")[2]
    return f"{scope}/{found}" if scope else found


# kinds


class _Alltoall(DifferentiableOperation):
    def gradients(self, call: Call, inputs: Tensors, rows: Tensors, upstream: Tensors) -> Tensors:
        """Send the gradient back the way that the rows came; rows that went nowhere have none."""
        back = Call(name=None, process_set=call.process_set, arguments=(static_value(rows[0]),))
        (gradient,), _counts = self.run(upstream, back)
        missing = tf.shape(inputs[0])[0] - tf.shape(gradient)[0]
        edges = [[0, missing], *([0, 0] for _ in range(len(inputs[0].shape) - 1))]
        return [tf.ensure_shape(tf.pad(gradient, edges), inputs[0].shape)]


def static_value(counts: Any) -> Any:
    """Return the numbers in a tensor; in a graph the tensor itself, unless it is a constant."""
    known = tf.get_static_value(counts)
    return counts if known is None else tuple(known.tolist())


ALLREDUCE = DifferentiableOperation(operation=OPERATIONS.allreduce)
ALLGATHER = DifferentiableOperation(operation=OPERATIONS.allgather_rows, with_rows=True, other_rows=True)
BROADCAST = DifferentiableOperation(operation=OPERATIONS.broadcast)
ALLTOALL = _Alltoall(operation=OPERATIONS.alltoall, with_rows=True, other_rows=True)
REDUCESCATTER = DifferentiableOperation(operation=OPERATIONS.reducescatter, other_rows=True)

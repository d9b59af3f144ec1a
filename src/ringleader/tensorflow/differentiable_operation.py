"""From a script's tensors to arrays that are exchanged, eagerly and in graphs, with gradients.

There are three ways. What runs eagerly is done at once, by Python. In a `tf.function` a whole operation, on
one tensor or a group of them, is one call into Python, and TensorFlow makes these calls in the order of the
program. In the graph of a session there is no such order: see `ringleader.tensorflow.sessions`.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, replace
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
from ringleader.tensorflow.sessions import Request, in_session

Tensors = Sequence[Any]

WITH_ROWS = (OPERATIONS.allgather_rows, OPERATIONS.alltoall)
"""Each of their results is a pair: an array, and how many rows came from each rank."""
OTHER_ROWS = (*WITH_ROWS, OPERATIONS.reducescatter)
"""Their results have another number of rows, not known before they are done."""
_as_int32 = partial(numpy.asarray, dtype=numpy.int32)


@dataclass(frozen=True)
class HostExchange:
    """An exchange of arrays that is one step of TensorFlow's, and whose gradients are exchanges too."""

    name: str | None
    """What messages call it, the same on all ranks."""
    process_set: ProcessSet
    """The ranks that take part."""

    def exchange(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Do it; raises what the engine raises."""
        raise NotImplementedError

    def shapes(self, inputs: Tensors) -> list[Any]:
        """Return the shapes of the results, as far as they are known before it is done."""
        raise NotImplementedError

    def gradients(self, inputs: Tensors, outputs: Tensors, upstream: Tensors) -> Tensors:
        """Return the gradients of the inputs."""
        raise NotImplementedError

    def apply(self, inputs: Tensors) -> Tensors:
        """Do it with tensors, whatever mode TensorFlow is in."""
        run = self._eagerly
        if not tf.executing_eagerly():
            run = self.in_graph
        elif not is_recording():
            return run(inputs)

        @tf.custom_gradient
        def differentiable(*inputs: Any) -> Any:
            outputs = run(inputs)
            return outputs, lambda *upstream: list(self.gradients(inputs, outputs, upstream))

        results: Tensors = differentiable(*inputs)
        return results

    def _eagerly(self, inputs: Tensors) -> Tensors:
        try:
            return list(map(tensor_over, self.exchange(list(map(array_of, inputs)))))
        except (ValueError, MismatchError) as error:
            check_types(inputs)
            raise tensorflow_error(error) from error

    def in_graph(self, inputs: Tensors) -> Tensors:
        """Add it to the graph that is being built."""
        refuse_jit_compile()
        check_types(inputs)
        return self.in_function(inputs, [tensor.dtype.base_dtype for tensor in inputs])

    def in_function(self, operands: Tensors, types: Sequence[tf.DType]) -> Tensors:
        """Add one call into Python, which views the inputs and gives its arrays away, both without a copy."""
        name = (self.name or "").rpartition("/")[2]
        # Stateful, or TensorFlow would compute it once where the inputs are constants.
        with in_written_order() as follow:
            outputs = tf.numpy_function(self.called, operands, types, stateful=True, name=name)
            follow(outputs[0])
        return self.shaped(operands, outputs)

    def called(self, *arrays: Array) -> list[Array]:
        """Do it with what a graph brings."""
        return list(self.exchange(list(map(numpy.asarray, arrays))))

    def shaped(self, inputs: Tensors, outputs: Tensors) -> Tensors:
        """Return the outputs of a node, with the shapes that they will have."""
        for output, shape in zip(outputs, self.shapes(inputs), strict=True):
            output.set_shape(shape)
        return list(outputs)


@dataclass(frozen=True)
class Call(HostExchange):
    """An operation as a script asked for it, without its tensors; see `operation_kinds.GradientCalls`."""

    operation: Operation
    """The same on arrays."""
    arguments: tuple[Any, ...] = ()
    """What the operation takes beyond these; in graphs also tensors, whose values are looked up later."""
    _: KW_ONLY
    grouped: bool = False
    """Whether it is on a group, which may have one tensor only."""
    unscoped: bool = False
    """Whether its name in a graph is without the scopes that it is built in."""
    later: tuple[int, ...] = ()
    """Which arguments are tensors: their values follow the arrays."""

    def run(self, tensors: Tensors) -> tuple[Tensors, Tensors]:
        """Do the operation; return its results, and the rows of each if it has such."""
        inputs = list(map(as_tensor, tensors))
        outputs = self.apply(inputs)
        return outputs[: len(inputs)], outputs[len(inputs) :]

    def exchange(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """See `HostExchange`. All rows (int32) follow all arrays."""
        arguments = self.arguments
        if self.later:
            arrays, arguments = self._known(arrays)
        if self.grouped:
            outcomes = self.operation.run_group(arrays, self.name, self.process_set, *arguments)
        else:
            outcomes = (self.operation.run(arrays[0], self.name, self.process_set, *arguments),)
        return self._flat(outcomes) if self.operation in WITH_ROWS else outcomes

    def called(self, *arrays: Array) -> list[Array]:
        """See `HostExchange`."""
        try:
            return super().called(*arrays)
        except MismatchError as error:
            # All that TensorFlow keeps of an exception is its name and words.
            raise HorovodInternalError(str(error)) from error

    def _known(self, arrays: Sequence[Array]) -> tuple[Sequence[Array], tuple[Any, ...]]:
        """Return the arrays without the values of arguments, and the arguments with their values."""
        count, arguments = len(arrays) - len(self.later), list(self.arguments)
        for at, value in zip(self.later, arrays[count:], strict=True):
            arguments[at] = value
        return arrays[:count], tuple(arguments)

    def _flat(self, outcomes: Sequence[tuple[Array, Sequence[int]]]) -> Sequence[Array]:
        arrays, rows = zip(*outcomes, strict=True)
        return [*arrays, *map(_as_int32, rows)]

    def shapes(self, inputs: Tensors) -> list[Any]:
        """See `HostExchange`."""
        found = [tensor.shape for tensor in inputs[: len(inputs) - len(self.later)]]
        if self.operation in OTHER_ROWS:
            found = [any_rows(shape) for shape in found]
        return [*found, *([None] for _one in found)] if self.operation in WITH_ROWS else found

    def in_graph(self, inputs: Tensors) -> Tensors:
        """See `HostExchange`."""
        name = graph_name(self, inputs)
        refuse_jit_compile()
        check_types(inputs)
        check_registered(self.process_set, self.operation.title)
        later = tuple(at for at, argument in enumerate(self.arguments) if tf.is_tensor(argument))
        named = replace(self, name=name, later=later)
        types = [tensor.dtype.base_dtype for tensor in inputs]
        if self.operation in WITH_ROWS:
            types += [tf.int32] * len(inputs)
        operands = [*inputs, *(self.arguments[at] for at in later)]
        if tf.compat.v1.get_default_graph().building_function:
            return named.in_function(operands, types)
        return named.shaped(operands, in_session(name, operands, types, named.request))

    def request(self, *arrays: Array) -> Request:
        """Return what an operation of a session hands over."""
        data, arguments = self._known([numpy.asarray(array) for array in arrays])
        name, operation = self.name or "", self.operation
        engine, works = operation.prepare(
            data, name, self.process_set, arguments, grouped=self.grouped, counted=False
        )
        nbytes = sum(array.nbytes for array in data)

        def results() -> Sequence[Array]:
            outcomes = operation.results(works, data)
            return self._flat(outcomes) if operation in WITH_ROWS else outcomes

        return Request(name, nbytes, engine, works, results)

    # gradients

    def gradients(self, inputs: Tensors, outputs: Tensors, upstream: Tensors) -> Tensors:
        """See `HostExchange`."""
        count = len(inputs)
        if self.operation.gradient is not None:
            return self.operation.gradient(self, upstream[:count], outputs[count:])
        # An alltoall sends the gradient back the way that the rows came; rows that went nowhere have none.
        (gradient,), _rows = self._alike(self.operation, (static_value(outputs[1]),)).run(upstream[:1])
        missing = tf.shape(inputs[0])[0] - tf.shape(gradient)[0]
        edges = [[0, missing], *([0, 0] for _ in range(len(inputs[0].shape) - 1))]
        return [tf.ensure_shape(tf.pad(gradient, edges), inputs[0].shape)]

    def _alike(self, operation: Operation, arguments: tuple[Any, ...]) -> Call:
        return replace(self, operation=operation, name=None, arguments=arguments, unscoped=False)

    def reduce(self, grads: Tensors, arguments: tuple[Any, ...]) -> Tensors:
        """See `GradientCalls`."""
        return self._alike(OPERATIONS.allreduce, arguments).run(grads)[0]

    def gather(self, grads: Tensors) -> Tensors:
        """See `GradientCalls`."""
        return self._alike(OPERATIONS.allgather_rows, ()).run(grads)[0]

    def own_rows(self, whole: Any, counts: Any, rank: int) -> Any:
        """See `GradientCalls`."""
        start = tf.reduce_sum(counts[:rank])
        return whole[start : start + counts[rank]]

    def zeros(self, likes: Tensors) -> Tensors:
        """See `GradientCalls`."""
        with tf.control_dependencies(likes):  # else a session would not run what other ranks wait for
            return [tf.zeros_like(one) for one in likes]


def any_rows(shape: Any) -> Any:
    """Return a shape with any number of rows."""
    return tf.TensorShape([None]).concatenate(shape[1:]) if shape.rank else shape


def static_value(counts: Any) -> Any:
    """Return the numbers in a tensor; in a graph the tensor itself, unless it is a constant."""
    known = tf.get_static_value(counts)
    return counts if known is None else tuple(known.tolist())


_LATEST: weakref.WeakKeyDictionary[Any, weakref.ref[Any]] = weakref.WeakKeyDictionary()
"""Graph of a branch or loop → the node of the latest call that was added to it."""


@contextmanager
def in_written_order() -> Iterator[Callable[[Any], None]]:
    """Have the call that is added follow those before it; the context's value gets a result of it.

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


def graph_name(call: Call, inputs: Tensors) -> str:
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
        kind = f"Horovod{'Grouped' * call.grouped}{call.operation.title}"
        # A constant that was made outside of the graph has none.
        ends = [getattr(one, "name", "constant") for one in (inputs[0], inputs[-1])]
        wanted = re.sub("[^a-zA-Z0-9_]", "_", "_".join([kind, *ends[: 1 + call.grouped]]))
        # TensorFlow adds a number to names of functions in which ranks may differ.
        scope = re.sub(r"(_\d+)+$", "", getattr(graph, "name", None) or "")
    found: str = graph.unique_name(wanted)
    if call.unscoped:
        found = found.rpartition("/")[2]
    return f"{scope}/{found}" if scope else found

"""Several backward passes before one exchange: gradients add up in variables of this rank's own.

Works eagerly, in a ``tf.function`` and in the graph of a session. In the latter the variables are among
``tf.compat.v1.local_variables()``, and the script initializes them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.tensorflow.gradient_exchange import divided, key

Exchange = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
"""Reduces gradients, given with their variables, over the ranks."""


class LocalGradientAggregationHelper:
    """Adds up gradients; has them exchanged, and variables updated, every ``backward_passes_per_step``."""

    _OPTIMIZER_TYPE_KERAS = "optimizer_type_keras"
    _OPTIMIZER_TYPE_LEGACY = "optimizer_type_legacy"

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Exchange,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        rank: int = 0,
        optimizer_type: str = _OPTIMIZER_TYPE_LEGACY,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
        name: str = "",
    ) -> None:
        """``average_aggregated_gradients``: the mean of the passes is exchanged, else their sum.

        ``name`` keeps the variables of several optimizers in one graph apart. ``rank`` and ``optimizer_type``
        are Horovod's and change nothing.
        """
        if backward_passes_per_step <= 0:
            raise ValueError("backward_passes_per_step must be > 0")
        self.backward_passes_per_step = backward_passes_per_step
        self.average_aggregated_gradients = average_aggregated_gradients
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self._exchange = allreduce_func
        self._name = name
        self._local: set[int] = set()
        self._sums: dict[int, tuple[Any, Any]] = {}
        """What a variable is known by → the variable, and the sum of its gradients."""
        self.counter: Any = None
        """Passes since the last exchange; 0 right after one."""
        if _in_function_or_eager():
            self.counter = self._new_variable("counter", tf.TensorShape([]), tf.int32)

    def register_local_var(self, var: Any) -> None:
        """Have a variable keep its local gradients: they add up but are not exchanged."""
        self._local.add(key(var))

    def compute_gradients(self, grads: Sequence[Any], vars: Sequence[Any]) -> list[Any]:
        """Add gradients, and return those of all ranks where an exchange is due, else the sums so far.

        A variable without a gradient in this pass keeps what it has from others.
        """
        given = enumerate(zip(grads, vars, strict=True))
        present = [at for at, (grad, one) in given if grad is not None or key(one) in self._sums]
        result = list(grads)
        if not present:
            return result
        variables = [vars[at] for at in present]
        dense = [self._dense(grads[at], vars[at]) for at in present]
        if self.counter is None:
            self.counter = self._new_variable("counter", tf.TensorShape([]), tf.int32)
        first = tf.equal(self.counter.read_value(), 0)
        totals = [self._added(one, grad, first) for one, grad in zip(variables, dense, strict=True)]
        with tf.control_dependencies(totals):
            count = tf.convert_to_tensor(self.counter.assign_add(1))
        chosen = tf.cond(
            tf.equal(count, self.backward_passes_per_step),
            lambda: self._exchanged(totals, variables),
            lambda: [tf.identity(total) for total in totals],
        )
        for at, grad in zip(present, chosen if isinstance(chosen, (list, tuple)) else [chosen], strict=True):
            result[at] = grad
        return result

    def apply_gradients(
        self, apply_grads_closure: Callable[[], Any], optimizer: Any, *args: Any, **kwargs: Any
    ) -> Any:
        """Call the closure, which updates variables, where gradients were exchanged in this pass.

        In the other passes the optimizer's ``iterations`` and the ``global_step`` among the keyword arguments
        count on. The first argument holds the (gradient, variable) pairs that `compute_gradients` returned.
        """
        if tf.executing_eagerly():
            return apply_grads_closure() if int(self.counter) == 0 else _count_on(optimizer, kwargs)
        pairs = list(args[0]) if args else []
        with tf.control_dependencies([grad for grad, _variable in pairs if grad is not None]):
            return tf.cond(
                tf.equal(self.counter.read_value(), 0),
                lambda: _after(apply_grads_closure()),
                lambda: _after(_count_on(optimizer, kwargs)),
            )

    def _dense(self, grad: Any, variable: Any) -> Any:
        if grad is None:
            return tf.zeros_like(self._sums[key(variable)][1])
        if not isinstance(grad, tf.IndexedSlices):
            return tf.convert_to_tensor(grad)
        if not self.sparse_as_dense:
            raise ValueError(
                "IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` "
                "is False; pass sparse_as_dense=True."
            )
        return tf.convert_to_tensor(grad)

    def _added(self, variable: Any, grad: Any, first: Any) -> Any:
        """Return the sum with this gradient in it; ``first``: whether it begins anew."""
        if key(variable) not in self._sums:
            shape = grad.shape if grad.shape.is_fully_defined() else tf.TensorShape(variable.shape)
            total = self._new_variable(f"sum_{len(self._sums)}", shape, grad.dtype)
            self._sums[key(variable)] = (variable, total)
        total = self._sums[key(variable)][1]
        # Not multiplied by zero: an infinite gradient would stay one.
        return tf.convert_to_tensor(total.assign(tf.where(first, grad, total.read_value() + grad)))

    def _exchanged(self, totals: Sequence[Any], variables: Sequence[Any]) -> list[Any]:
        found = list(totals)
        if self.average_aggregated_gradients:
            found = [divided(total, self.backward_passes_per_step) for total in found]
        shared = [at for at, one in enumerate(variables) if key(one) not in self._local]
        reduced = self._exchange([found[at] for at in shared], [variables[at] for at in shared])
        for at, grad in zip(shared, reduced, strict=True):
            found[at] = grad
        if self.scale_local_gradients:
            for at in set(range(len(found))) - set(shared):
                found[at] = divided(found[at], self.process_set.size())
        with tf.control_dependencies(found):
            reset = self.counter.assign(0)
        with tf.control_dependencies([tf.convert_to_tensor(reset)]):
            return [tf.identity(grad) for grad in found]

    def _new_variable(self, name: str, shape: Any, dtype: Any) -> Any:
        if _in_function_or_eager():
            with tf.init_scope():
                return tf.Variable(tf.zeros(shape, dtype), trainable=False)
        with tf.compat.v1.variable_scope(f"gradient_aggregation_{self._name}", reuse=tf.compat.v1.AUTO_REUSE):
            return local_variable(name, shape, dtype)


def _in_function_or_eager() -> bool:
    with tf.init_scope():
        return bool(tf.executing_eagerly())


def _count_on(optimizer: Any, words: dict[str, Any]) -> Any:
    """Count a pass without an update in the optimizer and the global step; return the last operation."""
    done = tf.no_op()
    iterations = getattr(optimizer, "iterations", None)
    for counted in (iterations, words.get("global_step")):
        if counted is not None:
            with tf.control_dependencies([] if tf.executing_eagerly() else [_after(done)]):
                done = counted.assign_add(tf.ones([], counted.dtype))
    return done


def _after(done: Any) -> Any:
    """Return a tensor that is there when an operation is done: branches of a condition return one each."""
    if done is None:
        return tf.constant(True)
    with tf.control_dependencies([done if isinstance(done, tf.Operation) else tf.convert_to_tensor(done)]):
        return tf.constant(True)


def local_variable(name: str, shape: Any, dtype: tf.DType) -> Any:
    """Return a variable of this rank's own in the scope of now, zero when the script initializes it."""
    return tf.compat.v1.get_variable(
        name,
        shape=shape,
        dtype=dtype,
        trainable=False,
        use_resource=True,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
    )

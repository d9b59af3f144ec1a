"""The exchange of all gradients of a step, at once: what tapes and optimizers do with gradients.

Eagerly, arrays are views of TensorFlow's memory. In a ``tf.function`` the whole exchange is one
``numpy_function``: one blocking call cannot wait for another one, in whatever order ranks run their graphs.
In the graph of a session every gradient is its own operation, as sessions do these together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import tensorflow as tf

from ringleader.adapters.array_operations import ALLGATHER, ALLREDUCE
from ringleader.adapters.compression import run_compressed
from ringleader.adapters.gradient_settings import GradientSettings, checked_groups
from ringleader.adapters.handles import synchronize_all
from ringleader.adapters.process_sets import group_of, number_of
from ringleader.adapters.reductions import Adasum, Average, Sum, handle_average_backwards_compatibility
from ringleader.adapters.step_metrics import session_metrics
from ringleader.engine.exceptions import MismatchError
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import Array
from ringleader.tensorflow.differentiable_operation import HostExchange, any_rows
from ringleader.tensorflow.eager_tensors import as_tensor
from ringleader.tensorflow.operations import allgather, allreduce, grouped_allreduce

HINT = (
    "All ranks exchange the gradients of the same variables in each step: same model, same number of steps, "
    "and the same variables without a gradient."
)


def key(variable: Any) -> int:
    """Return what a variable or tensor is known by in a dictionary; Keras' hold one of TensorFlow's."""
    inner = getattr(variable, "_value", variable)
    return id(inner if isinstance(inner, tf.Variable) else variable)


def divided(gradient: Any, by: Any) -> Any:
    """Return a gradient divided by a number, sparse where it is sparse, and None for None."""
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        values = gradient.values / tf.cast(by, gradient.values.dtype)
        return tf.IndexedSlices(values, gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(by, gradient.dtype)


def checked_settings(
    *, op: Any, gradient_predivide_factor: float, num_groups: int, groups: Any, **words: Any
) -> GradientSettings:
    """Return the settings that a script asks for; `ValueError` where they contradict each other."""
    op = handle_average_backwards_compatibility(op, None)
    settings = GradientSettings(op=op, predivide=gradient_predivide_factor, **words)
    if op is Adasum and number_of(settings.process_set) != 0:
        raise NotImplementedError("Adasum does not support non-global process sets.")
    wanted = "a non-negative integer or a list of list of tf.Variable"
    checked = checked_groups(groups, num_groups, wanted=wanted, kind="tf.Variable", key=key)
    return replace(settings, groups=checked)


def grouped(
    groups: Any, present: Sequence[int], variables: Sequence[Any] | None
) -> tuple[tuple[int, ...], ...]:
    """Return groups (see `GradientSettings`) of the gradients that are there, as indices into ``present``.

    ``present`` are the places of these gradients among all, and among the variables. A variable that is
    in no group makes one alone.
    """
    everything = tuple(range(len(present)))
    if groups is None:
        return (everything,) if everything else ()
    if isinstance(groups, int):
        size = -(-len(present) // min(groups, len(present) or 1)) or 1
        return tuple(everything[start : start + size] for start in everything[::size])
    if variables is None:
        raise ValueError("groups of variables need the variables of the gradients")
    at = {key(variables[place]): index for index, place in enumerate(present)}
    found = [tuple(at.pop(key(one)) for one in group if key(one) in at) for group in groups]
    return tuple(group for group in (*found, *((index,) for index in at.values())) if group)


class GradientExchange:
    """Reduces lists of gradients over the ranks of a process set.

    All ranks call it with gradients of the same types and shapes in the same order; those that are None do
    not count. `HorovodInternalError` on all ranks where they do not.
    """

    def __init__(self, settings: GradientSettings, name: str) -> None:
        """``name`` is how messages call the exchange; one of that name is under way at a time."""
        self.settings = settings
        self._name = name
        self.local: dict[int, Any] = {}
        """By `key`: variables, or sources of a tape, whose gradients are this rank's and not exchanged."""

    def __call__(self, gradients: Sequence[Any], variables: Sequence[Any] | None = None) -> list[Any]:
        """Return the reduced gradients, None where one is None; of `local` variables this rank's.

        These are divided by the number of ranks unless ``scale_local_gradients`` was turned off.
        ``variables`` are those of the gradients, needed where some are local, or groups of variables were
        given. A rank outside of the process set gets its own gradients back.
        """
        settings, found = self.settings, list(gradients)
        local = {at for at, one in enumerate(variables or ()) if key(one) in self.local} if self.local else ()
        member = settings.process_set.included() is not False
        shared = [at for at, one in enumerate(found) if member and one is not None and at not in local]
        sparse = [at for at in shared if isinstance(found[at], tf.IndexedSlices)]
        if settings.sparse_as_dense:
            for at in sparse:
                found[at] = tf.convert_to_tensor(found[at])
            sparse = []
        if shared:
            self._exchange(found, [at for at in shared if at not in sparse], sparse, variables)
        if settings.scale_local_gradients:
            for at in local:
                found[at] = divided(found[at], settings.process_set.size())
        return found

    def _exchange(
        self, found: list[Any], dense: list[int], sparse: list[int], variables: Sequence[Any] | None
    ) -> None:
        """Replace gradients, dense and sparse ones at these places, by the reduced ones."""
        settings = self.settings
        if sparse and settings.op not in (Average, Sum):
            raise NotImplementedError(
                f"op={settings.op.name.title()} has no meaning for tf.IndexedSlices; pass "
                "sparse_as_dense=True, or op=hvd.Average or hvd.Sum"
            )
        rows = [part for at in sparse for part in (found[at].values, found[at].indices)]
        step = StepExchange(
            name=self._name,
            reduction=settings.reduction,
            process_set=settings.process_set,
            groups=grouped(settings.groups, dense, variables),
            gathered=len(rows),
        )
        results: list[Any] = []

        def exchange(small: list[Any]) -> list[Any]:
            results.extend(step.apply([*small, *rows]))
            return results[: len(dense)]

        tensors = [as_tensor(found[at]) for at in dense]
        for at, one in zip(dense, run_compressed(settings.compression, tensors, exchange), strict=True):
            found[at] = one
        parts = iter(results[len(dense) :])
        for at, values, indices in zip(sparse, parts, parts, strict=True):
            if settings.op is Average:
                values = values / tf.cast(settings.process_set.size(), values.dtype)
            found[at] = tf.IndexedSlices(values, indices, found[at].dense_shape)


@dataclass(frozen=True, kw_only=True)
class StepExchange(HostExchange):
    """The exchange of one step's gradients: dense ones, then values and indices of sparse ones in turns."""

    reduction: tuple[ReduceOp, float, float]
    """The reduction, the factor before it, the factor after it."""
    groups: tuple[tuple[int, ...], ...]
    """Places of the arrays that are reduced together: all or none."""
    gathered: int
    """The last N arrays are gathered."""

    def exchange(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Return the results, new arrays in the order of the arrays."""
        metrics = session_metrics()
        metrics.exchange()
        results: list[Array] = [None] * len(arrays)
        places: list[Sequence[int]] = list(self.groups)
        handles = []
        for number, group in enumerate(self.groups):
            name = self.name if len(self.groups) == 1 else f"{self.name}.{number}"
            members = [arrays[at] for at in group]
            handles.append(ALLREDUCE.begin_group(members, name, self.process_set, *self.reduction))
        if self.gathered:
            places.append(range(len(arrays) - self.gathered, len(arrays)))
            rows = [arrays[at] for at in places[-1]]
            handles.append(ALLGATHER.begin_group(rows, f"{self.name}.sparse", self.process_set))
        try:
            with group_of(self.process_set, "Allreduce").engine.times.waiting():
                outcomes = synchronize_all(handles)
        except MismatchError as error:
            raise MismatchError(f"{error}. {HINT}") from error
        for those, outcome in zip(places, outcomes, strict=True):
            for at, result in zip(those, outcome, strict=True):
                results[at] = result
        metrics.exchanged()
        metrics.step()
        return results

    def shapes(self, inputs: Sequence[Any]) -> list[Any]:
        """See `HostExchange`."""
        dense = len(inputs) - self.gathered
        return [one.shape if at < dense else any_rows(one.shape) for at, one in enumerate(inputs)]

    def gradients(
        self, inputs: Sequence[Any], outputs: Sequence[Any], upstream: Sequence[Any]
    ) -> Sequence[Any]:
        """Return what derivatives of higher order need: the same exchange of the results' gradients."""
        if self.gathered:
            raise NotImplementedError(
                "derivatives of exchanged tf.IndexedSlices are not supported; pass sparse_as_dense=True"
            )
        return replace(self, name=f"{self.name}.gradient").apply(upstream)

    def apply(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """See `HostExchange`."""
        if tf.executing_eagerly() or tf.compat.v1.get_default_graph().building_function:
            return super().apply(inputs)
        dense = len(inputs) - self.gathered
        op, prescale, postscale = self.reduction
        words: dict[str, Any] = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale}
        words["process_set"] = self.process_set
        if len(self.groups) > 1:
            results: list[Any] = [None] * dense
            for places in self.groups:
                members = [inputs[at] for at in places]
                for at, result in zip(places, grouped_allreduce(members, **words), strict=True):
                    results[at] = result
        else:  # not one group: the exchange of the first ones continues while others are computed
            results = [allreduce(tensor, **words) for tensor in inputs[:dense]]
        return [*results, *(allgather(tensor, process_set=self.process_set) for tensor in inputs[dense:])]

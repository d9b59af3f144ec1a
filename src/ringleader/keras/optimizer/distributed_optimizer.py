"""`DistributedOptimizer` and its like. Signatures and their order are Horovod's."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.common.reductions import Average
from ringleader.keras.compression import Compression
from ringleader.keras.generation import check_optimizer, is_keras2
from ringleader.keras.optimizer.exchange_options import ExchangeOptions, checked_options
from ringleader.keras.optimizer.exchanging_optimizer import base_class, distributed_class


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like ``optimizer`` that trains with the gradients of all ranks.

    It is made from the settings of ``optimizer`` and has a class of the same name below that one's, so models
    are saved as with that. All gradients of a step travel together, before they are clipped. Of a
    LossScaleOptimizer the one within is wrapped.

    ``backward_passes_per_step``: gradients of so many steps are added up on this rank, then exchanged once
    and applied, their mean where ``average_aggregated_gradients``, else their sum.
    ``gradient_predivide_factor``: what of an average's division happens before the sum. ``name`` is how
    messages call the exchange. ``device_dense``, ``device_sparse``, ``groups`` and ``num_groups`` are
    Horovod's and change nothing.

    `ValueError` for what is not an optimizer of the script's Keras, and for arguments that contradict.
    """
    check_optimizer(optimizer)
    options = checked_options(
        name=name or f"Distributed{type(getattr(optimizer, 'inner_optimizer', optimizer)).__name__}",
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        backward_passes_per_step=backward_passes_per_step,
        average_aggregated_gradients=average_aggregated_gradients,
        scale_local_gradients=scale_local_gradients,
    )
    _generation().prepare_keras()
    return _wrapped(optimizer, options)


def PartialDistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    gradient_predivide_factor: float = 1.0,
    op: Any = Average,
    backward_passes_per_step: int = 1,
    average_aggregated_gradients: bool = False,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a `DistributedOptimizer` that leaves the gradients of some layers to each rank.

    ``local_layers`` is a built layer or several. Their gradients are divided by the number of ranks unless
    ``scale_local_gradients`` is turned off.
    """
    layers = [] if local_layers is None else local_layers
    layers = list(layers) if isinstance(layers, (list, tuple, set)) else [layers]
    if not all(hasattr(layer, "trainable_weights") for layer in layers):
        raise ValueError("local_layers has to be a layer of Keras, or several")
    wrapped = DistributedOptimizer(
        optimizer,
        name,
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        gradient_predivide_factor,
        op,
        backward_passes_per_step,
        average_aggregated_gradients,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    exchanging = getattr(wrapped, "inner_optimizer", wrapped)
    for layer in layers:
        for variable in layer.trainable_weights:
            exchanging.register_local_var(variable)
    return wrapped


def distribute_in_place(optimizer: Any, compression: Any) -> None:
    """Have an optimizer that was loaded with its state train with the gradients of all ranks."""
    exchanging = getattr(optimizer, "inner_optimizer", optimizer)
    options = checked_options(
        name=f"Distributed{type(exchanging).__name__}",
        compression=compression,
        sparse_as_dense=False,
        op=Average,
        gradient_predivide_factor=1.0,
        num_groups=0,
        groups=None,
        process_set=global_process_set,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        scale_local_gradients=True,
    )
    _generation().prepare_keras()
    exchanging.__class__ = _distributed_class(exchanging, options)


def _generation() -> Any:
    return import_module(f"ringleader.keras.optimizer.keras{2 if is_keras2() else 3}_optimizer")


def _wrapped(optimizer: Any, options: ExchangeOptions) -> Any:
    if hasattr(optimizer, "inner_optimizer"):
        inner = _wrapped(optimizer.inner_optimizer, options)
        words = {
            word: getattr(optimizer, word)
            for word in ("dynamic", "initial_scale", "dynamic_growth_steps")
            if hasattr(optimizer, word)
        }
        return type(optimizer)(inner, **words)
    config = dict(optimizer.get_config())
    rate = getattr(optimizer, "_learning_rate", None)
    if callable(rate):  # a schedule, perhaps of a class that only the script knows
        config["learning_rate"] = rate
    if options.passes > 1 and not is_keras2():
        steps = config.get("gradient_accumulation_steps")
        if steps not in (None, options.passes):
            raise ValueError(
                f"backward_passes_per_step={options.passes} contradicts the optimizer's "
                f"gradient_accumulation_steps={steps}"
            )
        config["gradient_accumulation_steps"] = options.passes
    distributed: Any = _distributed_class(optimizer, options)
    try:
        made = distributed.from_config(config)
    except Exception as error:
        kind = distributed.__name__
        raise ValueError(
            f"DistributedOptimizer makes a {kind} anew from its get_config(), and could not: {error}"
        ) from error
    _carry_state(optimizer, made)
    return made


def _distributed_class(optimizer: Any, options: ExchangeOptions) -> type:
    """Return the class of an optimizer of the script's Keras that exchanges gradients."""
    exchanging = getattr(_generation(), f"DistributedKeras{2 if is_keras2() else 3}Optimizer")
    return distributed_class(exchanging, base_class(optimizer), options)


def _carry_state(optimizer: Any, made: Any) -> None:
    """Give the new optimizer what an optimizer of Keras 3 has learned, if it is built."""
    if is_keras2() or not optimizer.built:
        return
    made.build(optimizer._trainable_variables)
    known = {variable.path: variable for variable in optimizer.variables}
    for variable in made.variables:
        if variable.path in known:
            variable.assign(known[variable.path].value)

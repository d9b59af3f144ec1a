"""`DistributedOptimizer` and its like, also of models that were saved. Signatures are Horovod's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

from ringleader.adapters.gradient_settings import GradientSettings, checked_groups, weights_of
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average, Sum, handle_average_backwards_compatibility
from ringleader.keras.keras_version import Compression, backend, check_optimizer, is_keras2, keras

__all__ = ["DistributedOptimizer", "PartialDistributedOptimizer", "load_model"]


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

    ``backward_passes_per_step``: gradients of this many steps are added up on this rank, then exchanged once
    and applied, their mean where ``average_aggregated_gradients``, else their sum.
    ``gradient_predivide_factor``: what of an average's division happens before the sum. ``name`` is how
    messages call the exchange. ``device_dense``, ``device_sparse``, ``groups`` and ``num_groups`` are
    Horovod's and change nothing.

    `ValueError` for what is not an optimizer of the script's Keras, and for arguments that contradict.
    """
    check_optimizer(optimizer)
    op = handle_average_backwards_compatibility(op, None)
    if op not in (Average, Sum):
        raise ValueError(f"op={op.name.title()} is not supported here: use hvd.Average or hvd.Sum")
    if isinstance(backward_passes_per_step, bool) or backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step must be at least 1, not {backward_passes_per_step}")
    options = GradientSettings(
        name=name or f"Distributed{type(getattr(optimizer, 'inner_optimizer', optimizer)).__name__}",
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide=gradient_predivide_factor,
        process_set=process_set,
        passes=int(backward_passes_per_step),
        average_passes=average_aggregated_gradients,
        scale_local_gradients=scale_local_gradients,
    )
    _check_groups(groups, num_groups)
    _generation().prepare_keras()
    return _wrapped(optimizer, options)


def _check_groups(groups: Any, num_groups: int) -> None:
    """Refuse invalid groups. Valid ones change nothing: all gradients of a step travel together anyway."""
    wanted = "a positive integer or a list of lists of variables"
    checked_groups(groups, num_groups, wanted=wanted, kind="variables")


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
    words = dict(locals())  # all but the layers are of a `DistributedOptimizer`
    variables = weights_of(words.pop("local_layers"), "local_layers has to be a layer of Keras, or several")
    wrapped = DistributedOptimizer(**words)
    for variable in variables:
        getattr(wrapped, "inner_optimizer", wrapped).register_local_var(variable)
    return wrapped


def load_model(
    filepath: Any,
    custom_optimizers: Iterable[type] | None = None,
    custom_objects: Mapping[str, Any] | None = None,
    compression: Any = Compression.none,
    legacy_opts: bool = False,
) -> Any:
    """Return a saved model whose optimizer, with the state that was saved, exchanges gradients.

    The model may have been saved with a `DistributedOptimizer` or without, in any format that
    ``keras.models.load_model`` reads. ``custom_optimizers`` are optimizer classes that Keras does not know,
    ``custom_objects`` other such objects by name. ``legacy_opts`` is Horovod's and changes nothing: legacy
    optimizers are known by their names. Keras 3 does not restore an optimizer's state from HDF5 files.
    """
    known = {one.__name__: one for one in custom_optimizers or ()} | dict(custom_objects or {})
    model = keras().models.load_model(filepath, custom_objects=known or None)
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return model  # it may have no variables yet
    variables = model.trainable_variables
    if not is_keras2() and optimizer.built and len(optimizer._trainable_variables) != len(variables):
        # From an HDF5 file Keras 3 builds an optimizer without variables, which cannot train.
        optimizer = model.optimizer = type(optimizer).from_config(optimizer.get_config())
        optimizer.build(variables)
    exchanging = getattr(optimizer, "inner_optimizer", optimizer)
    options = GradientSettings(name=f"Distributed{type(exchanging).__name__}", compression=compression)
    _generation().prepare_keras()
    exchanging.__class__ = _distributed_class(exchanging, options)  # its state is that which was saved
    if backend() == "tensorflow" and not is_keras2() and model.jit_compile:
        model.jit_compile = False
    return model


def _generation() -> Any:
    return import_module(f"ringleader.keras.optimizer.keras{2 if is_keras2() else 3}_optimizer")


def _wrapped(optimizer: Any, options: GradientSettings) -> Any:
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


def _distributed_class(optimizer: Any, options: GradientSettings) -> type:
    """Return a subclass of an optimizer's class that exchanges gradients.

    It has the same name, so that a model is saved as with that one.
    """
    exchanging = getattr(_generation(), f"DistributedKeras{2 if is_keras2() else 3}Optimizer")
    base = type(optimizer)
    while hasattr(base, "exchange_options"):  # one that is wrapped again gets new options
        base = base.__bases__[1]
    known = {name: getattr(base, name) for name in ("__module__", "__qualname__", "__doc__")}
    return type(base.__name__, (exchanging, base), {"exchange_options": options, **known})


def _carry_state(optimizer: Any, made: Any) -> None:
    """Give the new optimizer what an optimizer of Keras 3 has learned, if it is built."""
    if is_keras2() or not optimizer.built:
        return
    made.build(optimizer._trainable_variables)
    known = {variable.path: variable for variable in optimizer.variables}
    for variable in made.variables:
        if variable.path in known:
            variable.assign(known[variable.path].value)

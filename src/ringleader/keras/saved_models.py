"""Models that were saved, loaded to go on training on all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ringleader.keras.compression import Compression
from ringleader.keras.generation import backend, is_keras2, keras
from ringleader.keras.optimizer.distributed_optimizer import distribute_in_place


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
    if getattr(model, "optimizer", None) is not None:
        _complete(model)
        distribute_in_place(model.optimizer, compression)
        if backend() == "tensorflow" and not is_keras2() and model.jit_compile:
            model.jit_compile = False
    return model


def _complete(model: Any) -> None:
    """Give a model from an HDF5 file an optimizer that trains: Keras 3 builds it without variables."""
    optimizer, variables = model.optimizer, model.trainable_variables
    if not is_keras2() and optimizer.built and len(optimizer._trainable_variables) != len(variables):
        model.optimizer = type(optimizer).from_config(optimizer.get_config())
        model.optimizer.build(variables)

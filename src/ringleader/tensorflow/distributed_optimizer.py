"""`DistributedOptimizer` for every kind of TensorFlow's optimizers. Signature and order are Horovod's."""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Adasum, Average
from ringleader.tensorflow.compression import Compression
from ringleader.tensorflow.gradient_exchange import checked_settings
from ringleader.tensorflow.session_optimizer import AdasumSessionOptimizer, SessionOptimizer

KERAS_PACKAGES = ("keras", "tf_keras")


def DistributedOptimizer(  # noqa: N802 (Horovod's name)
    optimizer: Any,
    name: str | None = None,
    use_locking: bool = False,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    backward_passes_per_step: int = 1,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    average_aggregated_gradients: bool = False,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return an optimizer like ``optimizer`` whose gradients are those of all ranks.

    A ``tf.compat.v1.train.Optimizer`` reduces them in `compute_gradients`; an optimizer of Keras 2 or 3 is
    handed to `ringleader.keras.DistributedOptimizer`, which says when it does.

    ``backward_passes_per_step`` passes add up before one exchange, or are averaged with
    ``average_aggregated_gradients``. For the other arguments see `DistributedGradientTape`.

    `ValueError` where the arguments contradict each other; `TypeError` for anything else than an optimizer of
    these kinds.
    """
    settings = checked_settings(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        num_groups=num_groups,
        groups=groups,
        process_set=process_set,
        passes=backward_passes_per_step,
        average_passes=average_aggregated_gradients,
        scale_local_gradients=scale_local_gradients,
    )
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    if settings.op is Adasum and average_aggregated_gradients:
        raise ValueError("Adasum does not support average_aggregated_gradients == True")
    if isinstance(optimizer, tf.compat.v1.train.Optimizer):
        kind = AdasumSessionOptimizer if settings.op is Adasum else SessionOptimizer
        name = name or f"Distributed{type(optimizer).__name__}"
        return kind(optimizer, name, settings, use_locking=use_locking)
    if any(base.__module__.split(".")[0] in KERAS_PACKAGES for base in type(optimizer).__mro__):
        return importlib.import_module("ringleader.keras").DistributedOptimizer(
            optimizer,
            name=name,
            compression=compression,
            sparse_as_dense=sparse_as_dense,
            op=settings.op,
            gradient_predivide_factor=gradient_predivide_factor,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            groups=settings.groups,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )
    raise TypeError(
        f"DistributedOptimizer wraps an optimizer of Keras or a tf.compat.v1.train.Optimizer, not "
        f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    )

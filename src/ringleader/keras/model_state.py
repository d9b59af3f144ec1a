"""The variables of models and optimizers, given to all ranks."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Any

import numpy

from ringleader.common.array_operations import ALLGATHER, BROADCAST
from ringleader.common.process_sets import ProcessSet, global_process_set
from ringleader.keras.generation import backend, is_keras2
from ringleader.keras.values import as_array


def broadcast_variables(
    variables: Iterable[Any], root_rank: int, process_set: ProcessSet = global_process_set
) -> None:
    """Give all ranks the values that ``root_rank`` has of these variables, in place. Collective.

    Every rank brings variables of the same shapes and types in the same order.
    """
    chosen = list(variables)
    if not chosen or process_set.size() == 1:
        return
    arrays = [as_array(one) for one in chosen]
    results = BROADCAST.run_group(arrays, "broadcast_variables", process_set, root_rank)
    if process_set.rank() == root_rank and process_set is global_process_set:
        return
    for variable, result in zip(chosen, results, strict=True):
        variable.assign(result)


def broadcast_global_variables(root_rank: int) -> None:
    """Give all ranks the variables that ``root_rank`` has in the graph of Keras' session. Collective.

    There are such variables only in graphs of TensorFlow 1: RuntimeError elsewhere.
    """
    if backend() == "tensorflow":
        import tensorflow as tf

        if not tf.executing_eagerly():
            operation = import_module("ringleader.tensorflow").broadcast_global_variables(root_rank)
            tf.compat.v1.keras.backend.get_session().run(operation)
            return
    raise RuntimeError(
        "broadcast_global_variables is for graphs of TensorFlow 1. Pass "
        "hvd.callbacks.BroadcastGlobalVariablesCallback(root_rank) to fit, or call "
        "hvd.broadcast_variables(model.weights, root_rank)."
    )


def state_of(model: Any) -> list[Any]:
    """Return what has to be equal on all ranks: the model's weights and the optimizer's variables.

    Not the states of random numbers: ranks may drop out other units.
    """
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None:
        return list(model.weights)
    held = optimizer.variables
    return [*model.weights, *(held() if callable(held) else held)]


def build_optimizer(model: Any) -> None:
    """Create the optimizer's variables, which it otherwise does in the first step."""
    optimizer = getattr(model, "optimizer", None)
    if optimizer is None or not model.built or not model.trainable_variables:
        return
    if not is_keras2():
        if not optimizer.built:
            optimizer.build(model.trainable_variables)
    elif hasattr(optimizer, "build"):
        optimizer.build(model.trainable_variables)
    else:
        optimizer._create_all_weights(model.trainable_variables)


def same_on_all_ranks(numbers: Iterable[int]) -> bool:
    """Return whether all ranks brought the same few numbers. Collective."""
    mine = numpy.asarray([list(numbers)], numpy.int64)
    everybody = ALLGATHER.run(mine, "model_state", global_process_set)
    return bool((everybody == mine).all())

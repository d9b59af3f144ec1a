"""What a Keras training script imports: ``import ringleader.keras as hvd``.

For Keras 3 on TensorFlow, PyTorch or JAX, and for Keras 2 (tf_keras). Names, signatures and meanings are
Horovod's.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ringleader.adapters import names
from ringleader.adapters.basics import barrier as barrier
from ringleader.adapters.basics import join as join
from ringleader.adapters.basics import shutdown as shutdown
from ringleader.adapters.names import *
from ringleader.adapters.util import nccl_built as nccl_built
from ringleader.keras import callbacks as callbacks
from ringleader.keras import keras_version, values
from ringleader.keras.keras_version import *
from ringleader.keras.optimizer import distributed_optimizer
from ringleader.keras.optimizer.distributed_optimizer import *
from ringleader.keras.values import *

if not TYPE_CHECKING:  # which goes by the imports above
    __all__ = sorted(
        {"barrier", "callbacks", "join", "nccl_built", "shutdown", *names.__all__}
        | {*keras_version.__all__, *values.__all__, *distributed_optimizer.__all__}
    )


def __getattr__(name: str) -> Any:
    """Import ``elastic`` when a script asks for it: other scripts start without it."""
    if name == "elastic":
        return import_module("ringleader.keras.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

"""What scripts that train with ``tf.keras`` import: ``import ringleader.tensorflow.keras as hvd``.

The functions are those of `ringleader.keras`, which goes by what ``tf.keras`` is.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import_module("tensorflow")  # decides which Keras is tf.keras
_functions = import_module("ringleader.keras")
__all__ = list(_functions.__all__)
globals().update({name: getattr(_functions, name) for name in __all__})


def __getattr__(name: str) -> Any:
    """Import ``elastic`` when a script asks for it: other scripts start without it."""
    if name == "elastic":
        return import_module("ringleader.tensorflow.keras.elastic")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)

"""What scripts that train with ``tf.keras`` import: ``import ringleader.tensorflow.keras as hvd``.

The functions are those of `ringleader.keras`, which goes by what ``tf.keras`` is.
"""

from __future__ import annotations

from importlib import import_module

import_module("tensorflow")  # decides which Keras is tf.keras
_functions = import_module("ringleader.keras")
__all__ = list(_functions.__all__)
globals().update({name: getattr(_functions, name) for name in __all__})

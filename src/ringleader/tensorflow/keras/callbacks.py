"""The callbacks, under the path from which scripts that train with ``tf.keras`` import them."""

from __future__ import annotations

from importlib import import_module

_callbacks = import_module("ringleader.keras.callbacks")
__all__ = list(_callbacks.__all__)
globals().update({name: getattr(_callbacks, name) for name in __all__})

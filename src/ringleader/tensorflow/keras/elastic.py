"""`ringleader.keras.elastic`, under the path from which scripts that train with ``tf.keras`` import it."""

from __future__ import annotations

from importlib import import_module

_elastic = import_module("ringleader.keras.elastic")
__all__ = list(_elastic.__all__)
globals().update({name: getattr(_elastic, name) for name in __all__})

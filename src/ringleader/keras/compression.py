"""What makes gradients smaller for the wire: the backend's own `Compression`, as scripts import it."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ringleader.common.compression import ArrayCompression
from ringleader.keras.generation import backend


def _chosen() -> Any:
    if backend() == "jax":
        return ArrayCompression
    return import_module(f"ringleader.{backend()}.compression").Compression


Compression: Any = _chosen()
"""The backend's algorithms: ``none``, ``fp16``, ``bf16``."""

"""`init` under Keras, for the backend that computes."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

from ringleader.common.basics import begin_session
from ringleader.common.numpy_adapter import NumpyAdapter
from ringleader.common.process_sets import ProcessSet
from ringleader.keras.generation import backend


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks. Does nothing if this process already has.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks; None stands for all ranks that the
    launcher started. ``process_sets`` are registered, or with ``"dynamic"`` can be added later.
    """
    if backend() in ("torch", "tensorflow"):
        import_module(f"ringleader.{backend()}").init(comm, process_sets)
    else:
        begin_session(NumpyAdapter, comm, process_sets)


def cuda_built() -> bool:
    """Return whether the backend is built for GPUs of Nvidia."""
    return _built("cuda_built", "cuda")


def rocm_built() -> bool:
    """Return whether the backend is built for GPUs of AMD."""
    return _built("rocm_built", "rocm")


def _built(question: str, platform: str) -> bool:
    if backend() == "jax":
        from jax.extend.backend import backends

        return platform in backends()
    return bool(getattr(import_module(f"ringleader.{backend()}"), question)())

"""Which Keras the script uses: Keras 2 (the package tf_keras) or Keras 3, on which backend; `init` for that.

One script uses one of them. The one that it has imported counts; where it has imported both or none, the
variable TF_USE_LEGACY_KERAS, by which ``tf.keras`` is Keras 2, and then what is installed.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from ringleader.adapters.basics import begin_session
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.process_sets import ProcessSet

__all__ = ["Compression", "cuda_built", "init", "rocm_built"]

BACKENDS = ("tensorflow", "torch", "jax")
"""Backends of Keras 3 that train."""
LEGACY_VARIABLE = "TF_USE_LEGACY_KERAS"
"""With the value 1 or true, ``tf.keras`` is Keras 2."""


@cache
def keras() -> Any:
    """Return the module of the Keras that the script uses; ImportError where there is none."""
    legacy = os.environ.get(LEGACY_VARIABLE, "").lower() in ("1", "true")
    imported = [name for name in ("keras", "tf_keras") if name in sys.modules]
    names = imported if len(imported) == 1 else ["tf_keras", "keras"] if legacy else ["keras", "tf_keras"]
    for name in names:
        if name in sys.modules or find_spec(name) is not None:
            module = import_module(name)
            if name == "keras" and not module.__version__.startswith("3."):
                raise ImportError(
                    f"keras {module.__version__} is too old; install keras >= 3.5, or tf_keras for Keras 2"
                )
            return module
    raise ImportError("Keras is not installed: pip install keras, or tf_keras for Keras 2", name="keras")


def is_keras2() -> bool:
    """Return whether the script uses Keras 2."""
    return keras().__name__ == "tf_keras"


@cache
def backend() -> str:
    """Return what computes: ``tensorflow``, ``torch`` or ``jax``; ImportError for other backends."""
    name = "tensorflow" if is_keras2() else keras().backend.backend()
    if name not in BACKENDS:
        raise ImportError(f"Keras' backend {name!r} does not train; set KERAS_BACKEND to one of {BACKENDS}")
    return str(name)


def check_optimizer(optimizer: Any) -> None:
    """Refuse what is not an optimizer of the script's Keras, with a `ValueError` that names the cure."""
    optimizers = keras().optimizers
    legacy = getattr(optimizers, "legacy", None) if is_keras2() else None
    if isinstance(optimizer, (optimizers.Optimizer, legacy.Optimizer) if legacy else optimizers.Optimizer):
        return
    check_generation(optimizer, "optimizer")
    families = _packages(optimizer)
    kind = f"{type(optimizer).__module__}.{type(optimizer).__qualname__}"
    hint = " (keras.optimizers.get makes one of a name)" if isinstance(optimizer, str) else ""
    hint = hint or " (see hvd.DistributedOptimizer of ringleader.torch)" * ("torch" in families)
    raise ValueError(
        f"DistributedOptimizer takes an optimizer of {_title(keras().__name__)}, not {kind}{hint}"
    )


def check_generation(value: Any, kind: str) -> None:
    """Refuse what is of the other Keras, with a `ValueError` that names the cure; ``kind``: what it is."""
    other = "keras" if is_keras2() else "tf_keras"
    if other in _packages(value) and keras().__name__ not in _packages(value):
        raise ValueError(
            f"this {kind} is of {_title(other)}, but the script also uses {_title(keras().__name__)}: use "
            f"one of them. {LEGACY_VARIABLE}=1, set before TensorFlow is imported, makes tf.keras Keras 2; "
            "without it tf.keras is Keras 3."
        )


def _packages(value: Any) -> set[str]:
    """Return the packages that the class of a value and its bases are from."""
    return {base.__module__.partition(".")[0] for base in type(value).__mro__}


def _title(module: str) -> str:
    return "Keras 2 (tf_keras)" if module == "tf_keras" else "Keras 3 (keras)"


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
    return _built("cuda")


def rocm_built() -> bool:
    """Return whether the backend is built for GPUs of AMD."""
    return _built("rocm")


def _built(platform: str) -> bool:
    if backend() == "jax":
        from jax.extend.backend import backends

        return platform in backends()
    return bool(getattr(import_module(f"ringleader.{backend()}"), f"{platform}_built")())


Compression: Any = import_module(f"ringleader.{backend()}.compression").Compression
"""What makes gradients smaller for the wire, the backend's own: ``none``, ``fp16``, ``bf16``."""

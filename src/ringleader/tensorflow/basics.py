"""`init` under TensorFlow, and which GPUs this TensorFlow is built for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import tensorflow as tf

from ringleader.common import basics
from ringleader.common.process_sets import ProcessSet


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks; see `ringleader.common.basics.init`.

    TensorFlow takes the memory of every GPU that it sees, so it is shown this rank's own, unless the script
    has chosen already.
    """
    basics.init(comm, process_sets)
    if "RINGLEADER_LAUNCHED" not in os.environ or "," not in os.environ.get("CUDA_VISIBLE_DEVICES", ""):
        return
    gpus = tf.config.list_physical_devices("GPU")
    if len(gpus) > 1 and tf.config.get_visible_devices("GPU") == gpus:
        with suppress(RuntimeError):  # GPUs are in use already
            tf.config.set_visible_devices(gpus[basics.local_rank() % len(gpus)], "GPU")


def nccl_built(verbose: bool = False) -> int:
    """Return 0: tensors of a GPU are brought to the host, and NCCL carries none."""
    return 0


def cuda_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of Nvidia."""
    return bool(tf.test.is_built_with_cuda())


def rocm_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of AMD."""
    return bool(tf.test.is_built_with_rocm())

"""`init` under TensorFlow, and which GPUs this TensorFlow is built for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from ringleader.common.basics import begin_session
from ringleader.common.numpy_adapter import NumpyAdapter
from ringleader.common.process_sets import ProcessSet


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks. Does nothing if this process already has.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks; None stands for all ranks that the
    launcher started, or for this process alone where no launcher did. Collective over those ranks.

    ``process_sets`` are registered, or with ``"dynamic"`` can be added later. All ranks bring as many, and at
    each place the same ranks or a part of a communicator that was split. `ValueError` where two of them have
    the same ranks; this process has joined the others all the same.
    """
    begin_session(NumpyAdapter, comm, process_sets)


def nccl_built(verbose: bool = False) -> int:
    """Return 0: tensors of a GPU are brought to the host, and NCCL carries none."""
    return 0


def cuda_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of Nvidia."""
    return bool(tf.test.is_built_with_cuda())


def rocm_built(verbose: bool = False) -> bool:
    """Return whether this TensorFlow has tensors on GPUs of AMD."""
    return bool(tf.test.is_built_with_rocm())

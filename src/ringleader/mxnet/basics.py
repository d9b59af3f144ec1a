"""`init` under MXNet, and which GPUs it is built for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.common.basics import begin_session
from ringleader.common.numpy_adapter import NumpyAdapter
from ringleader.common.process_sets import ProcessSet


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks. Does nothing if this process already has.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks; None stands for all ranks that the
    launcher started, or for this process alone where no launcher did. Collective over those ranks.
    ``process_sets`` are registered, or with ``"dynamic"`` can be added later.
    """
    begin_session(NumpyAdapter, comm, process_sets)


def cuda_built(verbose: bool = False) -> bool:
    """Return whether arrays of CUDA devices can be exchanged: MXNet's cannot."""
    return False


def rocm_built(verbose: bool = False) -> bool:
    """Return whether arrays of ROCm devices can be exchanged: MXNet's cannot."""
    return False

"""`init` under PyTorch, and which GPUs this PyTorch is built for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.collectives.session import Session
from ringleader.common.process_sets import ProcessSet, begin_sets
from ringleader.common.util import gloo_built, mpi_built
from ringleader.torch.adapter import TorchAdapter
from ringleader.torch.ops.handles import forget_handles


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks. Does nothing if this process already has.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks; None stands for all ranks that the
    launcher started, or for this process alone where no launcher did. Collective over those ranks.

    ``process_sets`` are registered, or with ``"dynamic"`` can be added later. All ranks bring as many, and at
    each place the same ranks or a part of a communicator that was split. `ValueError` where two of them have
    the same ranks; this process has joined the others all the same.
    """
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise ValueError(f'process_sets is a list of process sets or "dynamic", not {process_sets!r}')
    dynamic = isinstance(process_sets, str)
    fresh = PROCESS.session is None
    if fresh:
        PROCESS.init(TorchAdapter(), comm, dynamic=dynamic)
        forget_handles()
    if fresh or (process_sets and not dynamic):
        chosen = [] if process_sets is None or isinstance(process_sets, str) else process_sets
        given = [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in chosen]
        begin_sets(given, comm=comm, fresh=fresh)


def session() -> Session:
    """Return what lives between `init` and `shutdown`; `ValueError` before `init`."""
    return PROCESS.get()


def mpi_enabled() -> bool:
    """Return whether ranks find each other by MPI: always, where it is installed."""
    return mpi_built()


def gloo_enabled() -> bool:
    """Return whether ranks find each other by Gloo: never."""
    return gloo_built()


def cuda_built() -> bool:
    """Return whether this PyTorch has tensors on GPUs of Nvidia."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Return whether this PyTorch has tensors on GPUs of AMD."""
    return torch.version.hip is not None

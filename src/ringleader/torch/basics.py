"""Life of the engine, and who this rank is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringleader.collectives.session import PROCESS, Session
from ringleader.torch.adapter import TorchAdapter
from ringleader.torch.ops.handles import forget_handles
from ringleader.torch.process_sets import ProcessSet, begin_sets, end_sets


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


def shutdown() -> None:
    """Part from the other ranks; `init` may follow. Gradients move into memory of this rank's own."""
    PROCESS.shutdown()
    end_sets()


def session() -> Session:
    """Return what lives between `init` and `shutdown`; `ValueError` before `init`."""
    return PROCESS.get()


def is_initialized() -> bool:
    """Return whether this process has joined the others."""
    return PROCESS.session is not None


def rank() -> int:
    """Return the number of this rank among all."""
    return PROCESS.get().ranks.rank


def size() -> int:
    """Return the number of ranks."""
    return PROCESS.get().ranks.size


def local_rank() -> int:
    """Return the number of this rank among those of its host."""
    return PROCESS.get().ranks.local_rank


def local_size() -> int:
    """Return the number of ranks on this host."""
    return PROCESS.get().ranks.local_size


def cross_rank() -> int:
    """Return the number of this host among those that have this local rank."""
    return PROCESS.get().ranks.cross_rank


def cross_size() -> int:
    """Return the number of hosts that have this local rank."""
    return PROCESS.get().ranks.cross_size


def is_homogeneous() -> bool:
    """Return whether every host has the same number of ranks."""
    return PROCESS.get().ranks.homogeneous


def mpi_threads_supported() -> bool:
    """Return whether MPI may be called from several threads."""
    return PROCESS.get().engine.threads

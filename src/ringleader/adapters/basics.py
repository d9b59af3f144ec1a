"""Who this rank is, from `init` to `shutdown`, and the object that Horovod's adapters are made of.

Path and names are Horovod's. Nothing here needs a framework: adapters offer these functions as their own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import PurePath
from typing import Any

from ringleader.adapters.handles import forget_handles
from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.process_sets import (
    ProcessSet,
    begin_sets,
    count_from,
    end_sets,
    global_process_set,
    group_of,
    next_serial,
    process_set_ids_and_ranks,
    renew_sets,
)
from ringleader.adapters.submit_operation import signature_for
from ringleader.adapters.util import gloo_built, mpi_built
from ringleader.engine.engine_session import Session
from ringleader.engine.framework_adapter import FrameworkAdapter
from ringleader.engine.operations import ReduceOp, Work
from ringleader.engine.process_lifecycle import PROCESS

__all__ = ["HorovodBasics"]

FRAMEWORKS = ("torch", "tensorflow", "mxnet", "jax")
"""The adapters' packages."""


class HorovodBasics:
    """``init``, ``rank``, ``size``, ``mpi_built``, ``Average`` and so on, as attributes of one object.

    They are those of one framework's adapter, which is imported when one is asked for.
    """

    def __init__(self, pkg_path: str = "", *args: str) -> None:
        """Take the path of a module in an adapter's package.

        For any other it is the adapter that this process has imported, PyTorch's if there is none. What
        names a compiled library there is ignored: nothing is compiled here.
        """
        self._framework = PurePath(pkg_path).parent.name

    def _get_process_set_ids_and_ranks(self) -> dict[int, list[int]]:
        return process_set_ids_and_ranks()  # by the name that Horovod's own tests use

    def __getattr__(self, name: str) -> Any:
        """Return the adapter's function or value of that name."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)
        framework = self._framework
        if framework not in FRAMEWORKS:
            loaded = (one for one in FRAMEWORKS if f"ringleader.{one}" in sys.modules)
            framework = next(loaded, FRAMEWORKS[0])
        adapter = import_module(f"ringleader.{framework}")
        if not hasattr(adapter, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name)
        return getattr(adapter, name)


def begin_session(
    adapter: type[FrameworkAdapter],
    comm: Any,
    process_sets: Sequence[ProcessSet | Sequence[int]] | str | None,
) -> None:
    """Join the other ranks with what a framework brings: what an adapter's ``init`` does.

    Two frameworks of one script share the session. Every adapter takes NumPy's arrays; where another
    framework's adapter comes second, on all ranks alike, the session begins anew with it.
    """
    if isinstance(process_sets, str) and process_sets.lower() != "dynamic":
        raise ValueError(f'process_sets is a list of process sets or "dynamic", not {process_sets!r}')
    dynamic = isinstance(process_sets, str)
    session = PROCESS.session
    fresh = session is None
    if session is not None and adapter is not NumpyAdapter and not isinstance(session.kernels, adapter):
        _begin_anew(session, adapter)
    if fresh:
        PROCESS.init(adapter(), comm, dynamic=dynamic, with_sets=bool(process_sets) and not dynamic)
        forget_handles()
    if fresh or (process_sets and not dynamic):
        chosen = [] if process_sets is None or isinstance(process_sets, str) else process_sets
        given = [one if isinstance(one, ProcessSet) else ProcessSet(one) for one in chosen]
        begin_sets(given, comm=comm, fresh=fresh)


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks. Does nothing if this process already has.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks; None stands for all ranks that the
    launcher started, or for this process alone where no launcher did. Collective over those ranks.

    ``process_sets`` are registered, or with ``"dynamic"`` can be added later. All ranks bring as many, and at
    each place the same ranks or a part of a communicator that was split. `ValueError` where two of them have
    the same ranks; this process has joined the others all the same.

    For every framework whose tensors NumPy sees in place.
    """
    begin_session(NumpyAdapter, comm, process_sets)


def _begin_anew(session: Session, adapter: type[FrameworkAdapter]) -> None:
    """End the session and open one of the same ranks and process sets with another adapter."""
    sets = process_set_ids_and_ranks()
    PROCESS.shutdown()
    PROCESS.init(adapter(), session.requested, dynamic=session.settings.dynamic_sets)
    forget_handles()
    renew_sets([ranks for number, ranks in sorted(sets.items()) if number])


def shutdown() -> None:
    """Part from the other ranks; `init` may follow. Gradients move into memory of this rank's own."""
    PROCESS.shutdown()
    end_sets()


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
    """Return the number of this rank's slot on its host: from 0 on, one after the other.

    In an elastic job a rank keeps it for as long as it lives, also where another slot is left out.
    """
    return PROCESS.get().ranks.slot


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


def mpi_enabled() -> bool:
    """Return whether ranks find each other by MPI: always, where it is installed."""
    return mpi_built()


def gloo_enabled() -> bool:
    """Return whether ranks find each other by Gloo: never."""
    return gloo_built()


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Wait until all ranks of a process set have called this."""
    serial = next_serial(process_set)
    signature, digest = signature_for("barrier", "uint8", (), "cpu", ReduceOp.SUM, 0, 1.0, 1.0, "")
    work = Work(signature, digest, name=None, serial=serial, array=None, out=None)
    group_of(process_set, "Barrier").engine.run(work)


def join(device: int = -1) -> int:
    """Take part in the others' reductions with zeros until all ranks have called this.

    Returns the rank that was the last. ``device`` is Horovod's and not needed.
    """
    serial = next_serial(global_process_set)
    last, counted = group_of(global_process_set, "Join").engine.join(serial)
    count_from(counted + 1)
    PROCESS.get().at_join.call()
    return last


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Write what operations go through from now on to a file, a Chrome trace, in place of what it held.

    Rank 0 writes alone, or each rank its own where the name has ``{rank}`` in it. ``mark_cycles`` shows each
    meeting of the ranks. A timeline that is being written ends first. Raises `ValueError` before `init`, and
    where HOROVOD_TIMELINE or RINGLEADER_TIMELINE was not set at that time (``DYNAMIC`` writes nothing before
    this); OSError where the file cannot be written.
    """
    timelines = PROCESS.get().timelines
    if not timelines.options.dynamic:
        raise ValueError("Set HOROVOD_TIMELINE=DYNAMIC to enable dynamic timeline usage.")
    timelines.start(file_path, mark_cycles=mark_cycles)


def stop_timeline() -> None:
    """End the timeline that is being written, if there is one; `ValueError` before `init`."""
    PROCESS.get().timelines.stop()

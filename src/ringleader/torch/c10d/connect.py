"""Makes groups of `torch.distributed`: ranks that know each other by MPI meet in a store, and connect.

The store is rank 0's, and new for each group of each generation: a rank 0 that dies takes no later group's
store with it. What a group writes there is below the numbers of its generation and process set.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import torch

from ringleader.adapters.util import env
from ringleader.engine.exceptions import HorovodInternalError, is_transport_error
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.peer_wait import PeerWait
from ringleader.engine.traffic import CommunicatorTraffic
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.c10d.process_group import ProcessGroup, missing
from ringleader.torch.c10d.rendezvous import Rendezvous, agree, call_in_thread, rendezvous

WATCHED_BY_US = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC": "1"}
"""Variables with which a group for an elastic job is made. Else PyTorch would end the process of every rank
whose peer has died, after it had held the group's locks for a minute to write a dump."""


def open_process_group(
    backend: str,
    mpi_calls: MpiCalls,
    peer_wait: PeerWait,
    *,
    one_host: bool,
    timeout: float,
    device: torch.device,
    traffic: CommunicatorTraffic,
    watch: GroupWatch | None = None,
    generation: int = 0,
    number: int = 0,
) -> ProcessGroup:
    """Make a group for this rank's tensors on ``device``. Collective; `HorovodInternalError` on every rank.

    ``timeout`` in seconds bounds an operation inside the backend; where it has passed in NCCL, PyTorch ends
    the process, or in an elastic job ``watch``. ``generation`` is the elastic job's, 0 in others; ``number``
    is that of the process set.
    """
    agree(mpi_calls, missing(backend))
    meeting = rendezvous(mpi_calls, peer_wait, one_host=one_host)
    below: Any = torch.distributed.PrefixStore  # type: ignore[attr-defined]
    store = below(store_prefix(generation, number), meeting.store)
    limit = timedelta(seconds=timeout)
    group, problem = None, ""

    def make() -> Any:
        if backend == "gloo":
            return _gloo(store, meeting, mpi_calls, limit)
        return _nccl(store, mpi_calls, limit, device, elastic=generation > 0)

    watch = watch or GroupWatch()
    try:
        raw = call_in_thread(peer_wait, make)
        name = f"process set {number}" if number else ""
        group = ProcessGroup(backend, raw, store, peer_wait, traffic, name=name, watch=watch, timeout=timeout)
        watch.add(group, generation=generation, why_broken=peer_wait.why_broken)
        call_in_thread(peer_wait, lambda: group.connect(device))
    except (RuntimeError, TypeError, AttributeError) as error:
        if isinstance(error, HorovodInternalError) or (
            isinstance(error, RuntimeError) and not is_transport_error(error)
        ):
            _give_up(group)
            raise
        problem = f"{backend} could not connect: {error}"
    try:
        agree(mpi_calls, problem)
    except HorovodInternalError:
        _give_up(group)
        raise
    assert group is not None
    return group


def store_prefix(generation: int, number: int) -> str:
    """Return below what a group of a process set writes in the store."""
    return f"ringleader/generation.{generation}/set.{number}"


def _give_up(group: ProcessGroup | None) -> None:
    if group is not None:
        group.close(together=False)


def _gloo(store: Any, meeting: Rendezvous, mpi_calls: MpiCalls, timeout: timedelta) -> Any:
    from torch.distributed import ProcessGroupGloo

    group: Any = ProcessGroupGloo
    options = group._Options()
    # Gloo's own choice is the address of the host's name, which other hosts may not reach.
    options._devices = [group.create_device(hostname=meeting.own_address)]
    options._timeout = timeout
    options._threads = 2
    return group(store, mpi_calls.rank, mpi_calls.size, options)


def _nccl(store: Any, mpi_calls: MpiCalls, timeout: timedelta, device: torch.device, *, elastic: bool) -> Any:
    from torch.distributed import ProcessGroupNCCL

    options = ProcessGroupNCCL.Options()
    options._timeout = timeout
    torch.cuda.set_device(device)  # of this thread: NCCL's set-up looks at the current one
    with env(**(WATCHED_BY_US if elastic else {})):
        return ProcessGroupNCCL(store, mpi_calls.rank, mpi_calls.size, options)

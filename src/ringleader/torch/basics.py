"""`init` under PyTorch, what PyTorch brings to the engine for it, and which GPUs it is built for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ringleader.adapters.basics import begin_session
from ringleader.adapters.process_sets import ProcessSet
from ringleader.engine.engine_session import Session
from ringleader.engine.framework_adapter import DeviceTransport, TransportContext
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.engine.transports.transport import Transport
from ringleader.torch.c10d.distributed_transport import DistributedTransport
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.cuda.gpu_transport import GpuTransport
from ringleader.torch.cuda.own_gpu import choose_gpu, name_gpu_at_the_end
from ringleader.torch.torch_kernels import TorchKernels

__all__ = ["cuda_built", "init", "rocm_built"]


class TorchAdapter(TorchKernels):
    """See `ringleader.engine.framework_adapter.FrameworkAdapter`. Each session has one."""

    def __init__(self) -> None:
        """Begin without groups."""
        super().__init__()
        self._watch = GroupWatch()

    def host_transport(self, context: TransportContext) -> Transport:
        """Return a transport for CPU tensors over Gloo: the same code that uses NCCL on GPUs."""
        if context.mpi_calls is None:
            return context.host
        return DistributedTransport("gloo", context, self, adasum=context.host, watch=self._watch)

    def device_transport(self, context: TransportContext) -> DeviceTransport:
        """Return what carries tensors on GPUs; nothing is set up before the first of them."""
        return GpuTransport(context, watch=self._watch)


def init(comm: Any = None, process_sets: Sequence[ProcessSet | Sequence[int]] | str | None = None) -> None:
    """Join the other ranks. Does nothing if this process already has.

    ``comm`` is an mpi4py communicator to live on, or a list of ranks; None stands for all ranks that the
    launcher started, or for this process alone where no launcher did. Collective over those ranks.

    ``process_sets`` are registered, or with ``"dynamic"`` can be added later. All ranks bring as many, and at
    each place the same ranks or a part of a communicator that was split. `ValueError` where two of them have
    the same ranks; this process has joined the others all the same.
    """
    begin_session(TorchAdapter, comm, process_sets)
    choose_gpu(local_rank=session().ranks.slot)
    name_gpu_at_the_end()


def session() -> Session:
    """Return what lives between `init` and `shutdown`; `ValueError` before `init`."""
    return PROCESS.get()


def cuda_built() -> bool:
    """Return whether this PyTorch has tensors on GPUs of Nvidia."""
    return torch.version.cuda is not None


def rocm_built() -> bool:
    """Return whether this PyTorch has tensors on GPUs of AMD."""
    return torch.version.hip is not None

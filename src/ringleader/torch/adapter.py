"""The adapter: what PyTorch brings to the engine, vector kernels and transports of its own."""

from __future__ import annotations

import torch

from ringleader.collectives.framework_adapter import DeviceTransport, TransportContext
from ringleader.collectives.transports.transport import Transport
from ringleader.torch.c10d.distributed_transport import DeviceKernels, DistributedTransport
from ringleader.torch.c10d.process_group import open_gloo
from ringleader.torch.cuda.gpu_transport import GpuTransport
from ringleader.torch.kernels import TorchKernels


class TorchAdapter(TorchKernels):
    """See `ringleader.collectives.framework_adapter.Adapter`."""

    def host_transport(self, context: TransportContext) -> Transport:
        """Return a transport for CPU tensors over Gloo: the same code that uses NCCL on GPUs."""
        mpi_calls = context.mpi_calls
        if mpi_calls is None:
            return context.host
        return DistributedTransport(
            mpi_calls,
            DeviceKernels(torch.device("cpu")),
            open_group=lambda: open_gloo(
                mpi_calls,
                context.peer_wait,
                one_host=context.ranks.hosts == 1,
                timeout=context.deadline_seconds,
            ),
            adasum=context.host,
        )

    def device_transport(self, context: TransportContext) -> DeviceTransport:
        """Return what carries tensors on GPUs; nothing is set up before the first of them."""
        return GpuTransport(context)

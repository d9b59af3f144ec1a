"""The adapter: what PyTorch brings to the engine, vector kernels and transports of its own."""

from __future__ import annotations

from ringleader.collectives.framework_adapter import DeviceTransport, TransportContext
from ringleader.collectives.transports.transport import Transport
from ringleader.torch.c10d.distributed_transport import DistributedTransport
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.cuda.gpu_transport import GpuTransport
from ringleader.torch.kernels import TorchKernels


class TorchAdapter(TorchKernels):
    """See `ringleader.collectives.framework_adapter.FrameworkAdapter`. Each session has one."""

    def __init__(self) -> None:
        """Begin without groups."""
        super().__init__()
        self._watch = GroupWatch()

    def host_transport(self, context: TransportContext) -> Transport:
        """Return a transport for CPU tensors over Gloo: the same code that uses NCCL on GPUs."""
        if context.mpi_calls is None:
            return context.host
        return DistributedTransport(
            "gloo", context, context.mpi_calls, self, adasum=context.host, watch=self._watch
        )

    def device_transport(self, context: TransportContext) -> DeviceTransport:
        """Return what carries tensors on GPUs; nothing is set up before the first of them."""
        return GpuTransport(context, watch=self._watch)

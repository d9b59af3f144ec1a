"""What PyTorch brings to the engine: vector kernels, and transports of its own."""

from __future__ import annotations

import torch

from ringleader.collectives.framework_adapter import DeviceTransport, Group
from ringleader.collectives.transports import Transport
from ringleader.torch.c10d.distributed_transport import DeviceKernels, DistributedTransport
from ringleader.torch.c10d.process_group import open_gloo
from ringleader.torch.cuda.gpu_transport import TorchDevices
from ringleader.torch.kernels import TorchKernels


class TorchAdapter(TorchKernels):
    """See `ringleader.collectives.framework_adapter.Adapter`."""

    def host_transport(self, group: Group) -> Transport:
        """Return a transport for CPU tensors over Gloo: the same code that uses NCCL on GPUs."""
        wire = group.wire
        if wire is None:
            return group.host
        return DistributedTransport(
            wire,
            DeviceKernels(torch.device("cpu")),
            open_group=lambda: open_gloo(
                wire,
                group.watch,
                one_host=group.ranks.hosts == 1,
                timeout=group.deadline_seconds,
            ),
            adasum=group.host,
        )

    def device_transport(self, group: Group) -> DeviceTransport:
        """Return what carries tensors on GPUs; nothing is set up before the first of them."""
        return TorchDevices(group)

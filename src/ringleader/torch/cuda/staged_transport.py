"""Tensors of one device carried by a transport of another: copied there, carried, and copied back.

This is how tensors on GPUs travel where NCCL cannot carry them: through pinned host memory, over the
transport for host memory. Results are those of that transport. Only the current stream is waited for, not
the device.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import torch

from ringleader.engine.operations import ReduceOp, Signature, Work
from ringleader.engine.peer_wait import PeerWait
from ringleader.engine.transports.transport import Region, Transport
from ringleader.torch.torch_kernels import TorchKernels


class StagedTransport(Transport):
    """Has ``inner``, which carries tensors of another device, carry tensors of this one."""

    name = "staged"
    _kernels: TorchKernels

    def __init__(
        self, inner: Transport, kernels: TorchKernels, peer_wait: PeerWait, *, inner_device: torch.device
    ) -> None:
        """Use ``inner`` on ``inner_device``; ``kernels`` make tensors of the device that is served."""
        self._inner = inner
        self._kernels = kernels
        self._peer_wait = peer_wait
        self._device = inner_device
        self._pinned = inner_device.type == "cpu" and kernels.device.type == "cuda"

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work."""
        if work.signature.kind == "gradients":
            self.exchange(work.array, work.signature.op, work.signature.postscale)
        else:
            self.execute_together([work])

    def execute_together(self, works: Sequence[Work]) -> None:
        """Carry out several works; all their copies are on their way before the first is waited for."""
        copies = [self.copied(work) for work in works]
        self._wait_for_copies()
        for work, there in zip(works, copies, strict=True):
            self._inner.execute(there, staged=0)
            self.copy_back(work, there)

    def copied(self, work: Work) -> Work:
        """Return the same work with copies of its tensors, which the current stream makes."""
        there = copy.copy(work)
        there.array = self._copied(work.array)
        there.out = there.array if work.out is work.array else None
        if there.out is None and work.out is not None:
            there.out = self._memory_like(work.out)
        return there

    def copy_back(self, work: Work, there: Work) -> None:
        """Bring the result of a work that `copied` made, once it is done."""
        work.received = there.received
        if work.out is None:
            work.out = self._kernels.empty(tuple(there.out.shape), work.signature.dtype)
        work.out.copy_(there.out, non_blocking=True)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region over all ranks in place.

        Memory that the inner transport registers would have to be filled before the ranks synchronize. Here
        they have met, so the region goes as any other tensor.
        """
        signature = Signature(
            kind="allreduce", dtype=region.dtype, shape=(region.count,), op=op, postscale=factor
        )
        memory = self._copied(region.mine)
        self._wait_for_copies()
        on_host = Work(signature, 0, name=None, serial=0, array=memory, out=memory)
        self._inner.execute(on_host, staged=0)
        region.mine.copy_(memory, non_blocking=True)

    def _copied(self, tensor: torch.Tensor) -> torch.Tensor:
        memory = self._memory_like(tensor)
        memory.copy_(tensor, non_blocking=True)
        return memory

    def _memory_like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return new memory for such a tensor; PyTorch keeps pinned memory for the next time."""
        if self._pinned:
            return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
        return torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device)

    def _wait_for_copies(self) -> None:
        """Wait until the copies on the current stream are done; between devices the stream orders them."""
        if self._pinned:
            copied: Callable[[], bool] = torch.cuda.current_stream(self._kernels.device).record_event().query
            self._peer_wait.until(copied, lambda: [])

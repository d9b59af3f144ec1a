"""What carries tensors on GPUs: NCCL, or the host where NCCL cannot, or nothing where a rank is alone.

Which of them is settled by the first operation, by all ranks together. A rank carries tensors of one GPU, the
one of its first operation; tensors of another GPU in the same process are copied to it and back.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

import torch

from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.framework_adapter import TransportContext
from ringleader.collectives.operations import Work
from ringleader.collectives.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.collectives.transports.regions import Region
from ringleader.collectives.transports.transport import Transport
from ringleader.torch.c10d.distributed_transport import DistributedTransport
from ringleader.torch.c10d.process_group import missing
from ringleader.torch.cuda.cuda_streams import CudaStreams, tensors_of
from ringleader.torch.cuda.staged_transport import StagedTransport
from ringleader.torch.kernels import CPU, TorchKernels


@dataclass(frozen=True, kw_only=True)
class GpuFacts:
    """What one rank knows of its GPU before the first operation."""

    gpu: str
    """The same text for the same piece of hardware, whatever its number in this process."""
    obstacle: str
    """Why NCCL cannot carry this rank's tensors; empty where it may."""


def obstacle_to_nccl(ranks: Sequence[GpuFacts]) -> str:
    """Return why NCCL cannot carry the tensors of these ranks, in rank order; empty where it may. Pure."""
    for rank, facts in enumerate(ranks):
        if facts.obstacle:
            return f"{facts.obstacle} (rank {rank})"
    first: dict[str, int] = {}
    for rank, facts in enumerate(ranks):
        other = first.setdefault(facts.gpu, rank)
        if other != rank:
            return (
                f"ranks {other} and {rank} use the same GPU, which NCCL refuses; where each has its own, "
                "call torch.cuda.set_device(hvd.local_rank()) before the first tensor is made"
            )
    return ""


class GpuTransport:
    """See `ringleader.collectives.framework_adapter.DeviceTransport`."""

    def __init__(
        self,
        context: TransportContext,
        *,
        streams: CudaStreams | None = None,
        kind: str = "cuda",
        usual_device: Callable[[], torch.device] = lambda: torch.device("cuda", torch.cuda.current_device()),
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
    ) -> None:
        """Serve a group with tensors on devices of one ``kind``.

        ``usual_device`` is where a rank takes part that brings no tensor of its own.
        """
        self._context = context
        self._streams = streams or CudaStreams()
        self._kind = kind
        self._usual_device = usual_device
        self._say = say
        self._transport: Transport | None = None
        self._device = CPU
        self._other_gpus: dict[torch.device, StagedTransport] = {}

    @property
    def name(self) -> str:
        """Return the transport in use, empty before the first operation."""
        return self._transport.name if self._transport is not None else ""

    def submitted(self, work: Work) -> None:
        """Note where in the order of its GPU the work stands."""
        device = tensors_of(work)[0].device
        if device.type != self._kind:
            raise ValueError(
                f"Tensors on a device of type {device.type} are not supported; move them to the CPU."
            )
        self._streams.submitted(work, device)

    def execute(self, work: Work) -> None:
        """Carry out the work on its stream."""
        device = tensors_of(work)[0].device
        with self._streams.ordered(work):
            self._transport_for(device).execute(work, staged=False)

    def delivered(self, work: Work) -> None:
        """Have the stream of the calling thread wait for the result."""
        self._streams.delivered(work)

    def register(self, count: int, dtype: str, place: str) -> Region:
        """Make memory on the GPU; it is PyTorch's plain memory."""
        memory = TorchKernels(torch.device(place)).empty((count,), dtype)
        return Region(dtype=dtype, count=count, mine=memory, device=place)

    def cut(self, region: Region, start: int, count: int) -> Region:
        """Return a part of the memory."""
        return replace(region, count=count, mine=region.mine[start : start + count])

    def close(self, *, together: bool) -> None:
        """Let go of the group on the GPUs."""
        self._other_gpus.clear()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close(together=together)

    # which way

    def _transport_for(self, device: torch.device) -> Transport:
        """Return the transport for tensors of this device; settles the way with all ranks at first."""
        if self._transport is None:
            self._device = device if device.type == self._kind else self._usual_device()
            self._transport = self._choose_transport(self._device)
        if device == self._device:
            return self._transport
        staged = self._other_gpus.get(device)
        if staged is None:
            staged = self._other_gpus[device] = StagedTransport(
                self._transport, TorchKernels(device), self._context.peer_wait, inner_device=self._device
            )
        return staged

    def _choose_transport(self, device: torch.device) -> Transport:
        context, kernels = self._context, TorchKernels(device)
        if context.host.name == "uncoupled":
            return UncoupledTransport(kernels, context.ranks.size, context.ranks.rank)
        if context.mpi_calls is None or context.ranks.size == 1:
            return LoopbackTransport(kernels)
        facts = json.dumps(asdict(self._gpu_facts(device))).encode()
        facts_of_ranks = [GpuFacts(**json.loads(message)) for message in context.mpi_calls.messages(facts)]
        obstacle = obstacle_to_nccl(facts_of_ranks)
        staged = StagedTransport(context.host, kernels, context.peer_wait, inner_device=CPU)
        if not obstacle:
            nccl = DistributedTransport("nccl", context, context.mpi_calls, kernels, adasum=staged)
            try:
                nccl.open()
                return nccl
            except HorovodInternalError as error:
                obstacle = str(error)
        if context.ranks.rank == 0:
            self._say(
                "ringleader: tensors on GPUs travel through host memory, which is slower than NCCL: "
                f"{obstacle}."
            )
        return staged

    def _gpu_facts(self, device: torch.device) -> GpuFacts:
        obstacle = missing("nccl")
        if self._context.requested == "mpi":
            obstacle = "RINGLEADER_TRANSPORT=mpi asks for it"
        gpu = str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""
        return GpuFacts(gpu=gpu, obstacle=obstacle)

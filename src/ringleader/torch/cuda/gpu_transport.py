"""What carries tensors on GPUs: NCCL, or the host where NCCL cannot, or nothing where a rank is alone.

Which of them is settled by the first operation, by all ranks together. A rank carries tensors of one GPU, the
one of its first operation; tensors of another GPU in the same process are copied to it and back.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace

import torch

from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.framework_adapter import TransportContext
from ringleader.engine.launch_order import Launch
from ringleader.engine.operations import Work
from ringleader.engine.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.engine.transports.transport import Region, Transport
from ringleader.torch.c10d.connect import of_all, open_process_group
from ringleader.torch.c10d.distributed_transport import DistributedTransport
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.c10d.process_group import ProcessGroup, missing
from ringleader.torch.cuda.cuda_streams import CudaStreams, tensors_of
from ringleader.torch.cuda.own_gpu import gpu_words, newest_operation, own_gpu
from ringleader.torch.cuda.staged_transport import StagedTransport
from ringleader.torch.torch_kernels import CPU, TorchKernels


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
                "call torch.cuda.set_device(hvd.local_rank()) before the first tensor is made, or let each "
                "rank see its own alone (ringleader run --own-gpu)"
            )
    return ""


class GpuTransport:
    """See `ringleader.engine.framework_adapter.DeviceTransport`."""

    def __init__(
        self,
        context: TransportContext,
        *,
        streams: CudaStreams | None = None,
        kind: str = "cuda",
        device_of: Callable[[torch.Tensor], torch.device] = lambda tensor: tensor.device,
        usual_device: Callable[[], torch.device] = own_gpu,
        facts: Callable[[torch.device], GpuFacts] | None = None,
        open_nccl: Callable[..., ProcessGroup] = open_process_group,
        new_kernels: Callable[[torch.device], TorchKernels] = TorchKernels,
        watch: GroupWatch | None = None,
        say: Callable[[str], None] = lambda text: print(text, file=sys.stderr, flush=True),  # noqa: T201
    ) -> None:
        """Serve a group with tensors on devices of one ``kind``; ``device_of`` tells which one a tensor's is.

        ``usual_device`` is where a rank takes part that brings no tensor. ``facts`` tells what a
        rank knows of its device, ``open_nccl`` connects the ranks, ``new_kernels`` makes what computes there,
        ``watch`` aborts the session's groups.
        """
        self._context = context
        self._streams = streams or CudaStreams()
        self._kind = kind
        self._device_of = device_of
        self._usual_device = usual_device
        self._facts = facts or self._gpu_facts
        self._open_nccl = open_nccl
        self._new_kernels = new_kernels
        self._watch = watch or GroupWatch()
        self._say = say
        self._transport: Transport | None = None
        self._device = CPU
        self._submitted_on: torch.device | None = None
        self._staged: dict[tuple[torch.device, bool], StagedTransport] = {}
        self._sequence: Launch | None = None

    @property
    def name(self) -> str:
        """Return the transport in use, empty before the first operation."""
        return self._transport.name if self._transport is not None else ""

    def kind_of(self, place: str) -> str:
        """Return what signatures call a device."""
        kind = torch.device(place).type
        return "cuda" if kind == self._kind else kind

    def capturing(self) -> bool:
        """Return whether the calling thread's stream only records a CUDA graph."""
        return self._streams.capturing()

    def submitted(self, work: Work) -> None:
        """Note where in the order of its GPU the work stands."""
        if self._streams.capturing():
            raise RuntimeError(
                f"{work} while a CUDA graph is captured: ranks cannot agree on what a graph replays. Capture "
                "forward and backward alone, and call operations and optimizer.step() after the replay."
            )
        if work.signature.kind == "launch":
            return
        device = self._device_of(tensors_of(work)[0])
        if device.type != self._kind:
            raise ValueError(
                f"Tensors on a device of type {device.type} are not supported; move them to the CPU."
            )
        self._submitted_on = self._submitted_on or device
        self._streams.submitted(work, device)

    def execute(self, work: Work) -> None:
        """Carry out the work on its stream, in the order of all that this process launches."""
        if work.signature.kind == "launch":
            self._begin_sequence(work)
            return
        device = self._device_of(tensors_of(work)[0])
        with (
            self._named(work, device),
            self._turn(device, work) as aside,
            self._streams.ordered(work, carrier=self._carrier, aside=aside),
        ):
            self._carrier_for(device, aside=aside).execute(work, staged=0)

    def execute_together(self, works: Sequence[Work]) -> None:
        """Carry out allreduces that are alike but for their shapes, where that can be, in one call."""
        placed = [self._device_of(tensors_of(work)[0]) for work in works]
        with (
            self._named(works[0], placed[0]),
            self._turn(placed[0], works[0]) as aside,
            self._streams.ordered(*works, carrier=self._carrier, aside=aside),
        ):
            transport = self._carrier_for(self._device, aside=aside)
            if isinstance(transport, StagedTransport) and set(placed) == {self._device}:
                transport.execute_together(works)
            elif isinstance(transport, DistributedTransport):
                self._allreduce_together(transport, works, placed)
            else:
                for work, device in zip(works, placed, strict=True):
                    self._carrier_for(device, aside=aside).execute(work, staged=0)

    # sequences

    @property
    def launches(self) -> bool:
        """Return whether the transport in use is one whose work is launched and not waited for."""
        return isinstance(self._transport, DistributedTransport)

    def _begin_sequence(self, work: Work) -> None:
        """Find out with all ranks whether gradients can be launched without meeting for each bucket."""
        work.out = False
        if not isinstance(self._transport, DistributedTransport) or self._context.mpi_calls is None:
            return
        order = self._context.launch_order
        launch = order.propose(self._context.number, sequence=True, willing=work.array is True)
        try:
            if order.settle(launch, self._context.mpi_calls.integers(launch.message)):
                self._context.peer_wait.until(lambda: order.is_next(launch), lambda: [])
                self._sequence, work.out = launch, True
        finally:
            if self._sequence is not launch:
                order.finish(launch)

    def launch(self, work: Work) -> None:
        """Launch one exchange of the sequence; nothing here waits for the device or another rank."""
        device = self._device_of(tensors_of(work)[0])
        self._streams.submitted(work, device)
        with self._named(work, device), self._streams.ordered(work, carrier=self._carrier):
            self._carrier_for(device, aside=False).execute(work, staged=0)

    def written(self, work: Work) -> None:
        """Note that the calling thread's stream writes a part of what the work will exchange."""
        self._streams.written(work, self._device_of(tensors_of(work)[0]))

    def end_sequence(self, launched: Sequence[Work] = ()) -> None:
        """Let what comes next be launched, and have the script's streams wait for the last of each device."""
        launch, self._sequence = self._sequence, None
        if launch is not None:
            self._context.launch_order.finish(launch)
        last = {self._device_of(tensors_of(work)[0]): work for work in launched}
        for work in last.values():
            self.delivered(work)

    @property
    def _carrier(self) -> torch.device | None:
        """Return the GPU whose tensors the transport exchanges, None before it is known."""
        return self._device if self._device.type == self._kind else None

    @contextmanager
    def _named(self, work: Work, device: torch.device) -> Iterator[None]:
        """Add to an error which rank, GPU and operation it met."""
        newest_operation(self._context.ranks.rank, device, str(work))
        try:
            yield
        except RuntimeError as error:
            error.add_note(f"ringleader: rank {self._context.ranks.rank}, {gpu_words(device)}, in {work}")
            raise

    @contextmanager
    def _turn(self, device: torch.device, work: Work) -> Iterator[bool]:
        """Wait for an operation's place in the launch order; tell whether it goes through the host."""
        self._carrier_for(device, aside=False)
        if not isinstance(self._transport, DistributedTransport) or self._context.mpi_calls is None:
            yield False
            return
        order = self._context.launch_order
        launch = order.propose(self._context.number)
        try:
            granted = order.settle(launch, self._context.mpi_calls.integers(launch.message))
            if granted:
                self._context.peer_wait.until(lambda: order.is_next(launch), lambda: [])
            elif order.gives_up and self._context.ranks.rank == 0:
                self._say(
                    f"ringleader: operations on GPUs during backward, such as {work}, came between the "
                    "exchanges of gradients three times: from now on ranks agree on each bucket, which costs "
                    "overlap. SyncBatchNorm does that; torch.nn.BatchNorm does not."
                )
            yield not granted
        finally:
            order.finish(launch)

    def _allreduce_together(
        self, transport: DistributedTransport, works: Sequence[Work], placed: Sequence[torch.device]
    ) -> None:
        """Hand all works over in one call, as the other ranks do; those of other GPUs as copies."""
        others = [None if device == self._device else self._staged_for(device) for device in placed]
        carried = [
            work if other is None else other.copied(work) for work, other in zip(works, others, strict=True)
        ]
        transport.allreduce_together(carried)
        for work, there, other in zip(works, carried, others, strict=True):
            if other is not None:
                other.copy_back(work, there)

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
        self._staged.clear()
        self.end_sequence()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close(together=together)

    # which way

    def _carrier_for(self, device: torch.device, *, aside: bool) -> Transport:
        """Return what carries tensors of this device; settles the way with all ranks at first.

        ``aside``: through the host, while the devices are busy with a sequence.
        """
        if self._transport is None:
            # A rank that has joined brings zeros on the host, and this thread's current GPU is another.
            elsewhere = device.type != self._kind
            self._device = (self._submitted_on or self._usual_device()) if elsewhere else device
            self._transport = self._choose_transport(self._device)
        if device == self._device and not aside:
            return self._transport
        return self._staged_for(device, aside=aside)

    def _staged_for(self, device: torch.device, *, aside: bool = False) -> StagedTransport:
        """Return what brings tensors of another GPU of this process to the one whose tensors are carried.

        ``aside``: what brings those of any to the host.
        """
        found = self._staged.get((device, aside))
        if found is None:
            inner, there = (self._context.host, CPU) if aside else (self._transport, self._device)
            assert inner is not None
            found = self._staged[device, aside] = StagedTransport(
                inner, TorchKernels(device), self._context.peer_wait, inner_device=there
            )
        return found

    def _choose_transport(self, device: torch.device) -> Transport:
        context, kernels = self._context, self._new_kernels(device)
        if context.host.name == "uncoupled":
            return UncoupledTransport(kernels, context.ranks.size, context.ranks.rank)
        if context.mpi_calls is None or context.ranks.size == 1:
            return LoopbackTransport(kernels)
        facts = of_all(context.mpi_calls, asdict(self._facts(device)))
        obstacle = obstacle_to_nccl([GpuFacts(**one) for one in facts])
        staged = StagedTransport(context.host, kernels, context.peer_wait, inner_device=CPU)
        if not obstacle:
            nccl = DistributedTransport(
                "nccl", context, kernels, adasum=staged, open_group=self._open_nccl, watch=self._watch
            )
            try:
                nccl.open()
                return nccl
            except HorovodInternalError as error:
                if context.peer_wait.why_broken():
                    raise  # there are no ranks to continue with another way
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

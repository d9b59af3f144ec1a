"""`torch.distributed` as a transport: NCCL for tensors on GPUs, and the same code over Gloo on the CPU.

Reductions of the types that the backend knows are its own; they leave the same bits on every rank. For all
others, and for the minimum and maximum of floats, where it may drop a NaN, every rank receives one piece of
everybody's tensor, reduces it in rank order with PyTorch's kernels and sends the result to all. NCCL applies
averages and factors of floating-point sums itself, within the reduction; all others are applied here, by the
rules of all transports.

On a GPU nothing here waits for the device: calls are put on the current stream, in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from ringleader.engine.framework_adapter import TransportContext
from ringleader.engine.operations import ReduceOp, Work, plain_op, row_counts
from ringleader.engine.transports.plain_mpi import may_drop_nan
from ringleader.engine.transports.transport import Region, Transport, splits_of
from ringleader.torch.c10d.connect import open_process_group
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.c10d.process_group import NATIVE, ProcessGroup
from ringleader.torch.torch_kernels import DTYPES, TorchKernels


class DistributedTransport(Transport):
    """Carries tensors on one device with a `ProcessGroup`, which is opened by the first operation."""

    name = "distributed"
    _kernels: TorchKernels

    def __init__(
        self,
        backend: str,
        context: TransportContext,
        kernels: TorchKernels,
        *,
        adasum: Transport,
        open_group: Callable[..., ProcessGroup] = open_process_group,
        watch: GroupWatch | None = None,
    ) -> None:
        """Open a group of ``backend``, which is collective, when the first operation is there.

        The context's ranks are not alone; its MPI calls carry row counts, which are the host's business.
        ``adasum`` carries out reductions with Adasum, which no backend has. ``open_group`` connects the
        ranks. ``watch`` is that of the session's groups.
        """
        assert context.mpi_calls is not None
        self._backend = backend
        self._context, self._mpi_calls = context, context.mpi_calls
        self._kernels = kernels
        self._adasum = adasum
        self._open_group = open_group
        self._watch = watch or GroupWatch()
        self._opened: ProcessGroup | None = None
        self._kinds: dict[str, Callable[[Work], None]] = {
            "allreduce": self._allreduce,
            "allgather": self._allgather,
            "broadcast": self._broadcast,
            "alltoall": self._alltoall,
            "reducescatter": self._reducescatter,
            "gradients": self._gradients,
        }

    def open(self) -> None:
        """Connect the ranks now. Collective; raises `HorovodInternalError` on every rank."""
        if self._opened is None:
            self._opened = self._open_group(self._backend, self._context, self._kernels.device, self._watch)

    @property
    def _group(self) -> ProcessGroup:
        self.open()
        assert self._opened is not None
        return self._opened

    def execute(self, work: Work, *, staged: int) -> None:
        """Carry out the work."""
        carry = self._kinds.get(work.signature.kind)
        if carry is not None:
            carry(work)

    # kinds

    def _allreduce(self, work: Work) -> None:
        if work.signature.op is ReduceOp.ADASUM:
            self._adasum.execute(work, staged=0)
        else:
            self.allreduce_together([work])

    def allreduce_together(self, works: Sequence[Work]) -> None:
        """Carry out allreduces that are alike but for their shapes in one call of the backend.

        NCCL aggregates what is in one call into one kernel, so nothing is copied into a buffer and out again.
        """
        signature, kernels = works[0].signature, self._kernels
        flats = []
        for work in works:
            if work.out is not work.array:
                kernels.copy(work.out, work.array)
            flats.append(kernels.flat(work.out))
        factor, summed = signature.postscale, signature.op in (ReduceOp.SUM, ReduceOp.AVERAGE)
        if summed and flats[0].dtype.is_floating_point and self._group.scales:
            factor *= signature.prescale
        elif signature.prescale != 1.0:
            for flat in flats:
                kernels.scale(flat, signature.prescale)
        self._reduce(flats, signature.op, factor)

    def _allgather(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        rows = self._mpi_calls.integers(kernels.length(work.array))
        work.received = tuple(rows)
        work.out = kernels.empty((sum(rows), *signature.shape), signature.dtype)
        width = math.prod(signature.shape)
        self._gather(kernels.flat(work.out), kernels.flat(work.array), [count * width for count in rows])

    def _broadcast(self, work: Work) -> None:
        if work.out is not work.array and self._mpi_calls.rank == work.signature.root:
            self._kernels.copy(work.out, work.array)
        self._group.broadcast([(self._kernels.flat(work.out), work.signature.root)])

    def _alltoall(self, work: Work) -> None:
        signature, kernels = work.signature, self._kernels
        splits = splits_of(work, kernels, self._mpi_calls.size)
        work.received = tuple(self._mpi_calls.swap_integers(splits))
        work.out = kernels.empty((sum(work.received), *signature.shape), signature.dtype)
        width = math.prod(signature.shape)
        if width == 0:
            return
        sent, received = [width * rows for rows in splits], [width * rows for rows in work.received]
        own = kernels.flat(work.array)[: sum(sent)]
        self._group.alltoall(kernels.flat(work.out), own, received, sent)

    def _reducescatter(self, work: Work) -> None:
        signature, kernels, size = work.signature, self._kernels, self._mpi_calls.size
        rows = row_counts(signature.shape[0], size)
        work.out = kernels.empty((rows[self._mpi_calls.rank], *signature.shape[1:]), signature.dtype)
        own = kernels.flat(work.array)
        if kernels.count(own) == 0:
            return
        if signature.prescale != 1.0:
            own = own.clone()
            kernels.scale(own, signature.prescale)
        out = kernels.flat(work.out)
        op, factor = plain_op(signature.op, signature.postscale, size)
        width = math.prod(signature.shape[1:])
        counts = [count * width for count in rows]
        even = op is ReduceOp.SUM and len(set(rows)) == 1 and out.dtype in NATIVE
        if even and self._group.has_reduce_scatter:
            left = self._group.reduce_scatter(out, own, factor)
            if left != 1.0:
                kernels.scale(out, left)
        else:
            self._alltoall_and_reduce(out, own, counts, op, factor)

    def _gradients(self, work: Work) -> None:
        self.exchange(work.array, work.signature.op, work.signature.postscale)

    def exchange(self, region: Region, op: ReduceOp, factor: float) -> None:
        """Reduce the region in place."""
        self._reduce([region.mine], op, factor)

    # steps

    def _reduce(self, tensors: Sequence[torch.Tensor], wanted: ReduceOp, postscale: float) -> None:
        """Reduce 1-D tensors of one type over all ranks in place, and scale the results."""
        flats = [flat for flat in tensors if flat.numel()]
        if not flats:
            return
        op, factor = plain_op(wanted, postscale, self._mpi_calls.size)
        dtype = flats[0].dtype
        if dtype == torch.bool:
            # Bytes of 0 and 1: "or" is their maximum and "and" their minimum.
            either = op in (ReduceOp.SUM, ReduceOp.MAX)
            bytes_ = [flat.view(torch.uint8) for flat in flats]
            self._group.allreduce(bytes_, ReduceOp.MAX if either else ReduceOp.MIN)
        elif dtype in NATIVE and not may_drop_nan(op, DTYPES[dtype]):
            factor = self._group.allreduce(flats, op, factor)
        else:
            for flat in flats:
                self._reduce_by_parts(flat, op)
        if factor != 1.0:
            for flat in flats:
                self._kernels.scale(flat, factor)

    def _reduce_by_parts(self, flat: torch.Tensor, op: ReduceOp) -> None:
        """Reduce a tensor of a type that the backend does not know: every rank reduces one part for all."""
        size, me = self._mpi_calls.size, self._mpi_calls.rank
        edges = [flat.numel() * rank // size for rank in range(size + 1)]
        counts = [edges[rank + 1] - edges[rank] for rank in range(size)]
        total = torch.empty_like(flat[edges[me] : edges[me + 1]])
        self._alltoall_and_reduce(total, flat, counts, op, 1.0)
        self._gather(flat, total, counts)

    def _alltoall_and_reduce(
        self, out: torch.Tensor, own: torch.Tensor, counts: Sequence[int], op: ReduceOp, factor: float
    ) -> None:
        """Reduce this rank's part of everybody's tensor into ``out``; ``counts`` are elements per rank."""
        size, mine = self._mpi_calls.size, counts[self._mpi_calls.rank]
        parts = torch.empty(size * mine, dtype=own.dtype, device=own.device)
        self._group.alltoall(parts, own, [mine] * size, counts)
        if mine:
            self._kernels.reduce(out, list(parts.view(size, mine)), op, factor)

    def _gather(self, out: torch.Tensor, own: torch.Tensor, counts: Sequence[int]) -> None:
        """Bring everybody's 1-D tensor into ``out``; ``counts`` are elements per rank."""
        if sum(counts) == 0:
            return
        if len(set(counts)) == 1:
            self._group.allgather(out, own)
            return
        parts = list(torch.split(out, list(counts)))
        parts[self._mpi_calls.rank].copy_(own)
        self._group.broadcast([(part, rank) for rank, part in enumerate(parts)])

    def close(self, *, together: bool) -> None:
        """Let go of the group."""
        group, self._opened = self._opened, None
        if group is not None:
            group.close(together=together)

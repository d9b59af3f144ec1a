"""Gradients that stay in this rank's own memory, because what travels is something smaller.

`LocalGradients` does what `GradientBuckets` does for a script; a *reducer* decides what travels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.operations import ReduceOp
from ringleader.torch.compression import Compressor, PowerSGD, TopK
from ringleader.torch.direct import gather, reduce_all, reduction, sum_over_ranks
from ringleader.torch.kernels import TorchKernels
from ringleader.torch.placement import Manner, Named


class Reducer(Protocol):
    """Reduces gradients over the ranks."""

    def reduce(self, gradients: Sequence[torch.Tensor]) -> None:
        """Replace the contents of the gradients by the reduction over the ranks. Collective."""
        ...


class LocalGradients:
    """The gradients of some parameters, each where autograd put it."""

    def __init__(self, parameters: Named, reducer: Reducer) -> None:
        """Take the parameters, the same ones in the same order on all ranks."""
        self.noticed: dict[int, int] = {}
        """Always empty: sparse gradients become dense here."""
        self.sparse: dict[int, int] = {}
        """Always empty."""
        self._parameters = [tensor for _name, tensor in parameters]
        self._reducer = reducer

    def arrived(self, parameter: torch.Tensor) -> None:
        """Wait until all gradients are there."""

    def ask(self) -> None:
        """Nothing is ever asked."""

    def exchange(self) -> bool:
        """Reduce all gradients over the ranks. A parameter without a gradient counts as zero here."""
        idle = []
        gradients = []
        for parameter in self._parameters:
            grad = parameter.grad
            if grad is None:
                grad = torch.zeros_like(parameter)
                if not parameter.requires_grad:
                    idle.append(parameter)
            elif grad.is_sparse:
                grad = grad.to_dense()
            if parameter.grad is not grad:
                parameter.grad = grad
            gradients.append(grad.detach())
        self._reducer.reduce(gradients)
        for parameter in idle:
            if parameter.grad is not None and not parameter.grad.any():
                parameter.grad = None
        return False

    def resume(self) -> None:
        """Nothing is ever declined."""

    def adopt(self, sparse: dict[int, int]) -> dict[int, torch.Tensor]:
        """Nothing is ever sparse."""
        return {}

    def recut(self, cap_bytes: int | None) -> int:
        """Return the number of buckets: there are none."""
        return 0

    def leave(self) -> None:
        """Hold no memory of the engine."""


class OneByOne:
    """Every gradient as the script's compressor makes it."""

    def __init__(self, engine: Engine, compressor: Any, manner: Manner) -> None:
        """Take a class with ``compress`` and ``decompress``, as `Compressor` describes it."""
        self._engine = engine
        self._compressor = compressor
        self._manner = manner

    def reduce(self, gradients: Sequence[torch.Tensor]) -> None:
        """Compress, reduce what that gives, decompress."""
        manner = self._manner
        small = [self._compressor.compress(gradient) for gradient in gradients]
        works = [
            reduction(
                tensor.contiguous().clone() if tensor is gradient else tensor.contiguous(),
                f"{manner.serial}.gradient.{at}",
                op=manner.op,
                prescale=manner.prescale,
                postscale=manner.postscale,
            )
            for at, (gradient, (tensor, _context)) in enumerate(zip(gradients, small, strict=True))
        ]
        reduce_all(self._engine, works)
        for gradient, work, (tensor, context) in zip(gradients, works, small, strict=True):
            gradient.copy_(self._compressor.decompress(work.out.view(tensor.shape), context))


class TopKReducer:
    """The largest elements of all gradients together; the others are added to the next step's gradients.

    "Error feedback": Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018. What was sent
    in all steps and what is still kept add up to the sum of the gradients.
    """

    def __init__(self, engine: Engine, compression: TopK, manner: Manner) -> None:
        """Take the part that is sent."""
        self._engine = engine
        self._ratio = compression.ratio
        self._serial = manner.serial
        self._factor = _mean_or_sum(engine, manner)
        self.kept: dict[torch.dtype, torch.Tensor] = {}
        """For each element type, what was not sent yet: the gradients of that type one behind the other."""

    def reduce(self, gradients: Sequence[torch.Tensor]) -> None:
        """Send the largest elements of what is kept and what is new."""
        for dtype, those in _by_type(gradients).items():
            flat = torch.cat([gradient.reshape(-1) for gradient in those])
            kept = self.kept.get(dtype)
            total = flat if kept is None else kept.add_(flat)
            self.kept[dtype] = total
            count = max(1, int(total.numel() * self._ratio)) if total.numel() else 0
            indices = torch.topk(total.abs(), count, sorted=False).indices
            values = total[indices]
            total[indices] = 0
            self._spread(those, self._sum(total.numel(), indices, values, dtype))

    def _sum(
        self, count: int, indices: torch.Tensor, values: torch.Tensor, dtype: torch.dtype
    ) -> torch.Tensor:
        name = f"{self._serial}.{dtype}".replace("torch.", "topk.")
        short = torch.int32 if count < 1 << 31 else torch.int64
        everyones = gather(self._engine, indices.to(short), f"{name}.indices").long()
        # In the order of ranks, one after the other: every rank adds up the same numbers in the same order.
        result = torch.zeros(count, dtype=dtype)
        step = indices.numel()
        parts = gather(self._engine, values, f"{name}.values")
        for start in range(0, parts.numel(), max(step, 1)):
            result[everyones[start : start + step]] += parts[start : start + step]
        TorchKernels().scale(result, self._factor)
        return result

    def _spread(self, gradients: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, part in zip(gradients, torch.split(flat, sizes), strict=True):
            gradient.copy_(part.view(gradient.shape))


class PowerSgdReducer:
    """Every matrix as a product of two thin ones; what that misses is added to the next step's gradient.

    One power iteration per step, begun with the last step's result: P = M·Q, summed over the ranks and made
    orthonormal; Q = Mᵀ·P, summed; the result is P·Qᵀ. A tensor of more dimensions is a matrix of its first
    one against the others. Tensors for which this would send no less (vectors) go as they are.
    """

    def __init__(self, engine: Engine, compression: PowerSGD, manner: Manner) -> None:
        """Take the number of columns."""
        self._engine = engine
        self._rank = compression.rank
        self._serial = manner.serial
        self._factor = _mean_or_sum(engine, manner)
        self._thin: dict[int, torch.Tensor] = {}
        self.kept: dict[int, torch.Tensor] = {}
        """For each gradient, by its index, what was not sent yet, as a matrix."""

    def reduce(self, gradients: Sequence[torch.Tensor]) -> None:
        """Send thin matrices for matrices, and everything else as it is."""
        matrices: dict[int, torch.Tensor] = {}
        for at, gradient in enumerate(gradients):
            if self._pays(gradient):
                matrices[at] = gradient.reshape(gradient.shape[0], -1).clone()
                if at in self.kept:
                    matrices[at] += self.kept[at]
        left = {at: matrix @ self._begin(at, matrix) for at, matrix in matrices.items()}
        self._sum_all(left, "p")
        for at, columns in left.items():
            left[at] = torch.linalg.qr(columns).Q
        right = {at: matrices[at].t() @ columns for at, columns in left.items()}
        for at, matrix in matrices.items():
            self.kept[at] = matrix.addmm_(left[at], right[at].t(), alpha=-1)
        whole = {at: one.reshape(-1).clone() for at, one in enumerate(gradients) if at not in matrices}
        both = {**right, **whole}
        self._sum_all(both, "q")
        for at, gradient in enumerate(gradients):
            if at in matrices:
                self._thin[at] = both[at]
                gradient.copy_((left[at] @ both[at].t()).view(gradient.shape))
            else:
                gradient.copy_(both[at].view(gradient.shape))

    def _pays(self, gradient: torch.Tensor) -> bool:
        if gradient.dim() < 2 or not gradient.dtype.is_floating_point or gradient.numel() == 0:
            return False
        rows, columns = gradient.shape[0], gradient.numel() // gradient.shape[0]
        return self._rank * (rows + columns) < rows * columns

    def _begin(self, at: int, matrix: torch.Tensor) -> torch.Tensor:
        """Return the last step's Q, at first random numbers that are the same on every rank."""
        thin = self._thin.get(at)
        if thin is None:
            generator = torch.Generator().manual_seed(at)
            thin = torch.randn(matrix.shape[1], self._rank, generator=generator, dtype=matrix.dtype)
        # Only the space that its columns span counts; their length is of no interest.
        basis: torch.Tensor = torch.linalg.qr(thin).Q
        return basis

    def _sum_all(self, tensors: dict[int, torch.Tensor], what: str) -> None:
        """Sum tensors over the ranks, those of one type at once, and replace them by the result."""
        for dtype in sorted({tensor.dtype for tensor in tensors.values()}, key=str):
            those = {at: tensor for at, tensor in tensors.items() if tensor.dtype == dtype}
            flat = torch.cat([tensor.reshape(-1) for tensor in those.values()])
            name = f"{self._serial}.{dtype}.{what}".replace("torch.", "powersgd.")
            sum_over_ranks(self._engine, flat, name, self._factor)
            parts = torch.split(flat, [tensor.numel() for tensor in those.values()])
            for (at, tensor), part in zip(those.items(), parts, strict=True):
                tensors[at] = part.view(tensor.shape)


def reducer_of(engine: Engine, compression: Compressor | type[Compressor], manner: Manner) -> Reducer:
    """Return what exchanges gradients under a compression that is not only a smaller element type."""
    if isinstance(compression, TopK):
        return TopKReducer(engine, compression, manner)
    if isinstance(compression, PowerSGD):
        return PowerSgdReducer(engine, compression, manner)
    return OneByOne(engine, compression, manner)


def _mean_or_sum(engine: Engine, manner: Manner) -> float:
    if manner.op is ReduceOp.AVERAGE:
        return 1.0 / engine.ranks.size
    if manner.op is ReduceOp.SUM:
        return 1.0
    raise ValueError(f"this compression has a sum or an average of gradients, no {manner.op.name.lower()}")


def _by_type(gradients: Sequence[torch.Tensor]) -> dict[torch.dtype, list[torch.Tensor]]:
    kinds: dict[torch.dtype, list[torch.Tensor]] = {}
    for gradient in gradients:
        kinds.setdefault(gradient.dtype, []).append(gradient)
    return kinds

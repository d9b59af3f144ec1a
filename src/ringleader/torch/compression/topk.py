"""Top-k: the largest elements of all gradients together; the others are added to the next step's gradients.

"Error feedback": Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018. What was sent in
all steps and what is still kept add up to the sum of the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ringleader.collectives.engine import Engine
from ringleader.torch.compression.compressor import TopK
from ringleader.torch.engine_operations import alike, gather, mean_or_sum
from ringleader.torch.kernels import TorchKernels
from ringleader.torch.optimizer.bucket_memory import Manner

HALVES = (torch.float16, torch.bfloat16)


class TopKReducer:
    """See `ringleader.torch.optimizer.local_gradients.Reducer`."""

    def __init__(self, compression: TopK) -> None:
        """Take the part that is sent."""
        self._ratio = compression.ratio
        self._kept: list[tuple[list[torch.Tensor], torch.Tensor]] = []
        """Parameters of one type and device, and what was not sent yet of their gradients, one behind the
        other; in float32 for half types, in which small numbers would be lost."""

    def begin(self, engine: Engine, manner: Manner, parameters: Sequence[torch.Tensor]) -> None:
        """Reduce the gradients of these parameters from now on; accounts of others are closed."""
        self._factor = mean_or_sum(engine, manner)
        self._engine = engine
        self._name = f"{manner.serial}.topk"

    def kept(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return what was not sent yet of a parameter's gradient, None where it has no account."""
        return self._accounts().get(id(parameter))

    def _accounts(self) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for owners, flat in self._kept:
            parts = torch.split(flat, [owner.numel() for owner in owners])
            found.update((id(own), part.view(own.shape)) for own, part in zip(owners, parts, strict=True))
        return found

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Send the largest elements of what is kept and what is new."""
        spans = alike(gradients)
        owners = [[parameters[at] for at in those] for those in spans]
        if [list(map(id, one)) for one in owners] != [list(map(id, one)) for one, _flat in self._kept]:
            self._open(owners)
        for number, (those, (_owners, total)) in enumerate(zip(spans, self._kept, strict=True)):
            mine = [gradients[at] for at in those]
            total.add_(torch.cat([gradient.reshape(-1) for gradient in mine]))
            self._send(number, mine, total)

    def _open(self, owners: Sequence[list[torch.Tensor]]) -> None:
        """Lay the accounts out for other parameters; new ones begin with nothing."""
        before = self._accounts()
        self._kept = []
        for those in owners:
            dtype = torch.float32 if those[0].dtype in HALVES else those[0].dtype
            parts = [
                before[id(one)].reshape(-1)
                if id(one) in before
                else torch.zeros(one.numel(), dtype=dtype, device=one.device)
                for one in those
            ]
            self._kept.append((those, torch.cat(parts)))

    def _send(self, number: int, gradients: Sequence[torch.Tensor], total: torch.Tensor) -> None:
        count = max(1, int(total.numel() * self._ratio)) if total.numel() else 0
        indices = torch.topk(total.abs(), count, sorted=False).indices
        chosen = total[indices]
        values = chosen.to(gradients[0].dtype)
        total[indices] = chosen - values if values.dtype != total.dtype else 0  # the rest is sent later
        if not values.isfinite().all():
            # A scaled loss may bring such. They are the largest, so all ranks hear of some; none is kept.
            total.nan_to_num_(0.0, 0.0, 0.0)
        result = self._sum(number, total.numel(), indices, values)
        sizes = [gradient.numel() for gradient in gradients]
        for gradient, part in zip(gradients, torch.split(result, sizes), strict=True):
            gradient.copy_(part.view(gradient.shape))

    def _sum(self, number: int, count: int, indices: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        name = f"{self._name}.{number}"
        short = torch.int32 if count < 1 << 31 else torch.int64
        everyones = gather(self._engine, indices.to(short), f"{name}.indices").long()
        # In the order of ranks, one after the other: every rank adds up the same numbers in the same order.
        result = torch.zeros(count, dtype=values.dtype, device=values.device)
        step = indices.numel()
        parts = gather(self._engine, values, f"{name}.values")
        for start in range(0, parts.numel(), max(step, 1)):
            result[everyones[start : start + step]] += parts[start : start + step]
        TorchKernels().scale(result, self._factor)
        return result

"""Top-k: the largest elements of all gradients together travel; others are kept for later steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ringleader.engine.group_engine import Engine
from ringleader.torch.compression.reducer import ErrorFeedbackCompressor, Reducer, residual_dtype
from ringleader.torch.engine_operations import by_dtype_and_device, gather
from ringleader.torch.gradient_config import GradientConfig
from ringleader.torch.torch_kernels import TorchKernels


@dataclass(frozen=True)
class TopK(ErrorFeedbackCompressor):
    """Send the largest elements of all gradients together, and the rest in a later step."""

    ratio: float
    """Part of the elements that is sent, above 0 and at most 1."""

    def __post_init__(self) -> None:
        """Check the ratio."""
        if not 0 < self.ratio <= 1:
            raise ValueError("top-k needs a ratio above 0 and at most 1")

    def reducer(self) -> TopKReducer:
        """See `ErrorFeedbackCompressor`."""
        return TopKReducer(self.ratio)


class TopKReducer(Reducer):
    """Residuals of other parameters go with the next step."""

    def __init__(self, ratio: float) -> None:
        """Take the part that is sent."""
        self._ratio = ratio
        self._residuals: list[tuple[list[torch.Tensor], torch.Tensor]] = []
        """Parameters of one type and device, and what was not sent yet of their gradients, one behind the
        other; in float32 for half types, in which small numbers would be lost."""

    def begin(self, engine: Engine, config: GradientConfig, parameters: Sequence[torch.Tensor]) -> None:
        """See `Reducer`."""
        self._factor = config.factor_on_sum(engine.ranks.size)
        super().begin(engine, config, parameters)

    def residual(self, parameter: torch.Tensor) -> torch.Tensor | None:
        """Return what was not sent yet of a parameter's gradient, None where nothing is kept."""
        return self._by_parameter().get(id(parameter))

    def _by_parameter(self) -> dict[int, torch.Tensor]:
        found: dict[int, torch.Tensor] = {}
        for owners, flat in self._residuals:
            parts = torch.split(flat, [owner.numel() for owner in owners])
            found.update((id(own), part.view(own.shape)) for own, part in zip(owners, parts, strict=True))
        return found

    def reduce(self, parameters: Sequence[torch.Tensor], gradients: Sequence[torch.Tensor]) -> None:
        """Send the largest elements of what is kept and what is new."""
        kinds = by_dtype_and_device(gradients)
        owners = [[parameters[at] for at in those] for those in kinds]
        known = [(list(map(id, one)), flat.dtype) for one, flat in self._residuals]
        if [(list(map(id, one)), residual_dtype(one[0].dtype)) for one in owners] != known:
            self._rearrange(owners)
        for number, (those, (_owners, total)) in enumerate(zip(kinds, self._residuals, strict=True)):
            mine = [gradients[at] for at in those]
            total.add_(torch.cat([gradient.reshape(-1) for gradient in mine]))
            self._send(number, mine, total)

    def _rearrange(self, owners: Sequence[list[torch.Tensor]]) -> None:
        """Lay the residuals out for other parameters; those of new ones are zero."""
        before = self._by_parameter()
        self._residuals = []
        for those in owners:
            dtype = residual_dtype(those[0].dtype)
            parts = [
                before[id(one)].reshape(-1).to(dtype)
                if id(one) in before
                else torch.zeros(one.numel(), dtype=dtype, device=one.device)
                for one in those
            ]
            self._residuals.append((those, torch.cat(parts)))

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
        name = f"{self._config.serial}.topk.{number}"
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

"""Batch normalization over the batches of all ranks together.

Each rank's mean and sum of squared deviations travel; those of the joint batch follow from them by the
formula for combining variances (Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for
computing sample variances, 1979). Batches may differ in size, also be empty on some of the ranks.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from ringleader.adapters.process_sets import ProcessSet, global_process_set, group_of
from ringleader.adapters.reductions import Sum
from ringleader.torch.operations import allgather, allreduce

NAME = "sync_batch_norm"
"""Names of the exchanges begin so. Layers run one after the other, so they can share them."""


class SyncBatchNorm(_BatchNorm):
    """`torch.nn.BatchNorm1d`, `2d` and `3d` for inputs of shape (N, C, …), of which each rank has a part.

    In evaluation with running statistics nothing is exchanged. In all other cases every rank calls it, and
    the results and gradients are those of one BatchNorm over the joint batch. As with any layer, weight and
    bias get the gradients of this rank's part; ``DistributedOptimizer`` reduces them.
    """

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Take BatchNorm's settings, and the ranks that make up the batch."""
        super().__init__(num_features, eps, momentum, affine, track_running_stats)
        self.process_set = process_set

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")
        if input.size(1) != self.num_features:
            raise ValueError(f"expected {self.num_features} channels (got {input.size(1)})")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """Return the normalized input; ValueError on all ranks where the joint batch has one value only."""
        self._check_input_dim(input)
        tracking = self.training and self.track_running_stats
        if tracking and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
        whole = self.training or self.running_mean is None
        if not whole or group_of(self.process_set, "SyncBatchNorm").ranks.size == 1:
            return torch.nn.functional.batch_norm(
                input,
                self.running_mean if tracking or not self.training else None,
                self.running_var if tracking or not self.training else None,
                self.weight,
                self.bias,
                whole,
                self._factor(),
                self.eps,
            )
        result, mean, var, count = _Normalize.apply(  # type: ignore[no-untyped-call]
            input, self.weight, self.bias, self.eps, self.process_set
        )
        if tracking and self.running_mean is not None and self.running_var is not None:
            factor = self._factor()
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), factor)
            unbiased = var * (count / (count - 1))
            self.running_var.lerp_(unbiased.to(self.running_var.dtype), factor)
        return result  # type: ignore[no-any-return]

    def _factor(self) -> float:
        """Return the newest batch's weight in the running statistics; with no momentum all weigh the same."""
        if self.momentum is not None:
            return self.momentum
        batches = 0 if self.num_batches_tracked is None else int(self.num_batches_tracked)
        return 1.0 / batches if batches else 0.0


class _Normalize(torch.autograd.Function):
    """Normalize by statistics of the joint batch; also returns these: mean, variance, values per channel."""

    @staticmethod
    def forward(  # type: ignore[no-untyped-def]
        ctx: Any,
        values: torch.Tensor,
        weight: torch.Tensor | None,
        bias: torch.Tensor | None,
        eps: float,
        process_set: ProcessSet,
    ):
        mean, var, count = _joint_statistics(values, process_set)
        inner = _inner_dtype(values)
        scale = torch.rsqrt(var + eps)
        factor = scale if weight is None else scale * weight.double()
        # The mean goes first: where it is large, anything else would lose the digits that count.
        result = (values.to(inner) - _along(mean, values, inner)).mul_(_along(factor, values, inner))
        if bias is not None:
            result += _along(bias, values, inner)
        ctx.save_for_backward(values, weight, mean, scale)
        ctx.facts = (count, process_set)
        ctx.mark_non_differentiable(mean, var)
        return result.to(values.dtype), mean, var, count

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        values, weight, mean, scale = ctx.saved_tensors
        count, process_set = ctx.facts
        inner = _inner_dtype(values)
        grad = grads[0].to(inner)
        normal = (values.to(inner) - _along(mean, values, inner)) * _along(scale, values, inner)
        sums = torch.stack([_sum(grad, values), _sum(grad * normal, values)])
        grad_bias, grad_weight = (None, None) if weight is None else sums.to(weight.dtype)
        grad_values = None
        if ctx.needs_input_grad[0]:
            both = allreduce(sums, name=f"{NAME}.gradient", op=Sum, process_set=process_set) / count
            factor = scale if weight is None else scale * weight.double()
            part = grad - _along(both[0], values, inner) - normal * _along(both[1], values, inner)
            grad_values = (part * _along(factor, values, inner)).to(values.dtype)
        return grad_values, grad_weight, grad_bias, None, None


def _joint_statistics(
    values: torch.Tensor, process_set: ProcessSet
) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return mean and (biased) variance per channel over all ranks, in float64, and values per channel.

    They are made from the same numbers in the same order on every rank, so they are the same on each.
    """
    channels = values.size(1)
    mine = values.numel() // channels if channels else 0
    data = values.detach().to(_inner_dtype(values))
    message = torch.zeros(1, 2 * channels + 1, dtype=torch.float64, device=values.device)
    if mine:
        dims = [0, *range(2, values.dim())]
        var, mean = torch.var_mean(data, dims, correction=0)
        message[0, :channels] = mean
        message[0, channels : 2 * channels] = var.double() * mine
        message[0, -1] = mine
    everybody = allgather(message, name=f"{NAME}.statistics", process_set=process_set)
    counts, means = everybody[:, -1:], everybody[:, :channels]
    count = int(counts.sum().item())
    if count <= 1:
        raise ValueError(f"Expected more than 1 value per channel over all ranks when training, got {count}")
    mean = (means * counts).sum(0) / count
    spread = everybody[:, channels : 2 * channels].sum(0) + ((means - mean) ** 2 * counts).sum(0)
    return mean, spread / count, count


def _inner_dtype(values: torch.Tensor) -> torch.dtype:
    """Return the type to compute in: values of 16 bits are too coarse for it."""
    return torch.float32 if values.dtype in (torch.float16, torch.bfloat16) else values.dtype


def _along(channel: torch.Tensor, values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return one value per channel in a shape that goes with ``values``."""
    return channel.to(dtype).view(1, -1, *([1] * (values.dim() - 2)))


def _sum(data: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return the sum per channel, in float64."""
    return data.sum([0, *range(2, values.dim())], dtype=torch.float64)

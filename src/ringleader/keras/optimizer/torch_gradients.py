"""Gradients of Keras on PyTorch: reduced in place, in the tensors that backward filled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import ringleader.torch as hvd
from ringleader.common.step_metrics import session_metrics
from ringleader.keras.optimizer.exchange_options import ExchangeOptions


def reducer(options: ExchangeOptions) -> Callable[[list[Any]], list[Any]]:
    """Return the function that reduces gradients as the options say."""
    op, prescale, postscale = options.reduction

    @torch.compiler.disable
    @torch.no_grad()
    def reduce(gradients: list[torch.Tensor]) -> list[torch.Tensor]:
        packed = [options.compression.compress(one) for one in gradients]
        tensors = [tensor for tensor, _context in packed]
        metrics = session_metrics()
        metrics.exchange()
        hvd.grouped_allreduce_(
            tensors,
            name=options.name,
            op=op,
            prescale_factor=prescale,
            postscale_factor=postscale,
            process_set=options.process_set,
        )
        metrics.exchanged()
        metrics.step()
        return [options.compression.decompress(tensor, context) for tensor, context in packed]

    return reduce


def agreed_minimum(number: Any, options: ExchangeOptions) -> Any:
    """Return the least of a scalar over the ranks."""
    number = torch.as_tensor(number).cpu()
    return hvd.allreduce(number, name=f"{options.name}.finite", op=hvd.Min, process_set=options.process_set)


def scaled(gradient: Any, size: int) -> Any:
    """Return a gradient divided by the number of ranks."""
    return gradient / size

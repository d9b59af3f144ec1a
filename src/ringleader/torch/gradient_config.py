"""How an optimizer's gradients are exchanged, as all ranks agree before the first step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ringleader.adapters.object_exchange import gather_objects
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import ITEMSIZE
from ringleader.torch.bucket_plan import ParameterShape, first_difference
from ringleader.torch.torch_kernels import dtype_name

Named = Sequence[tuple[str, torch.Tensor]]


def default_names(param_groups: Iterable[dict[str, Any]]) -> list[tuple[str, torch.Tensor]]:
    """Return the parameters with the names that they have if the script gives none."""
    return [
        (f"allreduce.noname.{group}.{at}", parameter)
        for group, content in enumerate(param_groups)
        for at, parameter in enumerate(content["params"])
    ]


def shapes_of(parameters: Named) -> list[ParameterShape]:
    """Return what a plan needs to know of named parameters."""
    return [
        ParameterShape(
            name=name,
            dtype=dtype,
            itemsize=ITEMSIZE[dtype],
            dims=tuple(tensor.shape),
            device=str(tensor.device),
        )
        for name, dtype, tensor in ((name, dtype_name(tensor), tensor) for name, tensor in parameters)
    ]


@dataclass(frozen=True, kw_only=True)
class GradientConfig:
    """How gradients are exchanged. Equal on all ranks."""

    op: ReduceOp
    """The reduction; ``AVERAGE`` divides by the number of ranks."""
    prescale: float = 1.0
    """Factor on each rank's gradients before the sum."""
    postscale: float = 1.0
    """Factor on the result."""
    wire_dtype: torch.dtype | None = None
    """Type in which floating-point gradients are exchanged, None for their own."""
    cap_bytes: int | None = None
    """Most bytes in a bucket, None for no limit."""
    groups: tuple[tuple[int, ...], ...] = ()
    """Indices of parameters that make their own bucket."""
    overlap: bool = False
    """Whether a bucket travels as soon as all its gradients are there, while backward continues."""
    sparse_as_dense: bool = False
    """Whether sparse gradients go through the buckets, as dense ones."""
    sharded: bool = False
    """Whether each rank owns a part of the parameters and makes the step for that part alone."""
    serial: int = 0
    """Number of the optimizer, the same on all ranks: two of them may be used in any order."""

    def factor_on_sum(self, size: int) -> float:
        """Return the factor on a sum over this many ranks; `ValueError` for any other operation."""
        if self.op is ReduceOp.AVERAGE:
            return 1.0 / size
        if self.op is ReduceOp.SUM:
            return 1.0
        raise ValueError(f"this compression supports a sum or an average, not {self.op.name.lower()}")


def agree_on_config(engine: Engine, named: Named, config: GradientConfig, compression: str) -> GradientConfig:
    """Return the configuration with everybody's serial number; `ValueError` on all ranks if they differ.

    ``compression`` describes the compression. Collective.
    """
    strides = [tensor.stride() for _name, tensor in named]
    settings = (compression, repr(config).rpartition("serial")[0])
    answers = gather_objects(engine, (config.serial, shapes_of(named), strides, settings), "optimizer")
    serial, shapes, first_strides, first_settings = answers[0]
    for rank, (_serial, theirs, their_strides, their_settings) in enumerate(answers):
        difference = first_difference(shapes, theirs)
        if not difference and their_strides != first_strides:
            difference = "their memory formats"
        if difference:
            raise ValueError(
                f"the optimizer's parameters differ between rank 0 and rank {rank}: {difference}"
            )
        if their_settings != first_settings:
            raise ValueError(
                f"the optimizer's settings differ between rank 0 and rank {rank}: "
                f"{first_settings} and {their_settings}"
            )
    return replace(config, serial=serial)

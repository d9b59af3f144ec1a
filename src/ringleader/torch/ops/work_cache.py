"""A cache of works: the description of a reduction that comes again in every step is made once.

Describing an operation costs more than a few KiB cost to reduce. So the description of a reduction that is
done is kept, without its tensor, until a like one is submitted under the same name.
"""

from __future__ import annotations

import torch

from ringleader.collectives.operations import ReduceOp, Work
from ringleader.torch.kernels import DTYPES

CAPACITY = 4096
"""Descriptions that are kept."""
_STRIDED = torch.strided


class WorkCache:
    """Works that are done, by the name that the script gave them."""

    def __init__(self) -> None:
        """Begin with none."""
        self._works: dict[str, Work] = {}

    def take(
        self, name: str | None, tensor: torch.Tensor, op: ReduceOp | None, prescale: float, postscale: float
    ) -> Work | None:
        """Return a work that reduces ``tensor`` in place if one like it was done under this name."""
        work = self._works.pop(name, None)  # type: ignore[arg-type]
        if work is None:
            return None
        signature = work.signature
        if (
            tensor.layout is not _STRIDED
            or not tensor.is_cpu
            or tensor.requires_grad
            or op is not signature.op
            or DTYPES.get(tensor.dtype) != signature.dtype
            or tensor.shape != signature.shape
            or prescale != signature.prescale
            or postscale != signature.postscale
            or not tensor.is_contiguous()
            or tensor.is_neg()
        ):
            return None
        work.array = work.out = tensor
        return work

    def put(self, work: Work) -> None:
        """Keep the description of a reduction in place that is done and that nobody asks about any more."""
        name = work.local_name
        # Whether Adasum can be had depends on more than the tensor, and is checked each time.
        if name is None or work.signature.op is ReduceOp.ADASUM:
            return
        if len(self._works) >= CAPACITY:
            self._works.clear()
        work.array = work.out = None
        self._works[name] = work

    def clear(self) -> None:
        """Forget them all."""
        self._works.clear()


WORK_CACHE = WorkCache()
"""That of this process."""

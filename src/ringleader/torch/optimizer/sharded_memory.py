"""Parameters that live in memory of the engine, laid out as their gradients are.

Every rank has its own copy, in memory into which the owners of its parts write: what a script does to its
parameters is done to this rank's alone, as ever.
"""

from __future__ import annotations

import weakref
from itertools import pairwise

import torch

from ringleader.collectives.bucket_plan import BucketPlan
from ringleader.collectives.engine import Engine
from ringleader.collectives.transports.regions import Region
from ringleader.torch.optimizer.bucket_memory import shaped_like
from ringleader.torch.optimizer.gradient_config import Named


class ParameterMemory:
    """The values of some parameters, a region for each bucket of their gradients."""

    def __init__(self, engine: Engine, parameters: Named, plan: BucketPlan) -> None:
        """Allocate the memory and move the parameters in. Collective."""
        self._named = parameters
        check_no_overlap(parameters)
        self.regions: list[Region] = []
        """For each bucket of the plan its memory."""
        self._views: list[torch.Tensor] = [tensor.detach() for _name, tensor in parameters]
        for bucket in plan.buckets:
            region = engine.register(bucket.count, bucket.dtype, bucket.device)
            region.mine.zero_()
            self.regions.append(region)
            for span in bucket.spans:
                flat = _own_storage(region.mine[span.offset : span.offset + span.count])
                parameter = parameters[span.parameter][1]
                self._views[span.parameter] = shaped_like(parameter, flat)
        weakref.finalize(self, _release, engine, self.regions).atexit = False
        self._engine = engine
        self.settle()

    def settle(self) -> None:
        """Move parameters in that lie elsewhere: a script may have put other data in their place."""
        for at, (name, parameter) in enumerate(self._named):
            view = self._views[at]
            if parameter.data_ptr() == view.data_ptr() and parameter.shape == view.shape:
                continue
            if (parameter.shape, parameter.dtype, parameter.device) != (view.shape, view.dtype, view.device):
                raise ValueError(
                    f"parameter {name} was {_described(view)} when its optimizer was made and is "
                    f"{_described(parameter)} now: make the optimizer anew"
                )
            with torch.no_grad():
                view.copy_(parameter)
            parameter.data = view

    def changed(self) -> None:
        """Tell autograd that the values have changed."""
        for _name, parameter in self._named:
            torch.autograd.graph.increment_version(parameter)

    def detach(self) -> None:
        """Move the parameters into memory of this rank's own, before the engine's memory goes."""
        for (_name, parameter), view in zip(self._named, self._views, strict=True):
            if parameter.data_ptr() == view.data_ptr():
                parameter.data = view.clone()
        self._views = []
        self._named = []
        _release(self._engine, self.regions)


def check_no_overlap(parameters: Named) -> None:
    """See that no two parameters share memory: moved, they would not share it any more."""
    places = sorted(
        (tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size(), name)
        for name, tensor in parameters
        if tensor.numel() and tensor.data_ptr()
    )
    for (_start, stop, name), (start, _stop, other) in pairwise(places):
        if start < stop:
            raise ValueError(
                f"shard=True: the parameters {name} and {other} share memory. Use one Parameter in both "
                "places to tie weights."
            )


def _described(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} {list(tensor.shape)} on {tensor.device}"


def _own_storage(flat: torch.Tensor) -> torch.Tensor:
    """Return the same memory as a tensor whose storage ends with it, so that `torch.save` saves no more."""
    if not flat.is_cpu or not flat.numel():
        return flat
    return torch.from_numpy(flat.view(torch.uint8).numpy()).view(flat.dtype)


def _release(engine: Engine, regions: list[Region]) -> None:
    while regions:
        engine.release(regions.pop())

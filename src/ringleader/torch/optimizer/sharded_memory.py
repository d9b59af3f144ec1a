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
from ringleader.collectives.transports.transport import Region
from ringleader.torch.optimizer.gradient_config import Named
from ringleader.torch.optimizer.memory_place import MemoryPlace


class ParameterMemory:
    """The values of some parameters, a region for each bucket of their gradients."""

    def __init__(self, engine: Engine, parameters: Named, plan: BucketPlan) -> None:
        """Allocate the memory and move the parameters in. Collective."""
        self._named = parameters
        check_no_overlap(parameters)
        self.regions: list[Region] = []
        """For each bucket of the plan its memory."""
        self._places: list[MemoryPlace] = [None] * len(parameters)  # type: ignore[list-item]
        for bucket in plan.buckets:
            region = engine.register(bucket.count, bucket.dtype, bucket.device)
            region.mine.zero_()
            self.regions.append(region)
            for span in bucket.spans:
                flat = region.mine[span.offset : span.offset + span.count]
                self._places[span.parameter] = MemoryPlace(parameters[span.parameter][1], flat)
        weakref.finalize(self, _release, engine, self.regions).atexit = False
        self._engine = engine
        self.settle()

    def settle(self) -> bool:
        """Move parameters in that lie elsewhere: a script may have put other data in their place.

        Returns whether all are here; those of another type or layout stay where they are.
        """
        all_here = True
        for (_name, parameter), place in zip(self._named, self._places, strict=True):
            if place.holds(parameter):
                continue
            if not (place.fits(parameter) and place.is_laid_out_as(parameter)):
                all_here = False
                continue
            with torch.no_grad():
                place.view.copy_(parameter)
            parameter.data = place.alias()
        return all_here

    def changed(self) -> None:
        """Tell autograd that the values have changed."""
        for _name, parameter in self._named:
            torch.autograd.graph.increment_version(parameter)

    def detach(self) -> None:
        """Move the parameters into memory of this rank's own, before the engine's memory goes."""
        for (_name, parameter), place in zip(self._named, self._places, strict=True):
            if place.holds(parameter):
                parameter.data = place.view.clone()
        self._places = []
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


def _release(engine: Engine, regions: list[Region]) -> None:
    while regions:
        engine.release(regions.pop())

"""Memory of gradients: buckets of the engine's memory, and a place in one of them for every parameter.

The memory is allocated once; other plans cut it anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ringleader.adapters.submit_operation import work_and_request
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp, Signature, Work
from ringleader.engine.transports.transport import Region
from ringleader.torch.bucket_plan import Bucket, plan_buckets
from ringleader.torch.gradient_config import GradientConfig, Named, shapes_of
from ringleader.torch.optimizer.gradient_exchange import GradientExchange
from ringleader.torch.optimizer.gradient_place import MemoryPlace
from ringleader.torch.torch_kernels import DTYPES


@dataclass(frozen=True, kw_only=True, eq=False)
class GradientBucket:
    """One bucket in memory."""

    region: Region
    """What is exchanged."""
    values: torch.Tensor
    """Gradients of the bucket, 1-D: the region's memory, or plain memory where the wire has another type."""
    apart: bool
    """Whether somebody has to copy the gradients into the region's memory and back: no transport does."""
    on_device: bool
    """Whether the gradients are not in host memory."""
    work: Work
    """The exchange, built once."""
    requesting: Work
    """The same with a question mark: it tells the other ranks that this one has something to agree on."""


class BucketMemory(GradientExchange):
    """Places of parameters' gradients in buckets. Collective: all ranks bring the same parameters."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig) -> None:
        """Plan the buckets and allocate their memory; the gradients are not moved yet."""
        super().__init__(engine, parameters, config)
        self._names = [name for name, _tensor in parameters]
        self.buckets: list[GradientBucket] = []
        """The buckets, in the order in which backward fills them."""
        self._hooks: list[Any] = []
        """Hooks that go when the memory is given back."""
        self._regions: dict[str, tuple[Region, torch.Tensor]] = {}
        """For each piece of memory the engine's region, and the gradients in it."""
        self.places: list[MemoryPlace | None] = [None] * len(self._parameters)
        """For each parameter the place of its gradient, None where it has none."""
        self.bucket_of: dict[int, int] = {}
        """Parameter (by index) → bucket."""
        self._shapes = shapes_of(parameters)
        # None of these knows a parameter, which may not be kept alive by what waits for its end.
        self._resources = engine, self.buckets, self._hooks, self._regions
        weakref.finalize(self, release, *self._resources).atexit = False
        self._apply_plan(None)

    @property
    def order(self) -> list[int]:
        """Return the parameters that have a place, in the order of the places."""
        return [span.parameter for bucket in self.plan.buckets for span in bucket.spans]

    def in_bucket(self, at: int) -> bool:
        """Return whether a parameter's gradient is in its place."""
        place, grad = self.places[at], self._parameters[at].grad
        return grad is not None and place is not None and place.holds(grad)

    def _move_to_plan(self, order: Sequence[int]) -> None:
        """Move the gradients to the places of a new plan."""
        kept = {at: place.view.clone() for at in order if (place := self.places[at]) is not None}
        inside = {at for at in kept if self.in_bucket(at)}
        for at in inside:
            self._parameters[at].grad = None
        for place in self.places:
            if place is not None:
                place.vacate()
        self._apply_plan(order)
        for at, values in kept.items():
            place = self.places[at]
            assert place is not None
            place.view.copy_(values)
            if at in inside:
                self._parameters[at].grad = place.alias()

    def detach(self) -> None:
        """Move the gradients into memory of this rank's own, before the engine's memory goes."""
        for at, parameter in enumerate(self._parameters):
            if self.in_bucket(at) and parameter.grad is not None:
                parameter.grad = parameter.grad.clone()
        self.places = [None] * len(self._parameters)
        release(*self._resources)

    def _apply_plan(self, order: Sequence[int] | None) -> None:
        """Give every parameter in ``order`` its place; the memory is allocated by the first plan."""
        config = self._config
        self.plan = plan = plan_buckets(
            self._shapes, cap_bytes=config.cap_bytes, order=order, groups=config.groups
        )
        """Where everything lies."""
        kinds = {bucket.memory: bucket for bucket in plan.buckets}
        for memory, count in plan.room:
            if memory not in self._regions:
                kind = kinds[memory]
                self._regions[memory] = self._allocate(kind.dtype, kind.device, count)
        _forget(self._engine, self.buckets)
        self.bucket_of = {}
        self.places = [None] * len(self._parameters)
        for index, planned in enumerate(plan.buckets):
            bucket = self._bucket(index, planned)
            self.buckets.append(bucket)
            self._engine.register_gradients(bucket.work)
            for span in planned.spans:
                flat = bucket.values[span.offset : span.offset + span.count]
                self.bucket_of[span.parameter] = index
                self.places[span.parameter] = MemoryPlace(self._parameters[span.parameter], flat)

    @property
    def note(self) -> str:
        """Return what tells this plan from another."""
        return f"plan {self.plan.digest:016x}"

    def _allocate(self, dtype: str, device: str, count: int) -> tuple[Region, torch.Tensor]:
        own = next(one for one, name in DTYPES.items() if name == dtype)
        wire = self._config.wire_dtype
        smaller = wire is not None and own.is_floating_point and own != wire
        wire_name = DTYPES[wire] if smaller and wire else dtype
        region = self._engine.register(count, wire_name, device)
        region.mine.zero_()
        return region, (torch.zeros(count, dtype=own, device=device) if smaller else region.mine)

    def _bucket(self, index: int, planned: Bucket) -> GradientBucket:
        config = self._config
        whole, memory = self._regions[planned.memory]
        region = self._engine.cut(whole, planned.start, planned.count)
        values = region.mine
        if memory is not whole.mine:
            values = memory[planned.start : planned.start + planned.count]
            if planned.device == "cpu" and self._engine.converts and not config.sharded:
                region = replace(region, values=values)
        average, devices, place = config.op is ReduceOp.AVERAGE, self._engine.queue.devices, planned.device
        signature = Signature(
            kind="gradients",
            dtype=region.dtype,
            shape=(planned.count,),
            op=ReduceOp.SUM if average else config.op,
            prescale=config.prescale,
            postscale=config.postscale / self._engine.ranks.size if average else config.postscale,
            note=self.note,
            device=devices.kind_of(place) if devices is not None else torch.device(place).type,
        )
        work, requesting = work_and_request(signature, f"{config.serial}.{index}", region, region)
        apart = values is not region.mine and region.values is None
        return GradientBucket(
            region=region,
            values=values,
            apart=apart,
            on_device=signature.device != "cpu",
            work=work,
            requesting=requesting,
        )


def _forget(engine: Engine, buckets: list[GradientBucket]) -> None:
    """Offer the buckets no more to a rank that joins."""
    for bucket in buckets:
        engine.forget_gradients(bucket.work)
    buckets.clear()


def release(
    engine: Engine,
    buckets: list[GradientBucket],
    hooks: list[Any],
    regions: dict[str, tuple[Region, torch.Tensor]],
) -> None:
    """Give everything back. May be called by the garbage collector, on each rank at another time."""
    while hooks:
        hooks.pop().remove()
    _forget(engine, buckets)
    while regions:
        _memory, (region, _values) = regions.popitem()
        engine.release(region)

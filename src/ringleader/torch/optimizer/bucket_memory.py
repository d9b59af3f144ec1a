"""Where gradients lie: buckets of the engine's memory, and a view into one of them for every parameter.

The memory is allocated once; other plans cut it anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ringleader.collectives.bucket_plan import Bucket, BucketPlan, ParameterShape, plan_buckets
from ringleader.collectives.engine import Engine
from ringleader.collectives.kernels import ITEMSIZE
from ringleader.collectives.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.collectives.transports.regions import Region
from ringleader.torch.kernels import DTYPES, dtype_name

Named = Sequence[tuple[str, torch.Tensor]]


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
class Manner:
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
    """Indices of parameters that make a bucket of their own."""
    overlap: bool = False
    """Whether a bucket travels as soon as all its gradients are there, while backward goes on."""
    sparse_as_dense: bool = False
    """Whether sparse gradients go through the buckets, as dense ones."""
    serial: int = 0
    """Number of the optimizer, the same on all ranks: two of them may be used in any order."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Home:
    """One bucket in memory."""

    region: Region
    """What is exchanged."""
    values: torch.Tensor
    """Gradients of the bucket, 1-D: the region's memory, or plain memory where the wire has another type."""
    work: Work
    """The exchange, built once."""
    asking: Work
    """The same with a question mark: it tells the other ranks that this one has something to agree on."""


class Holdings:
    """What the gradients of one optimizer hold of the engine.

    It knows no parameter: it is given back when the optimizer is gone, and may not keep that alive.
    """

    def __init__(self, engine: Engine) -> None:
        """Begin with nothing."""
        self._engine = engine
        self.arenas: dict[str, tuple[Region, torch.Tensor]] = {}
        """For each piece of memory the engine's region, and the gradients in it."""
        self.homes: list[Home] = []
        """The buckets, in the order in which backward fills them."""
        self.hooks: list[Any] = []
        """Hooks that tell where gradients go."""

    def forget_homes(self) -> None:
        """Offer the buckets no more to a rank that joins."""
        for home in self.homes:
            self._engine.forget_gradients(home.work)
        self.homes.clear()

    def release(self) -> None:
        """Give everything back. May be called by the garbage collector, on each rank at another time."""
        while self.hooks:
            self.hooks.pop().remove()
        self.forget_homes()
        while self.arenas:
            _memory, (region, _values) = self.arenas.popitem()
            self._engine.release(region)


class Placement:
    """The places of some parameters' gradients. Collective: all ranks bring the same parameters."""

    def __init__(self, engine: Engine, parameters: Named, manner: Manner) -> None:
        """Plan the buckets and allocate their memory; the gradients are not moved yet."""
        self.parameters = [tensor for _name, tensor in parameters]
        self._holdings = Holdings(engine)
        self.homes = self._holdings.homes
        """The buckets, in the order in which backward fills them."""
        self.hooks = self._holdings.hooks
        """Hooks that go when the memory is given back."""
        self.views: list[torch.Tensor | None] = [None] * len(self.parameters)
        """For each parameter the place of its gradient, None where it has none."""
        self.bucket_of: dict[int, int] = {}
        """Parameter (by index) → bucket."""
        self._engine = engine
        self._shapes = shapes_of(parameters)
        self._manner = manner
        weakref.finalize(self, self._holdings.release).atexit = False
        self._lay(None)

    @property
    def order(self) -> list[int]:
        """Return the parameters that have a place, in the order of the places."""
        return [span.parameter for bucket in self._plan.buckets for span in bucket.spans]

    @property
    def members(self) -> list[int]:
        """Return the number of gradients in each bucket."""
        return [len(bucket.spans) for bucket in self._plan.buckets]

    def at_home(self, at: int) -> bool:
        """Return whether a parameter's gradient lies in its place."""
        view, grad = self.views[at], self.parameters[at].grad
        return (
            grad is not None
            and view is not None
            and grad.layout is torch.strided
            and grad.data_ptr() == view.data_ptr()
        )

    def relay(self, order: Sequence[int]) -> None:
        """Move the gradients to the places of a new plan."""
        kept = {at: view.clone() for at in order if (view := self.views[at]) is not None}
        housed = {at for at in order if self.at_home(at)}
        self._lay(order)
        for at, values in kept.items():
            view = self.views[at]
            assert view is not None
            view.copy_(values)
            if at in housed:
                self.parameters[at].grad = view

    def recut(self, cap_bytes: int | None) -> None:
        """Cut the memory into buckets of at most ``cap_bytes``, and the engine's regions anew. Collective."""
        self._manner = replace(self._manner, cap_bytes=cap_bytes)
        self.relay(self.order)

    def leave(self) -> None:
        """Move the gradients into memory of this rank's own, before the engine's memory goes."""
        for at, parameter in enumerate(self.parameters):
            if self.at_home(at) and parameter.grad is not None:
                parameter.grad = parameter.grad.clone()
        self.views = [None] * len(self.parameters)
        self._holdings.release()

    def _lay(self, order: Sequence[int] | None) -> None:
        """Give every parameter in ``order`` its place; the memory is allocated by the first plan."""
        manner = self._manner
        self._plan = plan = plan_buckets(
            self._shapes, cap_bytes=manner.cap_bytes, order=order, groups=manner.groups
        )
        kinds = {bucket.memory: bucket for bucket in plan.buckets}
        for memory, count in plan.room:
            if memory not in self._holdings.arenas:
                kind = kinds[memory]
                self._holdings.arenas[memory] = self._allocate(kind.dtype, kind.device, count)
        self._holdings.forget_homes()
        self.homes += [self._home(index, bucket, plan) for index, bucket in enumerate(plan.buckets)]
        for home in self.homes:
            self._engine.register_gradients(home.work)
        self.bucket_of = {}
        self.views = [None] * len(self.parameters)
        for index, (bucket, home) in enumerate(zip(plan.buckets, self.homes, strict=True)):
            for span in bucket.spans:
                flat = home.values[span.offset : span.offset + span.count]
                self.bucket_of[span.parameter] = index
                self.views[span.parameter] = _shaped(flat, self.parameters[span.parameter])

    def _allocate(self, dtype: str, device: str, count: int) -> tuple[Region, torch.Tensor]:
        own = next(one for one, name in DTYPES.items() if name == dtype)
        mpi_calls = self._manner.wire_dtype
        squeezed = mpi_calls is not None and own.is_floating_point and own != mpi_calls
        wire_name = DTYPES[mpi_calls] if squeezed and mpi_calls else dtype
        region = self._engine.register(count, wire_name, device)
        region.mine.zero_()
        return region, (torch.zeros(count, dtype=own, device=device) if squeezed else region.mine)

    def _home(self, index: int, bucket: Bucket, plan: BucketPlan) -> Home:
        manner = self._manner
        whole, memory = self._holdings.arenas[bucket.memory]
        region = self._engine.cut(whole, bucket.start, bucket.count)
        values = (
            memory[bucket.start : bucket.start + bucket.count] if memory is not whole.mine else region.mine
        )
        average = manner.op is ReduceOp.AVERAGE
        signature = Signature(
            kind="gradients",
            dtype=region.dtype,
            shape=(bucket.count,),
            op=ReduceOp.SUM if average else manner.op,
            prescale=manner.prescale,
            postscale=manner.postscale / self._engine.ranks.size if average else manner.postscale,
            note=f"plan {plan.digest:016x}",
            device=torch.device(bucket.device).type,
        )
        work, asking = (
            Work(
                one,
                signature_digest(one),
                name=f"{manner.serial}.{index}",
                serial=0,
                array=region,
                out=region,
            )
            for one in (signature, replace(signature, note=f"{signature.note}?"))
        )
        return Home(region=region, values=values, work=work, asking=asking)


def _shaped(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return the memory with the shape of a parameter and, where that is dense, with its strides."""
    formats = (torch.channels_last, torch.channels_last_3d)
    for form, dims in zip(formats, (4, 5), strict=True):
        last = parameter.dim() == dims and parameter.is_contiguous(memory_format=form)
        if last and not parameter.is_contiguous():
            return flat.as_strided(parameter.shape, parameter.stride(), flat.storage_offset())
    return flat.view(parameter.shape)

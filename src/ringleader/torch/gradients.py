"""Gradients that live where they are exchanged.

Every gradient is a view into a bucket of the engine's memory: backward writes or adds into it, the exchange
works on it in place, the optimizer reads it. Nothing is packed or unpacked, and there is one copy of the
gradients. A parameter whose gradient was set to None gets it back in its bucket while backward runs: what
autograd computed is copied there once, and autograd takes the copy for the gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ringleader.collectives.buckets import Bucket, BucketPlan, Shape, plan_buckets
from ringleader.collectives.engine import Engine
from ringleader.collectives.exceptions import HorovodInternalError
from ringleader.collectives.kernels import ITEMSIZE
from ringleader.collectives.operations import Call, ReduceOp, Work, call_digest
from ringleader.collectives.transports import Region
from ringleader.torch.direct import sum_over_ranks
from ringleader.torch.kernels import DTYPES, dtype_name

Named = Sequence[tuple[str, torch.Tensor]]


def shapes_of(parameters: Named) -> list[Shape]:
    """Return what a plan needs to know of named parameters."""
    return [
        Shape(
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
class _Home:
    """One bucket in memory."""

    region: Region
    """What is exchanged."""
    values: torch.Tensor
    """Gradients of the bucket, 1-D: the region's memory, or plain memory where the wire has another type."""
    work: Work
    """The exchange, built once."""
    asking: Work
    """The same with a question mark: it tells the other ranks that this one has something to agree on."""


class GradientBuckets:
    """The gradients of some parameters, in buckets."""

    def __init__(self, engine: Engine, parameters: Named, manner: Manner) -> None:
        """Make the buckets and move the gradients in. Collective: all ranks bring the same parameters."""
        self.noticed: dict[int, int] = {}
        """Parameters (by index) whose gradients turned out to be sparse here, not yet known to all ranks, and
        the number of sparse dimensions."""
        self.sparse: dict[int, int] = {}
        """Parameters that all ranks know to have sparse gradients."""
        self._engine = engine
        self._parameters = [tensor for _name, tensor in parameters]
        self._index = {id(tensor): at for at, tensor in enumerate(self._parameters)}
        self._shapes = shapes_of(parameters)
        self._manner = manner
        self._overlap = manner.overlap and engine.threads
        self._arrivals: list[int] | None = [] if self._overlap and not manner.groups else None
        """Parameters in the order in which backward finished them, until the buckets were rebuilt."""
        self._asks = False
        self._under_way: set[int] = set()
        """Buckets that were handed to the engine during backward."""
        self._failed: list[int] = []
        self._idle: list[int] = []
        self._arenas: dict[str, tuple[Region, torch.Tensor]] = {}
        self._homes: list[_Home] = []
        self._views: list[torch.Tensor | None] = [None] * len(self._parameters)
        self._blank = [tensor.grad is None for tensor in self._parameters]
        self._lay(None)
        for at in range(len(self._parameters)):
            self._settle(at)
        self._nodes: list[Any] = []
        self._hooks: list[Any] = []
        self._hook()

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return len(self._homes)

    # where gradients lie

    def _lay(self, order: Sequence[int] | None) -> None:
        """Give every parameter in ``order`` its place; the memory is allocated by the first plan."""
        manner = self._manner
        self._plan = plan = plan_buckets(
            self._shapes, cap_bytes=manner.cap_bytes, order=order, groups=manner.groups
        )
        kinds = {bucket.memory: bucket for bucket in plan.buckets}
        for memory, count in plan.room:
            if memory not in self._arenas:
                self._arenas[memory] = self._allocate(kinds[memory].dtype, kinds[memory].device, count)
        self._forget()
        self._homes = [self._home(index, bucket, plan) for index, bucket in enumerate(plan.buckets)]
        for home in self._homes:
            self._engine.register_gradients(home.work)
        self._bucket_of: dict[int, int] = {}
        self._views = [None] * len(self._parameters)
        for index, (bucket, home) in enumerate(zip(plan.buckets, self._homes, strict=True)):
            for place in bucket.places:
                flat = home.values[place.offset : place.offset + place.count]
                self._bucket_of[place.parameter] = index
                self._views[place.parameter] = _shaped(flat, self._parameters[place.parameter])
        self._begin()

    def _allocate(self, dtype: str, device: str, count: int) -> tuple[Region, torch.Tensor]:
        own = next(one for one, name in DTYPES.items() if name == dtype)
        wire = self._manner.wire_dtype
        squeezed = wire is not None and own.is_floating_point and own != wire
        wire_name = DTYPES[wire] if squeezed and wire else dtype
        region = self._engine.register(count, wire_name, device)
        region.mine.zero_()
        return region, (torch.zeros(count, dtype=own, device=device) if squeezed else region.mine)

    def _home(self, index: int, bucket: Bucket, plan: BucketPlan) -> _Home:
        manner = self._manner
        whole, memory = self._arenas[bucket.memory]
        region = self._engine.cut(whole, bucket.start, bucket.count)
        values = (
            memory[bucket.start : bucket.start + bucket.count] if memory is not whole.mine else region.mine
        )
        average = manner.op is ReduceOp.AVERAGE
        call = Call(
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
            Work(one, call_digest(one), name=f"{manner.serial}.{index}", serial=0, array=region, out=region)
            for one in (call, replace(call, note=f"{call.note}?"))
        )
        return _Home(region=region, values=values, work=work, asking=asking)

    def _at_home(self, at: int) -> bool:
        view, grad = self._views[at], self._parameters[at].grad
        return (
            grad is not None
            and view is not None
            and grad.layout is torch.strided
            and grad.data_ptr() == view.data_ptr()
        )

    def _settle(self, at: int) -> None:
        """Move a gradient into its bucket if it lies elsewhere; one that is not there counts as zero."""
        parameter, view = self._parameters[at], self._views[at]
        if view is None or self._at_home(at):
            return
        grad = parameter.grad
        if grad is None:
            view.zero_()
        elif grad.is_sparse and at not in self.sparse:
            # The other ranks do not know; the exchange of buckets goes on as if there were none.
            self._notice(at, grad)
            view.zero_()
            return
        else:
            with torch.no_grad():
                view.copy_(grad.to_dense() if grad.is_sparse else grad)
        parameter.grad = view

    def _notice(self, at: int, grad: torch.Tensor) -> None:
        self.noticed[at] = grad.sparse_dim()
        self._asks = True

    def _hook(self) -> None:
        with torch.enable_grad():
            for at, parameter in enumerate(self._parameters):
                if parameter.requires_grad and parameter.is_leaf:
                    node: Any = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
                    # The node lives as long as somebody holds it.
                    self._nodes.append(node)
                    self._hooks.append(node.register_prehook(self._before(at)))

    def _before(self, at: int) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
        """Return what happens before autograd puts a gradient into ``.grad``."""
        parameter = self._parameters[at]

        def before(inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
            grad, view = inputs[0], self._views[at]
            if grad is None or torch.is_grad_enabled():
                return None  # with create_graph the gradient is part of a graph and stays what it is
            blank, self._blank[at] = self._blank[at], False
            if grad.is_sparse:
                if blank:
                    parameter.grad = None  # added to zeros it would become dense
                return None
            if parameter.grad is not None or view is None or grad.dtype != view.dtype:
                return None
            view.copy_(grad)
            return (view.detach(),)

        return before

    # during backward

    def arrived(self, parameter: torch.Tensor) -> None:
        """Note that a gradient is complete; with the last one of a bucket the bucket begins to travel."""
        if not self._overlap:
            return
        at = self._index[id(parameter)]
        grad = parameter.grad
        if self._views[at] is None or grad is None or grad.requires_grad:
            return
        if self._arrivals is not None:
            self._arrivals.append(at)
        self._settle(at)
        if self._asks:
            return
        index = self._bucket_of[at]
        self._missing[index] -= 1
        if self._missing[index] == 0:
            self._load(self._homes[index])
            self._homes[index].work.done = False
            self._engine.submit(self._homes[index].work)
            self._under_way.add(index)

    def ask(self) -> None:
        """Let the next exchange tell all ranks that this one has something to agree on."""
        self._asks = True

    # the exchange

    def exchange(self) -> bool:
        """Reduce all gradients over the ranks; return whether a rank asks for an agreement.

        Then all ranks get True; they exchange what they noticed and `resume`. A parameter without a
        gradient counts as zero here.
        """
        self._idle = [
            at
            for at, parameter in enumerate(self._parameters)
            if parameter.grad is None and not parameter.requires_grad
        ]
        for at, index in self._bucket_of.items():
            if index not in self._under_way and not self._at_home(at):
                self._settle(at)
        try:
            self._failed = self._carry_out()
        finally:
            asked, self._asks = self._asks, False
            self._begin()
        if asked or self._failed:
            return True
        self._conclude()
        return False

    def _carry_out(self) -> list[int]:
        """Exchange all buckets; return those whose exchange another rank declined to ask a question."""
        rest = [index for index in range(len(self._homes)) if index not in self._under_way]
        for index in rest:
            self._load(self._homes[index])
        works = [self._homes[index].asking if self._asks else self._homes[index].work for index in rest]
        engine = self._engine
        if not self._under_way:
            pairs = zip(rest, works, strict=True)
            return [index for index, work in pairs if not _agreed(engine.exchange, [work])]
        before = sorted(self._under_way)
        under_way = [self._homes[index].work for index in before]
        if _agreed(engine.finish, under_way, works):
            return []
        pairs = zip(before + rest, under_way + works, strict=True)
        return [index for index, work in pairs if not _agreed(engine.wait, work)]

    def resume(self) -> None:
        """Exchange what was declined. Collective."""
        for index in self._failed:
            self._engine.exchange([self._homes[index].work])
        self._failed = []
        self._conclude()

    def _conclude(self) -> None:
        self._blank = [False] * len(self._parameters)
        for home in self._homes:
            if home.values is not home.region.mine:
                home.values.copy_(home.region.mine)
        for at in self._idle:
            view = self._views[at]
            if view is not None and not view.any():
                self._parameters[at].grad = None  # frozen, and no rank has a gradient for it
        if self._manner.sparse_as_dense:
            for at, dims in self.sparse.items():
                self._parameters[at].grad = self._views[at].to_sparse(dims)  # type: ignore[union-attr]
        if self._arrivals is not None:
            if len(self._homes) > 1:
                self._reorder()
            else:
                self._arrivals = []

    def _begin(self) -> None:
        """Expect all gradients anew."""
        self._under_way.clear()
        self._missing = [len(bucket.places) for bucket in self._plan.buckets]

    def _load(self, home: _Home) -> None:
        if self._manner.prescale != 1.0:
            home.values.mul_(self._manner.prescale)
        if home.values is not home.region.mine:
            home.region.mine.copy_(home.values)

    # other plans

    def _reorder(self) -> None:
        """Cut the buckets anew, in the order in which gradients came on rank 0. Collective.

        The order travels as a sum to which only rank 0 adds something, so that a rank that has joined takes
        part with zeros; such a rank cannot follow, and the buckets stay.
        """
        arrivals, self._arrivals = self._arrivals or [], None
        count = len(self._parameters)
        turns = torch.zeros(count + 1, dtype=torch.int64)
        turns[count] = 1
        if self._engine.ranks.rank == 0:
            for turn, at in enumerate(arrivals):
                turns[at] = turn + 1
        sum_over_ranks(self._engine, turns, f"{self._manner.serial}.order")
        seen: list[int] = turns[:count].tolist()
        if turns[count] != self._engine.ranks.size:
            return
        if not any(seen):
            self._arrivals = []  # rank 0 had no gradient at all; the next step may tell
            return
        order = [place.parameter for bucket in self._plan.buckets for place in bucket.places]
        self._relay(sorted(order, key=lambda at: seen[at] or count + 1))

    def adopt(self, sparse: dict[int, int]) -> dict[int, torch.Tensor]:
        """Know which gradients are sparse, from all ranks; take them out of the buckets.

        Returns, for each, the sum of those that were dense on some ranks and so went through a bucket.
        """
        parts = {at: self._views[at] for at in sparse}
        dense = {at: part.clone() for at, part in parts.items() if part is not None and bool(part.any())}
        for at in sparse:
            if self._at_home(at):
                self._parameters[at].grad = None
        self.sparse.update(sparse)
        self.noticed.clear()
        if not self._manner.sparse_as_dense:
            order = [place.parameter for bucket in self._plan.buckets for place in bucket.places]
            self._relay([at for at in order if at not in sparse])
        return dense

    def recut(self, cap_bytes: int | None) -> int:
        """Cut the same memory into other buckets, of at most ``cap_bytes``; return how many. Collective.

        Also where the size is as before, for what has changed in how the engine exchanges them.
        """
        self._manner = replace(self._manner, cap_bytes=cap_bytes)
        self._relay([place.parameter for bucket in self._plan.buckets for place in bucket.places])
        return self.count

    def _relay(self, order: Sequence[int]) -> None:
        """Move the gradients to the places of a new plan."""
        kept = {at: view.clone() for at in order if (view := self._views[at]) is not None}
        housed = {at for at in order if self._at_home(at)}
        self._lay(order)
        for at, values in kept.items():
            view = self._views[at]
            assert view is not None
            view.copy_(values)
            if at in housed:
                self._parameters[at].grad = view

    def _forget(self) -> None:
        for home in self._homes:
            self._engine.forget_gradients(home.work)
        self._homes = []

    def leave(self) -> None:
        """Move the gradients into memory of this rank's own, before the engine's memory goes."""
        for hook in self._hooks:
            hook.remove()
        for at, parameter in enumerate(self._parameters):
            if self._at_home(at) and parameter.grad is not None:
                parameter.grad = parameter.grad.clone()
        self._views = [None] * len(self._parameters)
        self._forget()
        self._nodes, self._hooks = [], []
        self._arenas.clear()


def _shaped(flat: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return the memory with the shape of a parameter and, where that is dense, with its strides."""
    formats = (torch.channels_last, torch.channels_last_3d)
    for form, dims in zip(formats, (4, 5), strict=True):
        last = parameter.dim() == dims and parameter.is_contiguous(memory_format=form)
        if last and not parameter.is_contiguous():
            return flat.as_strided(parameter.shape, parameter.stride(), flat.storage_offset())
    return flat.view(parameter.shape)


def _agreed(act: Callable[..., None], *works: Any) -> bool:
    """Do it; return False where it ended because a rank brought its work with a question mark."""
    try:
        act(*works)
    except HorovodInternalError as error:
        if not str(error).startswith("Mismatched requests"):
            raise
        return False
    return True

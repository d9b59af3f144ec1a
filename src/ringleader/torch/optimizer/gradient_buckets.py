"""Gradients that live where they are exchanged (see `bucket_memory`).

Every gradient is a view into a bucket of the engine's memory: backward writes or adds into it, the exchange
works on it in place, the optimizer reads it. Nothing is packed or unpacked, and there is one copy of the
gradients. A parameter whose gradient was set to None gets it back in its bucket while backward runs: what
autograd computed is copied there once, and autograd takes the copy for the gradient.

Buckets on devices are launched straight from backward once the ranks have settled their order in the first
step: see `launch_sequence`.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable
from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.exceptions import NoteMismatchError
from ringleader.collectives.operations import Work
from ringleader.common.object_exchange import sum_numbers
from ringleader.torch.optimizer.bucket_memory import BucketMemory, GradientBucket
from ringleader.torch.optimizer.freed_memory import keep_freed_memory
from ringleader.torch.optimizer.gradient_config import GradientConfig, Named
from ringleader.torch.optimizer.gradient_exchange import GradientExchange
from ringleader.torch.optimizer.launch_sequence import LaunchSequence


class GradientBuckets(GradientExchange):
    """The gradients of some parameters, in buckets."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig) -> None:
        """Make the buckets and move the gradients in. Collective: all ranks bring the same parameters."""
        super().__init__()
        self._engine = engine
        self._memory = BucketMemory(engine, parameters, config)
        self._parameters = self._memory.parameters
        self._index = {id(tensor): at for at, tensor in enumerate(self._parameters)}
        self._config = config
        self._overlap = config.overlap and engine.threads
        self._arrivals: list[int] | None = [] if self._overlap and not config.groups else None
        """Parameters in the order in which backward finished them, until the buckets were rebuilt."""
        self._sequence: LaunchSequence | None = None
        """The buckets on devices, where they are launched without an agreement for each."""
        self._unsettled = True
        """Whether all ranks have still to tell that they took part in a step."""
        self._captured = False
        """Whether a CUDA graph writes into the buckets, so that they must stay where they are."""
        self._loaded: set[int] = set()
        """Buckets that are laid out."""
        self._under_way: set[int] = set()
        """Buckets that were handed to the engine during backward."""
        self._failed: list[int] = []
        self._idle: list[int] = []
        self._blank = [tensor.grad is None for tensor in self._parameters]
        keep_freed_memory()
        self._begin()
        for at in range(len(self._parameters)):
            self._settle(at)
        self._nodes: list[Any] = []
        self._hook()

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return len(self._memory.buckets)

    # where gradients lie

    def _settle(self, at: int) -> None:
        """Move a gradient into its bucket if it lies elsewhere; one that is not there counts as zero."""
        parameter, view = self._parameters[at], self._memory.views[at]
        if view is None or self._memory.in_bucket(at):
            return
        grad = parameter.grad
        if grad is None:
            view.zero_()
        elif grad.is_sparse and at not in self.sparse:
            # The other ranks do not know; the exchange of buckets goes on as if there were none.
            self.new_sparse[at] = grad.sparse_dim()
            self._wants_agreement = True
            if self._sequence is None or not self._sequence.asked:
                view.zero_()
                return
            # Too late to tell the others in this step: it goes as a dense one, and they are told in the next.
            with torch.no_grad():
                view.copy_(grad.to_dense())
        else:
            with torch.no_grad():
                view.copy_(grad.to_dense() if grad.is_sparse else grad)
        parameter.grad = view

    def _hook(self) -> None:
        me = weakref.ref(self)
        with torch.enable_grad():
            for at, parameter in enumerate(self._parameters):
                if parameter.requires_grad and parameter.is_leaf:
                    node: Any = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
                    # The node lives as long as somebody holds it.
                    self._nodes.append(node)
                    self._memory.hooks.append(node.register_prehook(_before(me, at)))

    def _accumulating(self, at: int, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Called before autograd puts a gradient into ``.grad``: return the place that it is to go to."""
        grad, view, parameter = inputs[0], self._memory.views[at], self._parameters[at]
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

    # during backward

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        """Note that a gradient is complete; with the last one of a bucket the bucket begins to travel."""
        if not self._overlap:
            return
        at = self._index[id(parameter)]
        grad = parameter.grad
        if self._memory.views[at] is None or grad is None or grad.requires_grad:
            return
        if self._is_captured(at):
            return
        if self._arrivals is not None:
            self._arrivals.append(at)
        self._settle(at)
        index, sequence = self._memory.bucket_of[at], self._sequence
        if sequence is not None:
            sequence.ask(requesting=self._wants_agreement)
        launching = sequence is not None and index in sequence
        if self._wants_agreement and not launching:
            return
        if sequence is not None and launching:
            sequence.written(index)
        self._missing[index] -= 1
        if self._missing[index] == 0:
            self._lay_out(index)
            refused = sequence.ready(index) if sequence is not None and launching else [index]
            if not self._wants_agreement:
                self._submit(refused)

    def _submit(self, indices: list[int]) -> None:
        for index in indices:
            work = self._memory.buckets[index].work
            work.done = False
            self._engine.submit(work)
            self._under_way.add(index)

    def _is_captured(self, at: int) -> bool:
        """Return whether a CUDA graph is being captured: its replays write into the buckets, and no more."""
        devices, work = self._engine.queue.devices, self._memory.buckets[self._memory.bucket_of[at]].work
        if work.signature.device == "cpu" or devices is None or not devices.capturing():
            return False
        if not self._memory.in_bucket(at):
            raise RuntimeError(
                "A CUDA graph that is being captured writes a gradient outside of the memory that is "
                "exchanged. Call optimizer.zero_grad(set_to_none=True) right before the capture."
            )
        self._captured = True
        return True

    # the exchange

    def exchange(self) -> bool:
        """See `GradientExchange`."""
        self._idle = [
            at
            for at, parameter in enumerate(self._parameters)
            if parameter.grad is None and not parameter.requires_grad
        ]
        for at, index in self._memory.bucket_of.items():
            if index not in self._loaded and not self._memory.in_bucket(at):
                self._settle(at)
        try:
            self._failed = self._carry_out()
        finally:
            asked, self._wants_agreement = self._wants_agreement and not self.too_late, self.too_late
            self._begin()
        if asked or self._failed:
            return True
        self._conclude()
        return False

    def _carry_out(self) -> list[int]:
        """Exchange all buckets; return those whose exchange another rank declined to ask a question."""
        launched: set[int] = set()
        sequence, self.too_late = self._sequence, False
        if sequence is not None:
            sequence.ask(requesting=self._wants_agreement)
            with self._engine.times.waiting():
                if sequence.finish(self._lay_out):
                    launched = set(sequence)
        rest = [
            index
            for index in range(len(self._memory.buckets))
            if index not in self._under_way and index not in launched
        ]
        # What is noticed after the agreement, with nothing to tell it with, is told in the next step.
        self.too_late = bool(launched) and not rest and self._wants_agreement
        if launched and not rest and not self._under_way:
            return []
        for index in rest:
            self._lay_out(index)
        works = [
            self._memory.buckets[index].requesting
            if self._wants_agreement
            else self._memory.buckets[index].work
            for index in rest
        ]
        engine = self._engine
        if not self._under_way:
            pairs = zip(rest, works, strict=True)
            return [index for index, work in pairs if not _agreed(engine.run, work)]
        before = sorted(self._under_way)
        under_way = [self._memory.buckets[index].work for index in before]
        if _agreed(engine.finish, under_way, works):
            return []
        pairs = zip(before + rest, under_way + works, strict=True)
        return [index for index, work in pairs if not _agreed(engine.wait, work)]

    def resume(self) -> None:
        """Exchange what was declined."""
        for index in self._failed:
            self._engine.run(self._memory.buckets[index].work)
        self._failed = []
        self._conclude()

    def _conclude(self) -> None:
        self._blank = [False] * len(self._parameters)
        for bucket in self._memory.buckets:
            if bucket.apart:
                bucket.values.copy_(bucket.region.mine)
        for at in self._idle:
            view = self._memory.views[at]
            if view is not None and not view.any():
                self._parameters[at].grad = None  # frozen, and no rank has a gradient for it
        if self._config.sparse_as_dense:
            for at, dims in self.sparse.items():
                self._parameters[at].grad = self._memory.views[at].to_sparse(dims)  # type: ignore[union-attr]
        if not self._unsettled:
            return
        if self._on_devices() or (self._arrivals is not None and len(self._memory.buckets) > 1):
            self._settle_order()
        elif self._arrivals is not None:
            self._arrivals = []
        else:
            self._unsettled = False

    def _begin(self) -> None:
        """Expect all gradients anew."""
        self._under_way.clear()
        self._loaded.clear()
        self._missing = self._memory.members
        if self._sequence is not None:
            self._sequence.begin()

    def _on_devices(self) -> dict[int, Work]:
        """Return the exchanges of buckets that are on devices, by their numbers."""
        works = {index: bucket.work for index, bucket in enumerate(self._memory.buckets)}
        return {index: work for index, work in works.items() if work.signature.device != "cpu"}

    def _new_sequence(self, works: dict[int, Work]) -> LaunchSequence | None:
        """Return what launches the buckets of the plan of now, None where that is impossible."""
        devices, name = self._engine.queue.devices, f"{self._config.serial}.launch"
        if not works or devices is None or not devices.launches:
            return None
        return LaunchSequence(self._engine, works, name=name, note=self._memory.note)

    def _lay_out(self, index: int) -> None:
        if index not in self._loaded:
            self._loaded.add(index)
            self._load(self._memory.buckets[index])

    def _load(self, bucket: GradientBucket) -> None:
        if self._config.prescale != 1.0:
            bucket.values.mul_(self._config.prescale)
        if bucket.apart:
            bucket.region.mine.copy_(bucket.values)

    # other plans

    def _settle_order(self) -> None:
        """Cut the buckets anew, in the order in which gradients came on rank 0. Collective.

        The order travels as a sum to which only rank 0 adds something, so that a rank that has joined takes
        part with zeros; such a rank cannot follow, and the buckets stay. Buckets into which a CUDA graph
        writes stay too. From here on buckets on devices are launched in the order of the plan.
        """
        arrivals, self._arrivals = self._arrivals, None
        count = len(self._parameters) if arrivals is not None else 0
        turns = array("q", [0] * count + [int(self._captured), 1])
        if self._engine.ranks.rank == 0:
            for turn, at in enumerate(arrivals or []):
                turns[at] = turn + 1
        *seen, captured, present = sum_numbers(self._engine, turns, f"{self._config.serial}.order")
        self._unsettled = False
        if present != self._engine.ranks.size:
            return
        if count and not any(seen) and not captured:
            self._arrivals, self._unsettled = [], True  # rank 0 had no gradient; the next step may tell
            return
        if count and not captured and len(self._memory.buckets) > 1:
            self._memory.replan(sorted(self._memory.order, key=lambda at: seen[at] or count + 1))
        self._sequence = self._new_sequence(self._on_devices())
        self._begin()

    def set_sparse(self, sparse: dict[int, int]) -> dict[int, torch.Tensor]:
        """Know which gradients are sparse, from all ranks; take them out of the buckets.

        Returns, for each, the sum of those that were dense on some ranks and so went through a bucket.
        """
        parts = {at: self._memory.views[at] for at in sparse}
        dense = {at: part.clone() for at, part in parts.items() if part is not None and bool(part.any())}
        for at in sparse:
            if self._memory.in_bucket(at):
                self._parameters[at].grad = None
        self.sparse.update(sparse)
        self.new_sparse.clear()
        if not self._config.sparse_as_dense:
            self._replan(lambda: self._memory.replan([at for at in self._memory.order if at not in sparse]))
        return dense

    def resize(self, cap_bytes: int | None) -> int:
        """Cut the same memory into other buckets, of at most ``cap_bytes``; return how many. Collective.

        Also where the size is as before, for what has changed in how the engine exchanges them.
        """
        self._replan(lambda: self._memory.resize(cap_bytes))
        return self.count

    def _replan(self, cut: Callable[[], None]) -> None:
        """Have other buckets from the next step on."""
        if self._captured:
            raise RuntimeError(
                "The buckets of gradients must change, and a captured CUDA graph writes into those of now. "
                "Capture the graph after the first steps, without autotuning."
            )
        cut()
        if self._sequence is not None:
            self._sequence = self._new_sequence(self._on_devices())
        self._begin()

    def detach(self) -> None:
        """Move the gradients into memory of this rank's own, before the engine's memory goes."""
        if self._sequence is not None:
            self._sequence.abandon()
            self._sequence = None
        self._memory.detach()
        self._nodes = []


def _before(
    buckets: Callable[[], GradientBuckets | None], at: int
) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
    """Return a hook that does not keep the buckets alive: the collector cannot look into autograd's nodes."""

    def before(inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        alive = buckets()
        return None if alive is None else alive._accumulating(at, inputs)

    return before


def _agreed(act: Callable[..., None], *works: Any) -> bool:
    """Do it; return False where it ended because a rank brought its work with a request for an agreement."""
    try:
        act(*works)
    except NoteMismatchError:
        return False
    return True

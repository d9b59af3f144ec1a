"""Gradients that live where they are exchanged (see `bucket_memory`).

Every gradient is in a bucket of the engine's memory: backward writes or adds into it, the exchange works on
it in place, the optimizer reads it. Nothing is packed or unpacked, and there is one copy of the gradients. A
parameter whose gradient was set to None gets it in its bucket while backward runs: what autograd computed is
copied there once, and autograd takes the copy for the gradient.

Scripts convert models, replace gradients and keep them in their own memory. So each step checks where
every gradient lies. One that lies elsewhere is copied into its bucket and, where something else looks at its
memory, back again. Where parameters have another type or layout than their places, the ranks agree on new
buckets.

Buckets on devices are launched straight from backward once the ranks have settled their order in the first
step: see `launch_sequence`.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from ringleader.adapters.object_exchange import sum_numbers
from ringleader.engine.exceptions import NoteMismatchError
from ringleader.engine.group_engine import Engine
from ringleader.torch.gradient_config import GradientConfig, Named
from ringleader.torch.optimizer.bucket_memory import BucketMemory
from ringleader.torch.optimizer.gradient_exchange import drop_zeros, idle_ones
from ringleader.torch.optimizer.gradient_place import is_alone, keep_freed_memory
from ringleader.torch.optimizer.launch_sequence import LaunchSequence

CONVERTED_TOO_LATE = (
    "the type or shape of this parameter's gradient changed during backward. Convert a model before "
    "backward, or after optimizer.step()."
)
CHANGED_TOO_LATE = (
    "the gradient was changed between backward and optimizer.step(), while it was being exchanged. Call "
    "optimizer.synchronize() before you change gradients, and step within optimizer.skip_synchronize()."
)


class GradientBuckets(BucketMemory):
    """The gradients of some parameters, in buckets."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig) -> None:
        """Make the buckets and move the gradients in. Collective: all ranks bring the same parameters."""
        super().__init__(engine, parameters, config)
        self._index = {id(tensor): at for at, tensor in enumerate(self._parameters)}
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
        self._last = 0
        """The bucket that never travels during backward: it can request an agreement until the step."""
        self._declined = False
        """Whether the last bucket is still to be exchanged, once the ranks have agreed."""
        self._idle: list[torch.Tensor] = []
        self._versions: dict[int, int] = {}
        """How often each gradient had been changed in place when its bucket began to travel."""
        self._elsewhere: dict[int, torch.Tensor] = {}
        """Gradients in memory of the script's, which get the result copied back."""
        keep_freed_memory()
        self._begin()
        self._nodes: list[Any] = []
        self._hook()

    @property
    def count(self) -> int:
        """Return the number of buckets."""
        return len(self.buckets)

    @property
    def under_way(self) -> bool:
        """See `GradientExchange`."""
        return bool(self._under_way) or (self._sequence is not None and self._sequence.asked)

    # where gradients lie

    def _settle(self, at: int) -> None:
        """Have a gradient's values in its bucket; one that does not exist counts as zero."""
        parameter, place = self._parameters[at], self.places[at]
        grad = parameter.grad
        if place is None or (grad is not None and place.holds(grad)):
            return
        dense = grad
        if grad is not None and grad.is_sparse:
            # The other ranks do not know; the exchange of buckets continues as if there were none. Where
            # that is too late, it goes as a dense one, and they learn of it in the next step.
            if at not in self.sparse:
                self.new_sparse[at] = grad.sparse_dim()
                if self._can_still_ask():
                    place.vacate().zero_()
                    return
            dense = grad.to_dense()
        if not place.fits(parameter if dense is None else dense):
            if not self._can_still_ask():
                raise RuntimeError(f"{self._names[at]}: {CONVERTED_TOO_LATE}")
            self.restart = True
            self.left_out.add(at)
            place.vacate().zero_()
            return
        with torch.no_grad():
            if dense is None:
                place.vacate().zero_()
            else:
                place.vacate().copy_(dense)
        if dense is None or grad is not dense or dense.requires_grad:
            parameter.grad = place.alias()
        elif is_alone(dense) and place.is_laid_out_as(parameter):
            dense.data = place.alias()
        else:
            self._elsewhere[at] = dense

    def _can_still_ask(self) -> bool:
        """Have this step's exchange request an agreement; return False where it is too late for that."""
        self._wants_agreement = True
        return self._sequence is None or not self._sequence.asked

    def _hook(self) -> None:
        me = weakref.ref(self)
        with torch.enable_grad():
            for at, parameter in enumerate(self._parameters):
                if parameter.requires_grad and parameter.is_leaf:
                    node: Any = parameter.view_as(parameter).grad_fn.next_functions[0][0]  # type: ignore[union-attr]
                    # The node lives as long as somebody holds it.
                    self._nodes.append(node)
                    self._hooks.append(node.register_prehook(_before(me, at)))

    def _accumulating(self, at: int, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Called before autograd puts a gradient into ``.grad``: return the place that it is to go to."""
        grad, place, parameter = inputs[0], self.places[at], self._parameters[at]
        if grad is None or torch.is_grad_enabled():
            return None  # with create_graph the gradient is part of a graph and stays what it is
        if parameter.grad is not None or place is None or grad.is_sparse:
            return None
        if not (place.fits(grad) and place.is_laid_out_as(parameter)):
            return None
        view = place.vacate()
        view.copy_(grad)
        return (view.detach(),)

    # during backward

    def gradient_ready(self, parameter: torch.Tensor) -> None:
        """Note that a gradient is complete; with the last one of a bucket the bucket begins to travel."""
        if not self._overlap:
            return
        at = self._index[id(parameter)]
        grad = parameter.grad
        if self.places[at] is None or grad is None or grad.requires_grad:
            return
        if self._is_captured(at):
            return
        if self._arrivals is not None:
            self._arrivals.append(at)
        index, sequence = self.bucket_of[at], self._sequence
        if sequence is not None and not sequence.asked:
            # Where parameters have another type or layout by now, the ranks agree on new buckets.
            for one, place in zip(self._parameters, self.places, strict=True):
                if place is not None and not (place.is_laid_out_as(one) and place.fits(one)):
                    self.restart = self._wants_agreement = True
            sequence.ask(requesting=self._wants_agreement)
        self._settle(at)
        launching = sequence is not None and index in sequence
        if sequence is not None and launching:
            sequence.written(index)
        self._missing[index] -= 1
        if self._missing[index] == 0 and (launching or index != self._last):
            self._lay_out(index)
            self._note_versions(index)
            refused = sequence.ready(index) if sequence is not None and launching else [index]
            for number in refused:
                if number != self._last:
                    self._engine.submit(self.buckets[number].work)
                    self._under_way.add(number)

    def _note_versions(self, index: int) -> None:
        """Note how the gradients of a bucket are when it begins to travel."""
        for span in self.plan.buckets[index].spans:
            grad = self._parameters[span.parameter].grad
            if grad is not None and not grad.is_sparse and span.parameter not in self.left_out:
                self._versions[span.parameter] = grad._version

    def _is_captured(self, at: int) -> bool:
        """Return whether a CUDA graph is being captured: its replays write into the buckets, and no more."""
        devices, bucket = self._engine.queue.devices, self.buckets[self.bucket_of[at]]
        if not bucket.on_device or devices is None or not devices.capturing():
            return False
        if not self.in_bucket(at):
            raise RuntimeError(
                "A CUDA graph that is being captured writes a gradient outside of the memory that is "
                "exchanged. Call optimizer.zero_grad(set_to_none=True) right before the capture."
            )
        self._captured = True
        return True

    # the exchange

    def exchange(self) -> bool:
        """See `GradientExchange`."""
        self._idle = idle_ones(self._parameters)
        self._check_gradients()
        try:
            self._declined = not self._carry_out()
        finally:
            asked, self._wants_agreement = self._wants_agreement and not self.too_late, self.too_late
            self._begin()
        if asked or self._declined:
            return True
        self._conclude()
        return False

    def _check_gradients(self) -> None:
        """Have all gradients in their buckets; `RuntimeError` where one was changed when it had traveled."""
        for at, index in self.bucket_of.items():
            parameter, place = self._parameters[at], self.places[at]
            assert place is not None
            if not place.is_laid_out_as(parameter):
                self.restart = self._wants_agreement = True
            grad = parameter.grad
            inside = grad is not None and place.holds(grad)
            if index in self._loaded:
                if not self._is_as_it_traveled(at, grad, inside=inside):
                    raise RuntimeError(f"{self._names[at]}: {CHANGED_TOO_LATE}")
            elif not inside:
                self._settle(at)

    def _is_as_it_traveled(self, at: int, grad: torch.Tensor | None, *, inside: bool) -> bool:
        if at in self._elsewhere:  # views of one tensor have one version, so that tells nothing
            return grad is self._elsewhere[at]
        return at not in self._versions or (
            inside and grad is not None and grad._version == self._versions[at]
        )

    def _carry_out(self) -> bool:
        """Exchange all buckets; return False where a rank had something to ask instead of the last one."""
        if not self.buckets:  # all gradients are sparse: there is nothing to request it with
            self._wants_agreement = self._any_rank(self._wants_agreement)
            return True
        done, sequence = set(self._under_way), self._sequence
        if sequence is not None:
            sequence.ask(requesting=self._wants_agreement)
            with self._engine.times.waiting():
                if sequence.finish(self._lay_out):
                    done.update(sequence)
        rest = [index for index in range(self.count) if index not in done]
        rest.sort(key=self._last.__eq__)
        # What is noticed after the agreement, with nothing to send it with, is sent in the next step.
        self.too_late = self._last in done and self._wants_agreement
        works = []
        for index in rest:
            self._lay_out(index)
            bucket = self.buckets[index]
            asks = self._wants_agreement and index == self._last
            works.append(bucket.requesting if asks else bucket.work)
        try:
            if self._under_way:
                before = [self.buckets[index].work for index in sorted(self._under_way)]
                self._engine.finish(before, works)
            else:
                for work in works:
                    self._engine.run(work)
        except NoteMismatchError:
            return False
        return True

    def resume(self) -> None:
        """Exchange what was declined."""
        if self._declined:
            self._engine.run(self.buckets[self._last].work)
        self._declined = False
        self._conclude()

    def _conclude(self) -> None:
        for bucket in self.buckets:
            if bucket.apart:
                bucket.values.copy_(bucket.region.mine)
        for at, grad in self._elsewhere.items():
            if self._parameters[at].grad is grad:
                grad.detach().copy_(self.places[at].view)  # type: ignore[union-attr]
        self._elsewhere.clear()
        drop_zeros(self._idle)
        self._make_sparse()
        if not self._unsettled:
            return
        on_devices = any(bucket.on_device for bucket in self.buckets)
        if on_devices or (self._arrivals is not None and self.count > 1):
            self._settle_order()
        elif self._arrivals is not None:
            self._arrivals = []
        else:
            self._unsettled = False

    def _make_sparse(self) -> None:
        """Have gradients sparse again that went as dense ones."""
        if not self._config.sparse_as_dense:
            return
        for at, dims in self.sparse.items():
            place = self.places[at]
            if self._parameters[at].grad is None:
                continue  # frozen, and no rank has a gradient for it
            if place is not None and place.fits(self._parameters[at]):
                self._parameters[at].grad = place.view.to_sparse(dims)

    def _begin(self) -> None:
        """Expect all gradients anew."""
        self._under_way.clear()
        self._versions.clear()
        self._loaded.clear()
        self._missing = [len(bucket.spans) for bucket in self.plan.buckets]
        self._last = self.count - 1
        if self._sequence is not None:
            self._sequence.begin()
            agreed_on = [index for index in range(self.count) if index not in self._sequence]
            self._last = max(agreed_on, default=self._last)

    def _new_sequence(self) -> LaunchSequence | None:
        """Return what launches the buckets on devices of the plan of now, None where that is impossible."""
        devices, name = self._engine.queue.devices, f"{self._config.serial}.launch"
        works = {at: bucket.work for at, bucket in enumerate(self.buckets) if bucket.on_device}
        if not works or devices is None or not devices.launches:
            return None
        return LaunchSequence(self._engine, works, name=name, note=self.note)

    def _lay_out(self, index: int) -> None:
        if index in self._loaded:
            return
        self._loaded.add(index)
        bucket = self.buckets[index]
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
        if count and not captured and len(self.buckets) > 1:
            self._move_to_plan(sorted(self.order, key=lambda at: seen[at] or count + 1))
        self._sequence = self._new_sequence()
        self._begin()

    def set_sparse(self, sparse: dict[int, int]) -> dict[int, torch.Tensor]:
        """Know which gradients are sparse, from all ranks; take them out of the buckets.

        Returns, for each, the sum of those that were dense on some ranks and so went through a bucket.
        """
        places = {at: self.places[at] for at in sparse}
        parts = {at: place.view for at, place in places.items() if place is not None}
        dense = {at: part.clone() for at, part in parts.items() if bool(part.any())}
        for at in sparse:
            if self.in_bucket(at):
                self._parameters[at].grad = None
        self.sparse.update(sparse)
        self.new_sparse.clear()
        if not self._config.sparse_as_dense:
            self._replan([at for at in self.order if at not in sparse])
        return dense

    def resize(self, cap_bytes: int | None) -> int:
        """Cut the same memory into other buckets, of at most ``cap_bytes``; return how many. Collective.

        Also where the size is as before, for what has changed in how the engine exchanges them.
        """
        self._config = replace(self._config, cap_bytes=cap_bytes)
        self._replan(self.order)
        return self.count

    def _replan(self, order: Sequence[int]) -> None:
        """Have other buckets from the next step on."""
        if self._captured:
            raise RuntimeError(
                "The buckets of gradients must change, and a captured CUDA graph writes into those of now. "
                "Capture the graph after the first steps, without autotuning."
            )
        self._move_to_plan(order)
        if self._sequence is not None:
            self._sequence = self._new_sequence()
        self._begin()

    def detach(self) -> None:
        """Move the gradients into memory of this rank's own, before the engine's memory goes."""
        if self._sequence is not None:
            self._sequence.abandon()
            self._sequence = None
        super().detach()
        self._nodes = []


def _before(
    buckets: Callable[[], GradientBuckets | None], at: int
) -> Callable[[tuple[Any, ...]], tuple[Any, ...] | None]:
    """Return a hook that does not keep the buckets alive: the collector cannot look into autograd's nodes."""

    def before(inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        alive = buckets()
        return None if alive is None else alive._accumulating(at, inputs)

    return before

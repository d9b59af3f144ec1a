"""Gradients in buckets, each part of which has an owner; the parameters' memory is divided alike.

Every rank has its own copy of the parameters, laid out as their gradients are, in memory into which the
owners of its parts write: what a script does to its parameters is done to this rank's alone.
Of a bucket an owner gets the gradients of its part, and gives the parameters (`BucketParts`). In memory that
the ranks of one host share, owners read gradients and write parameters where they lie; so they do on several
hosts, with an exchange between these. Anywhere else all are exchanged: a reduce-scatter, and an allgather.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch

from ringleader.adapters.submit_operation import work_and_request
from ringleader.engine.exceptions import NoteMismatchError
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import row_counts, starts_of
from ringleader.engine.transports.transport import Region
from ringleader.torch.engine_operations import gather
from ringleader.torch.gradient_config import GradientConfig, Named
from ringleader.torch.optimizer.bucket_memory import GradientBucket
from ringleader.torch.optimizer.gradient_buckets import GradientBuckets
from ringleader.torch.optimizer.gradient_place import MemoryPlace

ROW = 32
"""Elements to which the ends of parts are rounded; every bucket is a multiple of it long."""


def part_of(count: int, *, rank: int, size: int) -> tuple[int, int]:
    """Return the elements of ``count`` that a rank owns."""
    edges = starts_of(row_counts(count // ROW, size))
    return edges[rank] * ROW, edges[rank + 1] * ROW


class BucketParts:
    """A bucket's gradients and parameters, divided in the best way that its memory allows.

    What is done here is done by all ranks.
    """

    def __init__(self, engine: Engine, bucket: GradientBucket, parameters: Region, name: str) -> None:
        """Take memory that is laid out alike on all ranks."""
        self._engine, self._bucket, self._name = engine, bucket, name
        self.span = part_of(bucket.region.count, rank=engine.ranks.rank, size=engine.ranks.size)
        """The elements that this rank owns."""
        self.gradients: torch.Tensor = bucket.values
        """Gradients of the bucket, 1-D."""
        self.parameters: torch.Tensor = parameters.mine
        """Parameters of the bucket, 1-D."""
        gradients = engine.divide(bucket.region, *self.span)
        divided = None if gradients is None else engine.divide(parameters, *self.span)
        self._divided = None if gradients is None or divided is None else (gradients, divided)
        self.in_window = self._divided is not None
        """Whether ranks write into each other's memory, so that they must meet before and after `publish`."""
        memory, signature = bucket.region.mine, bucket.work.signature
        if self._divided is None:
            shape = (memory.numel() // ROW, ROW)
            # The factor before the reduction was applied when the gradients were laid out.
            signature = replace(signature, kind="reducescatter", shape=shape, prescale=1.0)
            works = work_and_request(signature, f"{name}.parts", memory.view(-1, ROW))
        else:
            signature = replace(signature, kind="gradient_parts")
            works = work_and_request(signature, f"{name}.parts", self._divided[0])
        self._work, self._requesting = works

    def reduce(self, *, requesting: bool) -> None:
        """Have the reduced gradients in this rank's part; what is in the other parts is undefined.

        In memory that ranks share they do not wait for each other afterwards.
        """
        work = self._requesting if requesting else self._work
        self._engine.run(work)
        if self._divided is None:
            start, stop = self.span
            self._bucket.region.mine[start:stop].copy_(work.out.view(-1))
            work.out = None

    def spread_gradients(self) -> None:
        """Have the reduced gradients everywhere, after `reduce`."""
        self._spread(0, self._bucket.region.mine, "gradients")

    def publish(self) -> None:
        """Have everybody's parts of the parameters everywhere."""
        self._spread(1, self.parameters, "parameters")

    def _spread(self, which: int, memory: torch.Tensor, what: str) -> None:
        region, name = self._divided and self._divided[which], f"{self._name}.{what}"
        if region is not None and region.publish is not None:
            region.publish()
        elif region is not None:
            self._engine.publish_parts(region, name)
        else:
            start, stop = self.span
            memory.copy_(gather(self._engine, memory[start:stop].view(-1, ROW), name).view(-1))


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


class ShardedGradients(GradientBuckets):
    """See `GradientBuckets`; here an exchange may also leave the result with the owners alone."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig) -> None:
        """Move gradients and parameters in. Collective: all ranks bring the same parameters."""
        super().__init__(engine, parameters, config)
        check_no_overlap(parameters)
        self.parts: list[BucketParts] = []
        """The buckets, divided."""
        self._homes: list[MemoryPlace | None] = [None] * len(parameters)
        """For each parameter the place of its values."""
        for index, (planned, bucket) in enumerate(zip(self.plan.buckets, self.buckets, strict=True)):
            region = engine.register(planned.count, planned.dtype, planned.device)
            region.mine.zero_()
            self._regions[f"parameters of bucket {index}"] = region, region.mine
            self.parts.append(BucketParts(engine, bucket, region, f"{config.serial}.{index}"))
            for span in planned.spans:
                flat = region.mine[span.offset : span.offset + span.count]
                self._homes[span.parameter] = MemoryPlace(self._parameters[span.parameter], flat)
        self._settle_parameters()
        self._meets = any(part.in_window for part in self.parts)
        self._to_owners = False
        self._left_over = [False] * len(self._parameters)
        """Whether a gradient is one of a step in which only the owners got the result."""

    def _settle_parameters(self) -> bool:
        """Move parameters in that lie elsewhere: a script may have put other data in their place.

        Returns whether all are here; those of another type or layout stay where they are.
        """
        all_here = True
        for parameter, home in zip(self._parameters, self._homes, strict=True):
            if home is None or home.holds(parameter):
                continue
            if not (home.fits(parameter) and home.is_laid_out_as(parameter)):
                all_here = False
                continue
            with torch.no_grad():
                home.view.copy_(parameter)
            parameter.data = home.alias()
        return all_here

    def exchange_parts(self) -> bool:
        """Reduce all gradients, each for its owner; else as `exchange`.

        Where it returns True, `resume` leaves the reduced gradients on all ranks.
        """
        if not self._settle_parameters():  # now: after the exchange, owners may write into them
            self.restart = self._wants_agreement = True
        self._to_owners, asked = True, False
        try:
            asked = self.exchange()
        finally:
            self._to_owners = asked
        return asked

    def _carry_out(self) -> bool:
        if not self._to_owners:
            return super()._carry_out()
        # The last bucket carries the request and may be declined; it need not have the highest number.
        for index in sorted(range(len(self.parts)), key=self._last.__eq__):
            self._lay_out(index)
            try:
                self.parts[index].reduce(requesting=self._wants_agreement and index == self._last)
            except NoteMismatchError:
                return False
        return True

    def resume(self) -> None:
        """Exchange what was declined; afterwards the reduced gradients are on all ranks."""
        if not self._to_owners:
            super().resume()
            return
        self._to_owners = False
        if self._declined:
            self.parts[self._last].reduce(requesting=False)
        self._declined = False
        for part in self.parts:
            part.spread_gradients()
        self._meet("spread")
        self._conclude()

    def begin_step(self) -> None:
        """Have everything where it belongs after a script has had its hands on it, and all ranks here."""
        for at in range(len(self._parameters)):
            self._settle(at)
        self._elsewhere.clear()
        if self.left_out or not self._settle_parameters():
            raise ValueError(
                "shard=True: parameters or gradients were converted between optimizer.synchronize() and "
                "optimizer.step(): convert a model before backward, or after optimizer.step()"
            )
        self._meet("begin")

    def finish_step(self, *, left_over: bool) -> None:
        """Have everybody's new parameters here. ``left_over``: only the owners had the reduced gradients."""
        for part in self.parts:
            part.publish()
        self._meet("end")
        for parameter in self._parameters:  # tells autograd that the values have changed
            torch.autograd.graph.increment_version(parameter)
        self._left_over = [left_over] * len(self._parameters)

    def forget_gradients(self) -> None:
        """Note that the script has set all gradients to zero or to None."""
        self._left_over = [False] * len(self._parameters)

    def _meet(self, when: str) -> None:
        if self._meets:
            self._engine.meet_for_parts(f"{self._config.serial}.{when}")

    def _accumulating(self, at: int, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        left_over, self._left_over[at] = self._left_over[at], False
        grad = self._parameters[at].grad
        if left_over and grad is not None and bool(grad.any()):
            raise RuntimeError(
                "backward adds to gradients of the last step, of which shard=True has reduced only this "
                "rank's part: call optimizer.zero_grad() before backward, or optimizer.synchronize() before "
                "optimizer.step() to have the reduced gradients on all ranks"
            )
        return super()._accumulating(at, inputs)

    def detach(self) -> None:
        """Move gradients and parameters into memory of this rank's own, before the engine's memory goes."""
        for parameter, home in zip(self._parameters, self._homes, strict=True):
            if home is not None and home.holds(parameter):
                parameter.data = home.view.clone()
        self.parts, self._homes = [], [None] * len(self._homes)
        super().detach()

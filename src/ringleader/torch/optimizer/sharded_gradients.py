"""Gradients in buckets, each part of which has an owner; the parameters' memory is divided alike."""

from __future__ import annotations

from typing import Any

import torch

from ringleader.collectives.engine import Engine
from ringleader.collectives.exceptions import NoteMismatchError
from ringleader.torch.optimizer.gradient_buckets import GradientBuckets
from ringleader.torch.optimizer.gradient_config import GradientConfig, Named
from ringleader.torch.optimizer.sharded_memory import ParameterMemory
from ringleader.torch.optimizer.sharded_parts import BucketParts, divide_bucket


class ShardedGradients(GradientBuckets):
    """See `GradientBuckets`; here an exchange may also leave the result with the owners alone."""

    def __init__(self, engine: Engine, parameters: Named, config: GradientConfig) -> None:
        """Move gradients and parameters in. Collective: all ranks bring the same parameters."""
        super().__init__(engine, parameters, config)
        self.plan = self._memory.plan
        """Where each parameter lies, and its gradient."""
        self.parameters = ParameterMemory(engine, parameters, self.plan)
        """The memory of the parameters."""
        self.parts: list[BucketParts] = [
            divide_bucket(engine, bucket, region, f"{config.serial}.{index}")
            for index, (bucket, region) in enumerate(
                zip(self._memory.buckets, self.parameters.regions, strict=True)
            )
        ]
        """The buckets, divided."""
        self._meets = any(part.in_window for part in self.parts)
        self._to_owners = False
        self._left_over = [False] * len(self._parameters)
        """Whether a gradient is one of a step in which only the owners got the result."""

    def exchange_parts(self) -> bool:
        """Reduce all gradients, each for its owner; else as `exchange`.

        Where it returns True, `resume` leaves the reduced gradients on all ranks.
        """
        if not self.parameters.settle():  # now: after the exchange, owners may write into them
            self.restart = self._wants_agreement = True
        self._to_owners, asked = True, False
        try:
            asked = self.exchange()
        finally:
            self._to_owners = asked
        return asked

    def _carry_out(self) -> list[int]:
        if not self._to_owners:
            return super()._carry_out()
        failed = []
        for index, (bucket, part) in enumerate(zip(self._memory.buckets, self.parts, strict=True)):
            self._load(bucket)
            try:
                part.reduce(requesting=self._wants_agreement)
            except NoteMismatchError:
                failed.append(index)
        return failed

    def resume(self) -> None:
        """Exchange what was declined; afterwards the reduced gradients are on all ranks."""
        if not self._to_owners:
            super().resume()
            return
        self._to_owners = False
        for index in self._failed:
            self.parts[index].reduce(requesting=False)
        self._failed = []
        for part in self.parts:
            part.spread_gradients()
        self._meet("spread")
        self._conclude()

    def begin_step(self) -> None:
        """Have everything where it belongs after a script has had its hands on it, and all ranks here."""
        for at in range(len(self._parameters)):
            self._settle(at)
        self._elsewhere.clear()
        if self.left_out or not self.parameters.settle():
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
        self.parameters.changed()
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
        super().detach()
        self.parts = []
        self.parameters.detach()


def shard_tensor(memory: torch.Tensor, gradients: torch.Tensor, start: int, stop: int) -> torch.Tensor:
    """Return some elements of a bucket as a parameter for an optimizer, with their gradients."""
    shard = memory[start:stop].detach()
    shard.grad = gradients[start:stop]
    return shard

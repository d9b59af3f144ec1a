"""The optimizer that makes the step of this rank's part: of the wrapped class, over 1-D tensors.

Elements go into one tensor, a shard, where they lie side by side, belong to one group of the optimizer and
have the same counts: a parameter that was thawed later has made fewer steps.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any

import torch

from ringleader.torch.bucket_plan import BucketPlan
from ringleader.torch.optimizer.sharded_state import (
    State,
    StatePiece,
    common_values,
    is_elementwise,
    is_per_element,
    laid_out,
)

if TYPE_CHECKING:
    from ringleader.torch.optimizer.sharded_gradients import ShardedGradients

CACHED_ELEMENTS = 256 << 10
"""Where the step is made tensor by tensor, on the CPU, tensors are this long: what it reads and writes over
and over stays in the cache."""
_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
_OF_THE_SCALER = ("grad_scale", "found_inf")


@dataclass(frozen=True, kw_only=True)
class ShardSpan:
    """Elements of one parameter in a shard."""

    parameter: int
    """The parameter, as the plan numbers it."""
    start: int
    """First element of the parameter."""
    stop: int
    """One past the last element of the parameter."""
    offset: int
    """Where they begin in the shard."""


@dataclass(frozen=True, kw_only=True)
class Shard:
    """A tensor for the wrapped optimizer."""

    bucket: int
    """The bucket that it is in."""
    start: int
    """First element in the bucket."""
    stop: int
    """One past the last element in the bucket."""
    group: int
    """The optimizer's group."""
    spans: tuple[ShardSpan, ...]
    """What it holds, gaps left out."""


def cut_shards(
    plan: BucketPlan,
    *,
    owned: Sequence[tuple[int, int]],
    kinds: Sequence[tuple[int, Hashable]],
    longest: Sequence[int | None],
) -> list[Shard]:
    """Cut the elements that a rank owns.

    ``owned`` has a span of elements for each bucket, ``kinds`` for each parameter its group and what else
    must be equal within a shard, and ``longest`` for each group the most elements of a shard (None: no
    limit).
    """
    shards = []
    for index, (bucket, (low, high)) in enumerate(zip(plan.buckets, owned, strict=True)):
        bounds = [(one, max(low, one.offset), min(high, one.offset + one.count)) for one in bucket.spans]
        inside = [(one, first, last) for one, first, last in bounds if first < last]
        for (group, _more), found in groupby(inside, key=lambda one: kinds[one[0].parameter]):
            run = list(found)  # elements of one kind that lie side by side
            begin, end = run[0][1], run[-1][2]
            step = longest[group] or end - begin
            for start in range(begin, end, step):
                stop = min(start + step, end)
                spans = tuple(
                    ShardSpan(
                        parameter=one.parameter,
                        start=max(first, start) - one.offset,
                        stop=min(last, stop) - one.offset,
                        offset=max(first, start) - start,
                    )
                    for one, first, last in run
                    if max(first, start) < min(last, stop)
                )
                if spans:
                    shards.append(Shard(bucket=index, start=start, stop=stop, group=group, spans=spans))
    return shards


class InnerOptimizer:
    """The elements that this rank owns, and their state."""

    def __init__(
        self,
        wrapped: Any,
        attributes: Mapping[str, Any],
        exchanger: ShardedGradients,
        *,
        numbers: Sequence[int],
        states: Mapping[int, State],
    ) -> None:
        """Cut the part of this rank, and fill in its state.

        ``wrapped`` is the optimizer with all groups, and ``attributes`` what it had before it was wrapped.
        ``numbers`` are those of its parameters that the exchanger has, and ``states`` their whole states.
        """
        groups, base = wrapped.param_groups, wrapped._base
        parameters = [parameter for group in groups for parameter in group["params"]]
        self._numbers = numbers
        self._strides = {number: parameters[number].stride() for number in numbers}
        group_of = [at for at, group in enumerate(groups) for _p in group["params"]]
        kinds = [
            (group_of[number], common_values(states.get(number, {}), parameters[number]))
            for number in numbers
        ]
        self._shards = cut_shards(
            exchanger.plan,
            owned=[part.span for part in exchanger.parts],
            kinds=kinds,
            longest=[_longest(group, exchanger) for group in groups],
        )
        self._tensors = []
        for shard in self._shards:
            part, place = exchanger.parts[shard.bucket], slice(shard.start, shard.stop)
            tensor = part.parameters[place].detach()
            tensor.grad = part.gradients[place]
            self._tensors.append(tensor)
        self._optimizer: Any = base.__new__(base)
        self._optimizer.__dict__.update(attributes)
        for name in _HOOKS:
            self._optimizer.__dict__[name] = OrderedDict()
        self._groups: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """Groups of the wrapped optimizer of which this rank owns something, and their counterparts."""
        for at, group in enumerate(groups):
            own = [t for t, shard in zip(self._tensors, self._shards, strict=True) if shard.group == at]
            if own:
                self._groups.append((group, {**group, "params": own}))
        self._optimizer.param_groups = [own for _group, own in self._groups]
        self._optimizer.state = defaultdict(dict)
        for shard, tensor in zip(self._shards, self._tensors, strict=True):
            state = self._cut_state(shard, states, parameters)
            if state:
                self._optimizer.state[tensor] = state
        hooked = base.step
        self._step: Any = (
            getattr(hooked, "__wrapped__", hooked) if getattr(hooked, "hooked", False) else hooked
        )
        self._checked = False

    def _cut_state(
        self, shard: Shard, states: Mapping[int, State], parameters: Sequence[torch.Tensor]
    ) -> dict[str, Any]:
        """Return the state of a shard; gaps between parameters have zeros."""
        first = self._numbers[shard.spans[0].parameter]
        result: dict[str, Any] = {}
        for key, value in states.get(first, {}).items():
            if not is_per_element(key, value, parameters[first]):
                result[key] = value.clone() if isinstance(value, torch.Tensor) else value
                continue
            result[key] = torch.zeros(
                shard.stop - shard.start, dtype=value.dtype, device=parameters[first].device
            )
            for span in shard.spans:
                number = self._numbers[span.parameter]
                flat = laid_out(states[number][key], parameters[number])
                result[key][span.offset : span.offset + span.stop - span.start] = flat[span.start : span.stop]
        return result

    def step(self, wrapped: Any) -> None:
        """Make the step, with the options that the wrapped optimizer has now."""
        for group, own in self._groups:
            own.update((key, value) for key, value in group.items() if key != "params")
        inner = self._optimizer
        for name in _OF_THE_SCALER:
            if name in wrapped.__dict__:
                inner.__dict__[name] = wrapped.__dict__[name]
        self._step(inner)
        for name in _OF_THE_SCALER:
            inner.__dict__.pop(name, None)
        for group, own in self._groups:
            group.update((key, value) for key, value in own.items() if key != "params")
        if not self._checked:
            self._check_state()

    def _check_state(self) -> None:
        """See that what the optimizer keeps can be cut into pieces and put together again."""
        self._checked = True
        for tensor, state in self._optimizer.state.items():
            for key, value in state.items():
                if isinstance(value, torch.Tensor) and value.numel() != 1 and value.shape != tensor.shape:
                    raise ValueError(
                        f"shard=True: {type(self._optimizer).__name__} keeps {key} of shape "
                        f"{list(value.shape)} for {tensor.numel()} elements, so it does not treat every "
                        "element by itself. Leave shard=True out."
                    )

    def state_bytes(self) -> int:
        """Return the size of this rank's part of the state."""
        values = [value for state in self._optimizer.state.values() for value in state.values()]
        return sum(value.nbytes for value in values if isinstance(value, torch.Tensor))

    def pieces(self) -> list[StatePiece]:
        """Return the state of this rank's part."""
        found = []
        for shard, tensor in zip(self._shards, self._tensors, strict=True):
            state = self._optimizer.state.get(tensor)
            if not state:
                continue
            for span in shard.spans:
                place = slice(span.offset, span.offset + span.stop - span.start)
                values = {
                    key: value[place] if is_elementwise(value, tuple(tensor.shape)) else value
                    for key, value in state.items()
                }
                found.append(
                    StatePiece(
                        parameter=self._numbers[span.parameter],
                        strides=self._strides[self._numbers[span.parameter]],
                        start=span.start,
                        stop=span.stop,
                        values=values,
                    )
                )
        return found


def _longest(group: Mapping[str, Any], exchanger: ShardedGradients) -> int | None:
    """Return the most elements of a tensor of a group, None for no limit."""
    by_tensor = not group.get("foreach") and not group.get("fused")
    on_cpu = all(part.parameters.is_cpu for part in exchanger.parts)
    return CACHED_ELEMENTS if by_tensor and on_cpu else None

"""How long each layer's backward pass takes on one rank, from when its gradients are ready."""

from __future__ import annotations

from typing import Any

from torch import nn

from ringleader.bench.training.step_clock import StepClock, clock_of
from ringleader.bench.training.step_split import layer_order
from ringleader.bench.training.training_arms import TrainingArm
from ringleader.measurements.training import LayerTime


class GradientMoments:
    """The moments at which the gradients of one backward pass were ready."""

    def __init__(self, model: nn.Module, clock: StepClock) -> None:
        """Watch all parameters. Hooks on them work whatever layers do in place; hooks on layers do not."""
        self._clock = clock
        self.moments: list[tuple[str, Any]] = []
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._noting(name))  # type: ignore[no-untyped-call]
            for name, parameter in model.named_parameters()
        ]

    def _noting(self, name: str) -> Any:
        return lambda _parameter: self.moments.append((name, self._clock.mark()))

    def remove(self) -> None:
        """Watch no more."""
        for hook in self._hooks:
            hook.remove()


def layer_times(arm: TrainingArm, steps: int) -> tuple[LayerTime, ...]:
    """Return the layers with parameters in the order of forward; medians over so many steps of an arm.

    The rank must train alone, uncoupled. Bytes are those of float32 gradients.
    """
    clock = clock_of(arm.device)
    watched = GradientMoments(arm.model, clock)
    ready = []
    for _ in range(steps):
        watched.moments = []
        arm.run(1)
        ready.append([(name, clock.seconds(arm.backward_began, moment)) for name, moment in watched.moments])
    watched.remove()
    sizes: dict[str, int] = {}
    for name, parameter in arm.model.named_parameters():
        layer = name.rpartition(".")[0] or name
        sizes[layer] = sizes.get(layer, 0) + parameter.numel()
    return tuple(
        LayerTime(name=layer, parameters=sizes[layer], bytes=4 * sizes[layer], backward_seconds=seconds)
        for layer, seconds in layer_order(ready)
    )

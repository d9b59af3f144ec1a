"""The variants on one rank, each with its own model and optimizer, and what they take: steps and layers.

A variant is one way to couple the ranks; options and stored runs call it an arm. `step_split` says where a
step goes.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ringleader.torch as hvd
from ringleader.bench.training.batches import Batches
from ringleader.bench.training.models import build, loss_of
from ringleader.bench.training.step_split import RankTimes, layer_of, layer_order
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.measurements.training import DDP_GLOO, DDP_NCCL, IN_STEP, RINGLEADER, SHARDED, LayerTime

RATES = {"sgd": 0.01, "momentum": 0.01, "adam": 0.001, "adamw": 0.001}
"""Learning rates: small ones, for random labels."""


class StepClock:
    """Moments of a training step: now, or events of a GPU's stream, where kernels end later.

    Nothing is synchronized within a step.
    """

    def __init__(self, device: torch.device) -> None:
        """Take moments of the host, or of the current stream of a GPU."""
        self._gpu = device if device.type == "cuda" else None

    def mark(self) -> Any:
        """Take this moment."""
        if self._gpu is None:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._gpu))
        return event

    def settle(self) -> None:
        """Wait until every moment has passed."""
        if self._gpu is not None:
            torch.cuda.synchronize(self._gpu)

    def seconds(self, first: Any, second: Any) -> float:
        """Return the time from one moment to a later one, once both have passed."""
        if self._gpu is None:
            return float(second - first)
        return float(first.elapsed_time(second)) / 1e3


class GradientMoments:
    """The moments at which gradients of a backward pass were ready."""

    def __init__(self, model: nn.Module, clock: StepClock) -> None:
        """Watch all parameters. Hooks on them work whatever layers do in place; hooks on layers do not."""
        self._clock, self._parameters = clock, dict(model.named_parameters())
        self.moments: list[tuple[str, Any]] = []
        self._hooks: list[Any] = []
        self.watch(*self._parameters)

    def watch(self, *names: str) -> None:
        """Watch just these parameters from now on."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = [
            self._parameters[name].register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _parameter, name=name: self.moments.append((name, self._clock.mark()))
            )
            for name in names
        ]

    def take(self) -> list[tuple[str, Any]]:
        """Return (name, moment) of the backward pass that is over, in their order."""
        taken, self.moments = self.moments, []
        return taken


class TrainedVariant:
    """One model that is trained; ``couple`` is called between backward and the optimizer's step."""

    def __init__(
        self, name: str, plan: TrainingPlan, batches: Batches, device: torch.device, group: Any = None
    ) -> None:
        """Build the model; ``group``: of torch.distributed, for DDP. Collective for coupled variants."""
        self.name, self._batches, self._device = name, batches, device
        self._clock = StepClock(device)
        self.model = build(plan).to(device)
        self._optimizer: Any = new_optimizer(plan.optimizer, self.model)
        self._forward: Callable[[torch.Tensor], torch.Tensor] = self.model
        self._couple: Callable[[], None] | None = None
        self._own_step: Callable[[], Any] = contextlib.nullcontext
        self._dtype = None if plan.precision == "float32" else getattr(torch, plan.precision)
        self._scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "float16")
        self._gradients: GradientMoments | None = None
        """Of DDP, whose own wait follows the last gradient within backward."""
        self._engine_tells = False
        self._steps = 0
        self._backward_began: Any = None
        if name in (RINGLEADER, SHARDED):
            more: Any = {"shard": True} if name == SHARDED else {}
            self._optimizer = hvd.DistributedOptimizer(
                self._optimizer, named_parameters=self.model.named_parameters(), **more
            )
            self._couple, self._own_step = self._optimizer.synchronize, self._optimizer.skip_synchronize
            self._engine_tells = device.type == "cpu"
        elif name in (DDP_GLOO, DDP_NCCL):
            self._forward = _data_parallel(self.model, group)
            self._gradients = GradientMoments(self.model, self._clock)
        elif name == IN_STEP:
            self._couple = self._barrier

    def _barrier(self) -> None:
        """Synchronize with the other ranks, once what this one computes is done."""
        self._clock.settle()
        hvd.barrier()

    def run(self, steps: int) -> RankTimes:
        """Make some steps; return what they took on this rank."""
        moments, told, losses = [], [], []
        for _ in range(steps):
            before = PROCESS.get().engine.times.waiting_seconds
            marks, loss = self._step()
            moments.append(marks)
            told.append(PROCESS.get().engine.times.waiting_seconds - before)
            losses.append(loss)
        end = self._clock.mark()
        self._clock.settle()
        between = self._clock.seconds
        parts = [[between(a, b) for a, b in itertools.pairwise(marks)] for marks in moments]
        begins = [marks[0] for marks in moments]
        names = ("input", "forward", "backward", "exposed", "optimizer")
        taken: dict[str, Any] = dict(zip(names, zip(*parts, strict=True), strict=True))
        return RankTimes(
            elapsed=between(begins[0], end),
            told=tuple(told) if self._engine_tells else (),
            totals=tuple(between(a, b) for a, b in zip(begins, [*begins[1:], end], strict=True)),
            losses=tuple(float(loss) for loss in losses),
            **taken,
        )

    def _step(self) -> tuple[tuple[Any, ...], torch.Tensor]:
        """Make one step; return the six moments that bound its five parts, and the loss."""
        mark = self._clock.mark
        begin = mark()
        inputs, targets = self._batches.of(self._steps)
        self._steps += 1
        fed = mark()
        self._optimizer.zero_grad()
        with torch.autocast(self._device.type, dtype=self._dtype, enabled=self._dtype is not None):
            loss = loss_of(self._forward(inputs), targets)
        forward = self._backward_began = mark()
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        backward = mark() if self._gradients is None else self._last_gradient(self._gradients)
        if self._couple is not None:
            self._couple()
        exchanges = self._couple is not None or self._gradients is not None
        coupled = mark() if exchanges else backward
        with self._own_step():
            self._scaler.step(self._optimizer)
        self._scaler.update()
        return (begin, fed, forward, backward, coupled, mark()), loss.detach()

    def _last_gradient(self, gradients: GradientMoments) -> Any:
        """Return when backward had computed its last gradient; from then on only that one is watched."""
        taken = gradients.take()
        if not taken:
            return self._clock.mark()
        if len(taken) > 1:
            gradients.watch(taken[-1][0])
        return taken[-1][1]

    def layer_times(self, steps: int) -> tuple[LayerTime, ...]:
        """Return the layers with parameters in the order of forward; medians over ``steps`` further ones.

        The rank must train alone, uncoupled. Bytes are those of float32 gradients.
        """
        watched, ready = GradientMoments(self.model, self._clock), []
        for _ in range(steps):
            self.run(1)
            began = self._backward_began
            ready.append([(name, self._clock.seconds(began, moment)) for name, moment in watched.take()])
        watched.watch()
        sizes: dict[str, int] = {}
        for name, parameter in self.model.named_parameters():
            sizes[layer_of(name)] = sizes.get(layer_of(name), 0) + parameter.numel()
        return tuple(
            LayerTime(name=layer, parameters=sizes[layer], bytes=4 * sizes[layer], backward_seconds=seconds)
            for layer, seconds in layer_order(ready)
        )

    def digest(self) -> str:
        """Return a digest of the weights."""
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            plain = parameter.detach().cpu().contiguous().flatten().view(torch.uint8)
            found.update(plain.numpy().data)
        return found.hexdigest()[:16]


def new_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of torch's by its name in ``--optimizer``."""
    parameters, rate = model.parameters(), RATES[name]
    if name in ("adam", "adamw"):
        return (torch.optim.Adam if name == "adam" else torch.optim.AdamW)(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0)


def _data_parallel(model: nn.Module, group: Any) -> nn.Module:
    """Return the model in DDP. Buffers stay each rank's own, as elsewhere: all variants exchange the same."""
    wrapper: Any = nn.parallel.DistributedDataParallel
    known = inspect.signature(wrapper.__init__).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    wrapped: nn.Module = wrapper(model, process_group=group, **{option: False})
    return wrapped


def missing_variants(device: torch.device) -> dict[str, str]:
    """Return variants that cannot run on this rank, and why."""
    if not torch.distributed.is_available():
        return dict.fromkeys((DDP_GLOO, DDP_NCCL), "this PyTorch is built without torch.distributed")
    found: dict[str, str] = {}
    if not torch.distributed.is_gloo_available():
        found[DDP_GLOO] = "this PyTorch is built without Gloo"
    if device.type != "cuda":
        found[DDP_NCCL] = "NCCL needs a GPU for each rank"
    elif not torch.distributed.is_nccl_available():
        found[DDP_NCCL] = "this PyTorch is built without NCCL"
    return found

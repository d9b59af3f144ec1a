"""The arms on one rank: each has a model and an optimizer of its own, and one way to be coupled."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import ringleader.torch as hvd
from ringleader.bench.training.batches import Batches
from ringleader.bench.training.models import build, loss_of
from ringleader.bench.training.step_clock import StepClock, clock_of
from ringleader.bench.training.step_split import RankTimes
from ringleader.bench.training.training_plan import TrainingPlan
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.measurements.training import DDP_GLOO, DDP_NCCL, IN_STEP, RINGLEADER, SHARDED

RATES = {"sgd": 0.01, "momentum": 0.01, "adam": 0.001, "adamw": 0.001}
"""Learning rates: small ones, for random labels."""


def new_optimizer(name: str, model: nn.Module) -> torch.optim.Optimizer:
    """Return an optimizer of torch's by its name in ``--optimizer``."""
    parameters, rate = model.parameters(), RATES[name]
    if name == "adam":
        return torch.optim.Adam(parameters, lr=rate)
    if name == "adamw":
        return torch.optim.AdamW(parameters, lr=rate)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9 if name == "momentum" else 0.0)


def missing_arms(device: torch.device) -> dict[str, str]:
    """Return arms that cannot run on this rank, and why."""
    found: dict[str, str] = {}
    if not torch.distributed.is_available():
        return dict.fromkeys((DDP_GLOO, DDP_NCCL), "this PyTorch is built without torch.distributed")
    if not torch.distributed.is_gloo_available():
        found[DDP_GLOO] = "this PyTorch is built without Gloo"
    if device.type != "cuda":
        found[DDP_NCCL] = "NCCL needs a GPU for each rank"
    elif not torch.distributed.is_nccl_available():
        found[DDP_NCCL] = "this PyTorch is built without NCCL"
    return found


class TrainingArm:
    """One model that is trained; ``couple`` is called between backward and the optimizer's step."""

    def __init__(
        self, name: str, plan: TrainingPlan, batches: Batches, device: torch.device, group: Any = None
    ) -> None:
        """Build the model; ``group``: of torch.distributed, for DDP. Collective for coupled arms."""
        self.name, self._batches, self.device = name, batches, device
        self._clock: StepClock = clock_of(device)
        self.model = build(plan).to(device)
        self._optimizer = new_optimizer(plan.optimizer, self.model)
        self._forward: Callable[[torch.Tensor], torch.Tensor] = self.model
        self._couple: Callable[[], None] | None = None
        self._own_step: Callable[[], Any] = contextlib.nullcontext
        self._dtype = None if plan.precision == "float32" else getattr(torch, plan.precision)
        self._scaler = torch.amp.GradScaler(device.type, enabled=plan.precision == "float16")
        self._last_gradient: _LastGradient | None = None
        self._engine_tells = False
        self._steps = 0
        self.backward_began: Any = None
        """Moment of the last step; see `StepClock`."""
        if name in (RINGLEADER, SHARDED):
            self._wrap_optimizer(sharded=name == SHARDED)
        elif name in (DDP_GLOO, DDP_NCCL):
            self._forward = _data_parallel(self.model, group)
            self._last_gradient = _LastGradient(self.model, self._clock)
        elif name == IN_STEP:
            self._couple = self._meet

    def _wrap_optimizer(self, *, sharded: bool) -> None:
        more: Any = {"shard": True} if sharded else {}
        wrapped: Any = hvd.DistributedOptimizer(
            self._optimizer, named_parameters=self.model.named_parameters(), **more
        )
        self._optimizer = wrapped
        self._couple, self._own_step = wrapped.synchronize, wrapped.skip_synchronize
        self._engine_tells = self.device.type == "cpu"

    def _meet(self) -> None:
        """Meet the other ranks, once what this one computes is done."""
        self._clock.settle()
        hvd.barrier()

    def run(self, steps: int) -> RankTimes:
        """Make so many steps; return what they took on this rank."""
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
        taken = tuple(zip(*parts, strict=True))
        return RankTimes(
            elapsed=between(begins[0], end),
            input=taken[0],
            forward=taken[1],
            backward=taken[2],
            exposed=taken[3],
            optimizer=taken[4],
            told=tuple(told) if self._engine_tells else (),
            totals=tuple(between(a, b) for a, b in zip(begins, [*begins[1:], end], strict=True)),
            losses=tuple(float(loss) for loss in losses),
        )

    def _step(self) -> tuple[tuple[Any, ...], torch.Tensor]:
        """Make one step; return the six moments that bound its five parts, and the loss."""
        mark = self._clock.mark
        begin = mark()
        inputs, targets = self._batches.of(self._steps)
        self._steps += 1
        fed = mark()
        self._optimizer.zero_grad()
        with torch.autocast(self.device.type, dtype=self._dtype, enabled=self._dtype is not None):
            loss = loss_of(self._forward(inputs), targets)
        forward = self.backward_began = mark()
        self._scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        backward = mark() if self._last_gradient is None else self._last_gradient.take()
        if self._couple is not None:
            self._couple()
        exchanges = self._couple is not None or self._last_gradient is not None
        coupled = mark() if exchanges else backward
        with self._own_step():
            self._scaler.step(self._optimizer)
        self._scaler.update()
        return (begin, fed, forward, backward, coupled, mark()), loss.detach()

    def digest(self) -> str:
        """Return a digest of the weights."""
        found = hashlib.sha256()
        for parameter in self.model.parameters():
            plain = parameter.detach().cpu().contiguous().flatten().view(torch.uint8)
            found.update(plain.numpy().data)
        return found.hexdigest()[:16]


def _data_parallel(model: nn.Module, group: Any) -> nn.Module:
    """Return the model in DDP. Buffers stay each rank's own, as in the other arms: all exchange the same."""
    wrapper: Any = nn.parallel.DistributedDataParallel
    known = inspect.signature(wrapper.__init__).parameters
    option = "forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers"
    wrapped: nn.Module = wrapper(model, process_group=group, **{option: False})
    return wrapped


class _LastGradient:
    """The moment at which backward has computed its last gradient: DDP's own wait follows within backward."""

    def __init__(self, model: nn.Module, clock: StepClock) -> None:
        """Watch all parameters in the first backward, and from then on the one that came last."""
        self._clock, self._moment, self._last = clock, None, ""
        self._hooks = [
            parameter.register_post_accumulate_grad_hook(self._noting(name))  # type: ignore[no-untyped-call]
            for name, parameter in model.named_parameters()
        ]
        self._named = dict(model.named_parameters())

    def _noting(self, name: str) -> Callable[[torch.Tensor], None]:
        def note(_parameter: torch.Tensor) -> None:
            self._last, self._moment = name, self._clock.mark()

        return note

    def take(self) -> Any:
        """Return the moment in the backward pass that is over."""
        if len(self._hooks) > 1:
            for hook in self._hooks:
                hook.remove()
            last = self._named[self._last]
            self._hooks = [last.register_post_accumulate_grad_hook(self._noting(self._last))]  # type: ignore[no-untyped-call]
        return self._moment if self._moment is not None else self._clock.mark()

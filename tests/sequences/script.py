"""Carries out a sequence as a training script would: one code for ranks and for replicas (`worlds.py`).

After every step it records what can be compared: parameters, gradients, learning rates, kept gradients.
"""

import copy
import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from tests.sequences.generator import Operation, Sequence, equal_only
from tests.sequences.worlds import parameters_of
from torch import nn

CLIP = 0.5
EDIT = 0.5
SCALE = 8.0


class Net(nn.Module):
    def __init__(self, net: dict[str, Any]) -> None:
        super().__init__()
        self._net = net
        self.late_used = False
        features = 4
        if net["conv"]:
            self.conv = nn.Conv2d(2, 2, 3)
            features += 8
        if net["embedding"] != "none":
            self.embedding = nn.Embedding(6, 4, sparse=net["embedding"] == "sparse")
            features += 4
        self.body = nn.Linear(features, 4)
        if net["branch"] != "none":
            self.branch = nn.Linear(4, 4)
        self.late = nn.Linear(4, 4)
        self.head = nn.Linear(4, 6)
        if net["embedding"] == "tied":
            self.head.weight = self.embedding.weight

    def forward(self, batch: dict[str, torch.Tensor], branched: bool) -> torch.Tensor:
        dtype = self.head.bias.dtype
        parts = [batch["x"].to(dtype)]
        if self._net["conv"]:
            parts.append(torch.tanh(self.conv(batch["image"].to(dtype))).flatten(1))
        if self._net["embedding"] != "none":
            parts.append(self.embedding(batch["ids"]).sum(1))
        y = torch.tanh(self.body(torch.cat(parts, 1)))
        if branched:
            y = y + torch.tanh(self.branch(y))
        if self.late_used:
            y = y + torch.tanh(self.late(y))
        return self.head(y)


class Script:
    def __init__(self, sequence: Sequence, world: Any) -> None:
        self._sequence, self._world = sequence, world
        self._arguments = sequence["wrap"]
        self._shard = bool(self._arguments.get("shard"))
        self._at = 0
        self._draws = 0
        self._kept: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}
        self._flat: torch.Tensor | None = None
        self._in_flat: set[int] = set()
        self._ema: Net | None = None
        self._saved: Any = None
        self._schedulers: list[tuple[str, Any]] = []
        self._group: dict[str, Any] | None = None
        self._held: list[Any] = []
        self._extra: list[float] = []
        self._scaler: Any = None
        self._model = Net(sequence["net"])
        self._fill()
        self._plains = self._plain_optimizers()
        self._optimizers: list[Any] = list(self._plains)
        for operation in sequence["start"]:
            self._do(operation)
        self._wrap()

    def run(self) -> list[dict[str, Any]]:
        return [self._step(at, step) for at, step in enumerate(self._sequence["steps"])]

    # made at the start

    @torch.no_grad()
    def _fill(self) -> None:
        """Give all ranks the same parameters; replicas are threads, so not from the global generator."""
        dice = torch.Generator().manual_seed(self._sequence["seed"])
        for p in self._model.parameters():
            p.copy_(torch.randn(p.shape, generator=dice) * 0.5)

    def _plain_optimizers(self) -> list[Any]:
        late = {id(p) for p in self._model.late.parameters()}
        named = [(name, p) for name, p in self._model.named_parameters() if id(p) not in late]
        everything = [p for _name, p in named]
        kind = self._sequence["optimizers"]
        if kind == "disjoint":
            parts = [
                [p for name, p in named if not name.startswith("head.")],
                [p for name, p in named if name.startswith("head.")],
            ]
            return [self._plain(part) for part in parts]
        return [self._plain(everything) for _ in range(2 if kind == "alternate" else 1)]

    def _plain(self, parameters: list[torch.Tensor]) -> Any:
        decay = 0.0 if self._sequence["net"]["embedding"] == "sparse" else 0.01
        share = 1 / self._world.size if self._arguments.get("op") == "Sum" else 1.0
        kind = self._sequence["optimizer"]
        if kind == "adamw":
            # With this epsilon a rounding error of a small gradient stays a small one.
            return torch.optim.AdamW(parameters, lr=0.02, eps=0.1, weight_decay=decay)
        momentum = 0.9 if kind == "momentum" else 0.0
        return torch.optim.SGD(parameters, lr=0.1 * share, momentum=momentum, weight_decay=decay)

    def _wrap(self) -> None:
        wrapped = []
        for plain in self._plains:
            parameters = parameters_of(plain)
            named = self._model.named_parameters() if self._arguments.get("named", True) else None
            groups = [parameters[:2], parameters[2:3]]
            wrapped.append(self._world.wrap(plain, named, self._arguments, [one for one in groups if one]))
        self._optimizers = wrapped

    # a step

    @property
    def _current(self) -> list[Any]:
        if self._sequence["optimizers"] == "alternate":
            return [self._optimizers[self._at % 2]]
        return self._optimizers

    def _step(self, at: int, step: dict[str, Any]) -> dict[str, Any]:
        self._at, self._draws, self._extra = at, 0, []
        for operation in step["before"]:
            self._do(operation)
        when, how = step["zero"]
        if step["update"] == ["closure"]:
            loss = self._world.step(self._optimizers[0], lambda: self._closure(how))
            self._extra.append(float(loss))
        else:
            if when == "first":
                self._zero(how)
            for where, kind in step["backward"]:
                self._backward(where, kind, scaled=step["update"][0])
            for operation in step["edits"]:
                self._edit(operation[0])
            self._update(step["update"])
        for operation in step["after"]:
            self._do(operation)
        if self._schedulers:
            for kind, scheduler in self._schedulers:
                scheduler.step(1.0) if kind == "plateau" else scheduler.step()
        record = self._record()
        if when == "last":
            self._zero(how)
        return record

    def _closure(self, how: str) -> torch.Tensor:
        self._zero("none" if how == "never" else how)
        self._draws = 0
        loss = self._loss()
        loss.backward()
        return loss.detach()

    def _zero(self, how: str) -> None:
        if self._flat is not None:
            self._flat.zero_()
            for p in self._model.parameters():
                if id(p) not in self._in_flat or not _shares(p.grad, self._flat):
                    p.grad = None
            return
        if how in ("none", "zeros"):
            for optimizer in self._current:
                optimizer.zero_grad(set_to_none=how == "none")
        elif how in ("model none", "model zeros"):
            self._model.zero_grad(set_to_none=how == "model none")
        elif how == "loop none":
            for p in self._model.parameters():
                p.grad = None

    def _batch(self) -> dict[str, torch.Tensor]:
        self._draws += 1
        seed = hash((self._sequence["seed"], self._world.rank, self._at, self._draws))
        dice = torch.Generator().manual_seed(seed % (1 << 62))
        return {
            "x": torch.randn(3, 4, generator=dice),
            "image": torch.randn(3, 2, 4, 4, generator=dice),
            "ids": torch.randint(6, (3, 2), generator=dice),
            "y": torch.randn(3, 6, generator=dice) + self._world.rank,
        }

    def _branched(self) -> bool:
        branch, rank = self._sequence["net"]["branch"], self._world.rank
        turns = (rank + self._at) % self._world.size == 0
        return {"none": False, "nobody": False, "all": True, "rank 0": rank == 0, "turns": turns}[branch]

    def _loss(self) -> torch.Tensor:
        batch = self._batch()
        got = self._model(batch, self._branched())
        return (got - batch["y"].to(got.dtype)).pow(2).mean()

    def _trained(self) -> list[torch.Tensor]:
        return [p for p in self._model.parameters() if p.requires_grad]

    def _backward(self, where: str, kind: str, scaled: str) -> None:
        with ExitStack() as stack:
            if where == "no_sync":
                for optimizer in self._current:
                    stack.enter_context(self._world.no_sync(optimizer))
            loss = self._loss()
            if scaled in ("scaler", "unscale"):
                loss = self._scale(loss, scaled)
            if kind == "two losses":
                loss.backward(retain_graph=True)
                (loss * 0.5).backward()
                return
            if kind == "autograd.grad":
                torch.autograd.grad(loss, self._trained(), retain_graph=True, allow_unused=True)
            if kind == "penalty":
                found = torch.autograd.grad(loss, self._trained(), create_graph=True, allow_unused=True)
                loss = loss + 0.01 * sum(one.pow(2).sum() for one in found if one is not None)
            loss.backward(create_graph=kind == "create graph")

    def _scale(self, loss: torch.Tensor, kind: str) -> torch.Tensor:
        if kind == "unscale" or loss.dtype is not torch.float32:
            return loss * SCALE
        if self._scaler is None:
            self._scaler = torch.amp.GradScaler("cpu", init_scale=SCALE, growth_interval=1)
        return self._scaler.scale(loss)

    def _grads(self) -> list[torch.Tensor]:
        """Return the parameters of this step's optimizers that have a gradient, without sparse embeddings."""
        everything = [p for optimizer in self._current for p in parameters_of(optimizer)]
        return [p for p in everything if p.grad is not None and p is not self._sparse]

    @property
    def _sparse(self) -> torch.Tensor | None:
        """The parameter with sparse gradients; on some steps they are dense, which no script relies on."""
        return self._model.embedding.weight if self._sequence["net"]["embedding"] == "sparse" else None

    def _edit(self, how: str, factor: float = EDIT) -> None:
        with torch.no_grad():
            if how == "clip norm":
                torch.nn.utils.clip_grad_norm_(self._grads(), CLIP)
            elif how == "clip value":
                torch.nn.utils.clip_grad_value_(self._grads(), 0.05)
            elif how == "metric":
                self._metric()
            elif how == "keep":
                self._keep("list")
            elif how == "drop" and self._grads():
                self._grads()[0].grad = None
            for p in self._grads():
                if how == "new":
                    p.grad = p.grad * factor
                elif how == "data":
                    p.grad.data = p.grad.data * factor
                elif how == "in place":
                    p.grad.mul_(factor)

    def _update(self, update: Operation) -> None:
        kind, world = update[0], self._world
        if kind in ("skip", "twice", "unscale", "scaler"):
            for optimizer in self._current:
                world.synchronize(optimizer)
        real = kind == "scaler" and self._scaler is not None and self._model.head.bias.dtype is torch.float32
        if kind in ("scaler", "unscale") and not real:
            for p in (p for o in self._current for p in parameters_of(o)):
                if p.grad is not None:
                    p.grad.data.div_(SCALE)
        if kind == "skip":
            self._edit(update[1])
        unscaled = 0
        for optimizer in self._current:
            if real and any(p.grad is not None for p in parameters_of(optimizer)):
                unscaled += 1
                self._scaler.unscale_(optimizer)
                with world.skipping(optimizer):
                    self._scaler.step(optimizer)
            elif kind in ("skip", "unscale", "scaler"):
                with world.skipping(optimizer):
                    optimizer.step()
            elif kind == "clip shard":
                self._extra.append(world.clip_and_step(optimizer, CLIP))
            else:
                world.step(optimizer)
        if unscaled:
            self._scaler.update()

    # operations outside of a step

    def _do(self, operation: Operation) -> None:
        name, *arguments = operation
        work: Callable[..., None] = getattr(self, "_" + name.replace(" ", "_"))
        work(*arguments)

    def _convert(self, kind: str) -> None:
        if kind == "half" and self._sequence["net"]["embedding"] == "sparse":
            return  # PyTorch cannot add its gradients
        if kind == "channels_last":
            self._model.to(memory_format=torch.channels_last)
            self._flat = None
            return
        getattr(self._model, kind)()
        self._flat = None
        if self._sequence["optimizer"] == "adamw":
            # AdamW's state must have the type of the gradients; loading gives it that.
            for optimizer in self._optimizers:
                optimizer.load_state_dict(optimizer.state_dict())
            self._refresh_group()

    def _share_memory(self) -> None:
        for p in self._model.parameters():
            if p is self._sparse:
                p.grad = None  # PyTorch cannot share it
        self._model.share_memory()

    def _replace_data(self) -> None:
        for p in self._model.parameters():
            p.data = p.data * 0.9

    def _replace_grad_data(self) -> None:
        for p in self._model.parameters():
            if p.grad is not None and p is not self._sparse:
                p.grad.data = p.grad.data * 0.9
        self._flat = None

    def _freeze(self, part: str, drop: bool) -> None:
        for p in self._part(part):
            p.requires_grad_(False)
            if drop:
                p.grad = None

    def _thaw(self, part: str) -> None:
        for p in self._part(part):
            p.requires_grad_(True)

    def _part(self, part: str) -> list[torch.Tensor]:
        module = getattr(self._model, part, None)
        if part == "late" and not self._model.late_used:
            return []
        return [] if module is None else list(module.parameters())

    def _add_group(self, where: str) -> None:
        chained = all(kind == "step" for kind, _scheduler in self._schedulers)
        if self._model.late_used or not chained:
            return
        self._model.late_used = True
        self._model.late.zero_grad()
        optimizers = self._plains if where == "plain" else self._optimizers
        which = optimizers if self._sequence["optimizers"] == "alternate" else optimizers[:1]
        for optimizer in which:
            group = optimizer.param_groups[0]
            more = {"initial_lr": group["initial_lr"]} if "initial_lr" in group else {}
            optimizer.add_param_group(
                {"params": list(self._model.late.parameters()), "lr": group["lr"]} | more
            )

    def _scheduler(self, kind: str) -> None:
        if len(self._schedulers) == 2:
            return
        optimizer, schedulers = self._optimizers[0], torch.optim.lr_scheduler
        made: dict[str, Callable[[], Any]] = {
            "step": lambda: schedulers.StepLR(optimizer, step_size=1, gamma=0.7),
            "lambda": lambda: schedulers.LambdaLR(optimizer, lambda at: 1 / (1 + at)),
            "cosine": lambda: schedulers.CosineAnnealingLR(optimizer, T_max=8),
            "onecycle": lambda: schedulers.OneCycleLR(
                optimizer, max_lr=0.1, total_steps=20, cycle_momentum=self._sequence["optimizer"] != "sgd"
            ),
            "plateau": lambda: schedulers.ReduceLROnPlateau(optimizer, factor=0.5, patience=0),
        }
        self._schedulers.append((kind, made[kind]()))

    def _lr(self, where: str) -> None:
        if where == "kept" and self._group is not None:
            self._group["lr"] *= 0.8
        elif where != "kept":
            optimizer = (self._plains if where == "plain" else self._optimizers)[0]
            for group in optimizer.param_groups:
                group["lr"] *= 0.8

    def _keep_group(self) -> None:
        self._group = self._optimizers[0].param_groups[0]

    def _refresh_group(self) -> None:
        """`load_state_dict` makes new groups, also in PyTorch."""
        if self._group is not None:
            self._keep_group()

    def _keep(self, kind: str) -> None:
        place = len(self._extra)
        known = {id(p): name for name, p in self._model.named_parameters()}
        for p in self._grads()[: 1 if kind == "one" else None]:
            grad = p.grad
            if kind == "view" and grad.is_contiguous():
                grad = grad.view(-1)[:3]
            self._kept[f"{known[id(p)]} of step {self._at}, {place}"] = grad, grad.detach().clone()

    def _flat_buffer(self) -> None:
        everything = [p for o in self._optimizers for p in parameters_of(o)]
        unique = list({id(p): p for p in everything if p is not self._sparse and p.requires_grad}.values())
        if not unique:
            return
        # NumPy's own memory, unless the type is another.
        memory = np.zeros(sum(p.numel() for p in unique), "float32")
        self._flat = torch.from_numpy(memory).to(unique[0].dtype)
        at = 0
        for p in unique:
            p.grad = self._flat[at : at + p.numel()].view_as(p)
            at += p.numel()
        self._in_flat = {id(p) for p in unique}

    def _deepcopy(self, old: str) -> None:
        if self._shard:
            return  # refused, as documented
        if old == "keep":
            self._held.append((self._model, self._optimizers, self._plains))
        self._model, self._optimizers, self._plains = copy.deepcopy(
            (self._model, self._optimizers, self._plains)
        )
        self._schedulers, self._flat, self._scaler = [], None, None
        self._refresh_group()

    def _save(self) -> None:
        states = [optimizer.state_dict() for optimizer in self._optimizers]
        self._saved = copy.deepcopy((self._model.state_dict(), states))

    def _load(self) -> None:
        if self._saved is None:
            return
        model, states = copy.deepcopy(self._saved)
        counts = [[len(group["params"]) for group in state["param_groups"]] for state in states]
        mine = [[len(group["params"]) for group in one.param_groups] for one in self._optimizers]
        if counts != mine:
            return
        self._model.load_state_dict(model)
        for optimizer, state in zip(self._optimizers, states, strict=True):
            optimizer.load_state_dict(state)
        self._refresh_group()

    def _rewrap(self, old: str) -> None:
        if old == "keep":
            self._held.append(self._optimizers)
        self._wrap()
        self._refresh_group()

    @torch.no_grad()
    def _mul(self) -> None:
        for p in self._model.parameters():
            p.mul_(0.95)

    @torch.no_grad()
    def _noise(self) -> None:
        dice = torch.Generator().manual_seed(self._at)
        for p in self._model.parameters():
            p.add_(torch.randn(p.shape, generator=dice).to(p.dtype) * 0.05)

    @torch.no_grad()
    def _average(self) -> None:
        if self._ema is None:
            self._ema = copy.deepcopy(self._model)
            return
        pairs = zip(self._ema.parameters(), self._model.parameters(), strict=True)
        for mine, new in pairs:
            mine.mul_(0.5).add_(new.to(mine.dtype), alpha=0.5)

    def _copy_model(self) -> None:
        copied = copy.deepcopy(self._model)
        batch = self._batch()
        copied(batch, False).float().pow(2).mean().backward()

    def _broadcast_parameters(self, what: str) -> None:
        self._world.broadcast_parameters(self._model, what)

    def _broadcast_optimizer(self) -> None:
        for optimizer in self._optimizers:
            self._world.broadcast_optimizer(optimizer)

    def _metric(self) -> None:
        mine = torch.tensor([float(self._world.rank + self._at)])
        self._extra.append(float(self._world.average(mine, f"metric.{len(self._extra)}")))

    def _reduce_gradients(self) -> None:
        if self._shard or "process_set" in self._arguments or equal_only(self._sequence):
            return
        for at, p in enumerate(self._model.parameters()):
            total = torch.zeros(()) if p.grad is None else p.grad.detach().to_dense().float().sum()
            self._extra.append(float(self._world.average(total, f"reduced.{at}")))

    def _passes(self, passes: int) -> None:
        for optimizer in self._optimizers:
            self._world.set_passes(optimizer, passes)

    def _hook(self, kind: str) -> None:
        p = self._model.body.weight
        if not p.requires_grad:
            return
        if kind == "tensor":
            p.register_hook(lambda grad: grad * 0.5)
        else:
            p.register_post_accumulate_grad_hook(_halve)

    def _local_step(self) -> None:
        """Make a step of this rank alone, and then start from rank 0's."""
        if self._shard or "process_set" in self._arguments or equal_only(self._sequence):
            return
        self._zero("loop none")
        self._backward("no_sync", "plain", "")
        for optimizer in self._current:
            with self._world.no_sync(optimizer):
                optimizer.step()
        self._world.broadcast_parameters(self._model, "state_dict")
        self._broadcast_optimizer()
        self._zero("loop none")

    def _drop(self) -> None:
        p = next(iter(self._grads()), None)
        if p is not None:
            p.grad = None

    @torch.no_grad()
    def _evaluate(self) -> None:
        self._model.eval()
        self._model(self._batch(), self._branched())
        self._model.train()

    # what is compared

    def _record(self) -> dict[str, Any]:
        parameters = [p.detach() for p in self._model.parameters()]
        if self._ema is not None:
            parameters += [p.detach() for p in self._ema.parameters()]
        # Without a gradient means zero, as for the exchange.
        dense = [
            torch.zeros_like(p) if p.grad is None else p.grad.detach().to_dense()
            for p in self._model.parameters()
        ]
        return {
            "parameters": [_values(one) for one in parameters],
            "digest": _digest(parameters),
            "gradients": [] if self._shard else [_values(one) for one in dense],
            "dtype": str(self._model.head.bias.dtype).removeprefix("torch."),
            "rates": [[group["lr"] for group in one.param_groups] for one in self._optimizers],
            "kept": {
                name: one.dtype == before.dtype and torch.equal(one, before)
                for name, (one, before) in self._kept.items()
            },
            "extra": self._extra,
        }


def _halve(parameter: torch.Tensor) -> None:
    parameter.grad.data.mul_(0.5)


def _values(tensor: torch.Tensor) -> list[float]:
    return tensor.double().contiguous().reshape(-1).tolist()


def _digest(tensors: list[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for one in tensors:
        flat = one.contiguous().reshape(-1)
        found.update(str(one.dtype).encode() + flat.view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _shares(one: torch.Tensor | None, other: torch.Tensor) -> bool:
    """Return whether two tensors have one storage; a graph of gradients has taken the buffer's place else."""
    return one is not None and one.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()

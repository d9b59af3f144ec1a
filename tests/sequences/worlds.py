"""The two worlds in which `script.py` runs: ranks of Ringleader, and replicas in plain PyTorch.

A *replica* stands for one rank: a thread with its own copy of the model and a plain optimizer. Before a step
the replicas average their gradients by hand, in place, as a plain script would. Replicas exchange
values at barriers, so the script of ranks and of replicas is the same code.
"""

import copy
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

MEET_SECONDS = 30.0
"""Replicas that wait longer for another one wait for one that failed."""


def parameters_of(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


class Ranks:
    """A rank of a job of Ringleader."""

    def __init__(self, hvd: Any, sets: dict[tuple[int, ...], Any]) -> None:
        """``sets`` keeps the process sets of this life of the engine."""
        self._hvd, self._sets = hvd, sets
        self.rank, self.size = hvd.rank(), hvd.size()

    def wrap(self, plain: Any, named: Any, arguments: dict[str, Any], groups: list[Any]) -> Any:
        """Return the distributed optimizer; ``groups`` is what "lists" stands for."""
        hvd = self._hvd
        words = {name: value for name, value in arguments.items() if name != "named"}
        if "compression" in words:
            made = {
                "topk": lambda: hvd.Compression.topk(0.5),
                "powersgd": lambda: hvd.Compression.powersgd(1),
            }
            name = words["compression"]
            words["compression"] = made[name]() if name in made else getattr(hvd.Compression, name)
        if "op" in words:
            words["op"] = getattr(hvd, words["op"])
        if words.get("groups") == "lists":
            words["groups"] = groups
        if "process_set" in words:
            words["process_set"] = self._process_set(words["process_set"])
        return hvd.DistributedOptimizer(plain, named_parameters=named, **words)

    def _process_set(self, members: list[int]) -> Any:
        if tuple(members) not in self._sets:
            self._sets[tuple(members)] = self._hvd.add_process_set(members)
        return self._sets[tuple(members)]

    def synchronize(self, optimizer: Any) -> None:
        optimizer.synchronize()

    def step(self, optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
        return optimizer.step() if closure is None else optimizer.step(closure)

    def skipping(self, optimizer: Any) -> AbstractContextManager[None]:
        return optimizer.skip_synchronize()

    def clip_and_step(self, optimizer: Any, norm: float) -> float:
        """Clip by the norm of the averages, and make the step; return the norm."""
        total = optimizer.clip_grad_norm_(norm)
        optimizer.step()
        return float(total)

    def no_sync(self, optimizer: Any) -> AbstractContextManager[None]:
        return optimizer.no_sync()

    def set_passes(self, optimizer: Any, passes: int) -> None:
        optimizer.set_backward_passes_per_step(passes)

    def broadcast_parameters(self, model: torch.nn.Module, what: str) -> None:
        source = model.state_dict() if what == "state_dict" else model.named_parameters()
        self._hvd.broadcast_parameters(source, root_rank=0)

    def broadcast_optimizer(self, optimizer: Any) -> None:
        self._hvd.broadcast_optimizer_state(optimizer, root_rank=0)

    def average(self, value: torch.Tensor, name: str) -> torch.Tensor:
        return self._hvd.allreduce(value, name=name)


class Meeting:
    def __init__(self, size: int) -> None:
        self.size = size
        self._barrier = threading.Barrier(size)
        self._values: list[Any] = [None] * size

    def gather(self, rank: int, value: Any) -> list[Any]:
        self._values[rank] = value
        self._barrier.wait(MEET_SECONDS)
        values = list(self._values)
        self._barrier.wait(MEET_SECONDS)
        return values

    def abort(self) -> None:
        self._barrier.abort()


class Replica:
    """A rank that is a thread of this process, in plain PyTorch."""

    def __init__(self, meeting: Meeting, rank: int, arguments: dict[str, Any]) -> None:
        self._meeting = meeting
        self.rank, self.size = rank, meeting.size
        self._members = arguments.get("process_set", list(range(self.size)))
        self._sum = arguments.get("op") == "Sum"

    def wrap(self, plain: Any, named: Any, arguments: dict[str, Any], groups: list[Any]) -> Any:
        return plain

    def synchronize(self, optimizer: Any) -> None:
        """Replace each gradient by the average of all members, in place."""
        parameters = parameters_of(optimizer)
        # Copies: the others read them while this one writes.
        own = [None if p.grad is None else p.grad.detach().clone() for p in parameters]
        every = self._meeting.gather(self.rank, own)
        if self.rank not in self._members or len(self._members) == 1:
            return
        with torch.no_grad():
            for at, parameter in enumerate(parameters):
                grads = [every[rank][at] for rank in self._members]
                self._replace(parameter, [one for one in grads if one is not None])

    def _replace(self, parameter: torch.Tensor, grads: list[torch.Tensor]) -> None:
        if not grads:
            if parameter.requires_grad:
                parameter.grad = torch.zeros_like(parameter)
            return
        factor = 1.0 if self._sum else 1.0 / len(self._members)
        if all(one.is_sparse for one in grads):
            total = torch.zeros_like(parameter, dtype=torch.float64)
            where = torch.cat([one.coalesce().indices()[0] for one in grads]).unique()
            for one in grads:
                total += one.to_dense().double()
            values = (total[where] * factor).to(grads[0].dtype)
            parameter.grad = torch.sparse_coo_tensor(where[None], values, parameter.shape).coalesce()
            return
        dense = [(one.to_dense() if one.is_sparse else one).double() for one in grads]
        result = torch.stack(dense).sum(0) * factor
        grad = parameter.grad
        if grad is None or grad.is_sparse or grad.requires_grad:
            parameter.grad = result.to(grads[0].dtype)
        else:
            grad.copy_(result)

    def step(self, optimizer: Any, closure: Callable[[], Any] | None = None) -> Any:
        if closure is None:
            self.synchronize(optimizer)
            return optimizer.step()

        def averaged() -> Any:
            loss = closure()
            self.synchronize(optimizer)
            every = self._meeting.gather(self.rank, float(loss))
            if self.rank not in self._members:
                return loss
            mine = [every[rank] for rank in self._members]
            return sum(mine) / (1 if self._sum else len(mine))

        return optimizer.step(averaged)

    def skipping(self, optimizer: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def clip_and_step(self, optimizer: Any, norm: float) -> float:
        self.synchronize(optimizer)
        total = torch.nn.utils.clip_grad_norm_(parameters_of(optimizer), norm)
        optimizer.step()
        return float(total)

    def no_sync(self, optimizer: Any) -> AbstractContextManager[None]:
        return nullcontext()

    def set_passes(self, optimizer: Any, passes: int) -> None:
        pass

    def broadcast_parameters(self, model: torch.nn.Module, what: str) -> None:
        every = self._meeting.gather(self.rank, {k: v.clone() for k, v in model.state_dict().items()})
        with torch.no_grad():
            for name, value in model.state_dict().items():
                value.copy_(every[0][name])

    def broadcast_optimizer(self, optimizer: Any) -> None:
        """Replace state and options in place: who holds a group, or a scheduler, keeps what is used."""
        parameters = parameters_of(optimizer)
        groups = [
            {key: one for key, one in group.items() if key != "params"} for group in optimizer.param_groups
        ]
        state = [optimizer.state.get(parameter) for parameter in parameters]
        root_groups, root_state = copy.deepcopy(self._meeting.gather(self.rank, (groups, state))[0])
        self._meeting.gather(self.rank, None)
        if self.rank == 0:
            return
        for mine, theirs in zip(optimizer.param_groups, root_groups, strict=True):
            mine.update(theirs)
        for parameter, one in zip(parameters, root_state, strict=True):
            optimizer.state.pop(parameter, None)
            if one is not None:
                optimizer.state[parameter] = one

    def average(self, value: torch.Tensor, name: str) -> torch.Tensor:
        every = self._meeting.gather(self.rank, value.detach().clone())
        return (torch.stack([one.double() for one in every]).sum(0) / self.size).to(value.dtype)


def replicate(size: int, work: Callable[[int, Meeting], Any]) -> list[Any]:
    meeting = Meeting(size)
    results: list[Any] = [None] * size
    errors: list[BaseException] = []

    def one(rank: int) -> None:
        try:
            results[rank] = work(rank, meeting)
        except BaseException as error:
            errors.append(error)
            meeting.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    broken: Iterable[BaseException] = (
        one for one in errors if not isinstance(one, threading.BrokenBarrierError)
    )
    if errors:
        raise next(iter(broken), errors[0])
    return results

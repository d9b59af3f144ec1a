"""Broadcast and allgather of whole models, optimizer states and Python objects. Names are Horovod's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import torch

from ringleader.adapters.basics import rank, size
from ringleader.adapters.commit_layout import (
    ArrayCodec,
    Captured,
    UnpicklableError,
    put_together,
    take_apart,
)
from ringleader.adapters.handles import synchronize_all
from ringleader.adapters.object_exchange import allgather_object, broadcast_object
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.torch.operations import broadcast_async_
from ringleader.torch.optimizer.optimizer_mixin import OptimizerMixin, loading_in_place
from ringleader.torch.optimizer.sharded_optimizer import ShardedMixin

__all__ = ["allgather_object", "broadcast_object", "broadcast_optimizer_state", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int, process_set: ProcessSet = global_process_set) -> None:
    """Replace the tensors of all ranks of a process set by those of ``root_rank``, in place.

    ``params`` is a dictionary such as ``model.state_dict()``, or tensors or (name, tensor) pairs such as
    ``model.named_parameters()``; anything else is a `ValueError`. Values that are not tensors are left alone.
    """
    if isinstance(params, Mapping):
        pairs = sorted(params.items())
    elif isinstance(params, Iterable) and not isinstance(params, torch.Tensor | str | bytes):
        pairs = [pair if isinstance(pair, tuple) else (None, pair) for pair in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    tensors = [(name, value) for name, value in pairs if isinstance(value, torch.Tensor)]
    synchronize_all([broadcast_async_(value, root_rank, name, process_set) for name, value in tensors])


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int, model: Any = None) -> None:
    """Give every rank the optimizer state and options of ``root_rank``, with their Python types.

    Options are set in the groups that exist, so schedulers and references to a group stay connected; one that
    is a tensor is set in place.

    Ranks that have no state yet (a fresh start) get the root's, as a rank that resumed from a checkpoint has
    it. Until backward, gradients of a fresh start are zeros. LBFGS, whose state is not a list of tensors,
    is a `ValueError`. ``model`` is not needed.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if size() == 1:
        return
    wrapped: Any = optimizer
    sharded = wrapped if isinstance(wrapped, ShardedMixin) else None
    state = optimizer.state_dict() if sharded is None else sharded.state_dict_of(root_rank)
    outline, tensors = _outline(state) if rank() == root_rank else (None, [])
    facts = [(tensor.shape, tensor.dtype, tensor.device.type) for tensor in tensors]
    outline, facts = broadcast_object((outline, facts), root_rank)
    if rank() != root_rank:
        tensors = [torch.empty(shape, dtype=dtype) for shape, dtype, _kind in facts]
    else:
        # On the CPU: the others do not know where the root's tensors lie.
        tensors = [tensor.detach().cpu().contiguous() for tensor in tensors]
    synchronize_all([broadcast_async_(one, root_rank, f"optimizer.{at}") for at, one in enumerate(tensors)])
    if rank() != root_rank:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        homes = {kind: _home(kind, parameters) for _shape, _dtype, kind in facts}
        moved = [one.to(homes[kind]) for one, (_shape, _dtype, kind) in zip(tensors, facts, strict=True)]
        state = _filled(outline, moved)
    if rank() != root_rank or sharded is not None:
        with loading_in_place(optimizer):
            optimizer.load_state_dict(state)
        _keep_types(optimizer, state)
    if isinstance(optimizer, OptimizerMixin) and not state["state"]:
        optimizer.show_zeros()


def _home(kind: str, parameters: Iterable[torch.Tensor]) -> torch.device:
    """Return where tensors that the root has on a kind of device belong here: beside the parameters on one.

    Loading a state moves tensors of its dictionaries and lists, but none within a script's own object.
    """
    devices = (parameter.device for parameter in parameters)
    return next((device for device in devices if device.type == kind), torch.device("cpu"))


def _keep_types(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Have state in the root's types: loading gives it those of the parameters, which may be others."""
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        mine = optimizer.state.get(parameter, {})
        for key, value in state["state"].get(number, {}).items():
            if isinstance(value, torch.Tensor) and value.dtype != mine[key].dtype:
                mine[key] = value.to(parameter.device)


class _Tensors(ArrayCodec):
    """Takes all dense tensors out of a state."""

    def take(self, value: Any) -> Any:
        return value if isinstance(value, torch.Tensor) and not value.is_sparse else None


class _Unpicklable:
    """Stands for a state that cannot be pickled, so that `broadcast_object` says why, on all ranks."""

    def __init__(self, error: BaseException) -> None:
        self._error = error

    def __reduce__(self) -> Any:
        raise self._error


def _outline(state: Any) -> tuple[Any, list[torch.Tensor]]:
    """Return a state, pickled, with numbers in place of its tensors, and these."""
    try:
        part = take_apart("state", Captured(value=state), _Tensors())
    except UnpicklableError as error:
        return _Unpicklable(error.__cause__ or error), []
    return part.outline, cast("list[torch.Tensor]", part.arrays)


def _filled(outline: Any, tensors: list[torch.Tensor]) -> Any:
    """Return the state of an outline.

    PyTorch lists sparse tensors that are unpickled until the next `torch.load` validates them, which keeps
    them alive. These are what the root has, so they are taken off the list.
    """
    listed: list[Any] = getattr(torch._utils, "_sparse_tensors_to_validate", [])
    before = len(listed)
    state = put_together(outline, tensors)
    del listed[before:]
    return state

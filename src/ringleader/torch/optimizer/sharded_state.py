"""The state of an optimizer, whole and in pieces.

Whole: for each parameter a dictionary, as `torch.optim.Optimizer.state` has it. In pieces: each rank has some
elements of some parameters, and their state as 1-D tensors; what is not a tensor of the parameter's shape,
such as a count of steps, is the same for all elements. Pieces know nothing of ranks or buckets, so that they
can be put together whatever the layout was that they come from.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from ringleader.adapters.object_exchange import gather_objects
from ringleader.engine.group_engine import Engine
from ringleader.torch.engine_operations import gather
from ringleader.torch.optimizer.gradient_place import shaped_like

State = Mapping[str, Any]
"""What an optimizer keeps of one parameter."""
COUNTS = ("step", "mu_product", "eta", "mu")
"""Names of numbers in PyTorch's optimizers, for parameters without dimensions, where no shape tells them."""


@dataclass(frozen=True, kw_only=True, eq=False)
class StatePiece:
    """The state of some elements of one parameter."""

    parameter: int
    """The parameter's number in the optimizer's groups."""
    start: int
    """First element, in the order in which the parameter's elements are in its bucket."""
    stop: int
    """One past the last element."""
    strides: tuple[int, ...]
    """Those of the parameter in that bucket: a script may have changed its layout since."""
    values: State
    """1-D tensors with a value per element, and anything else that holds for all of them."""

    @property
    def outline(self) -> StatePiece:
        """Return what other ranks get first: the element types of values that are per element, the others."""
        count = (self.stop - self.start,)
        values = {
            key: value.dtype if is_elementwise(value, count) else _moved(value)
            for key, value in self.values.items()
        }
        return replace(self, values=values)


def is_elementwise(value: Any, shape: tuple[int, ...]) -> bool:
    """Return whether a value has one number per element of a tensor of this shape."""
    return isinstance(value, torch.Tensor) and value.dim() > 0 and tuple(value.shape) == shape


def is_per_element(key: str, value: Any, parameter: torch.Tensor) -> bool:
    """Return the same of a parameter's whole state; `ValueError` for a tensor that is neither that nor one
    number."""
    if not isinstance(value, torch.Tensor):
        return False
    if value.shape == parameter.shape:
        return parameter.dim() > 0 or key not in COUNTS
    if value.numel() == 1:
        return False
    raise ValueError(
        f"{key} of a parameter of shape {list(parameter.shape)} has the shape {list(value.shape)}: the state "
        "is of another model, or the optimizer does not treat every element by itself"
    )


def common_values(state: State, parameter: torch.Tensor) -> tuple[tuple[str, str], ...]:
    """Return in words what of a parameter's state must be equal in those that are stepped as one."""
    words = []
    for key, value in sorted(state.items()):
        if is_per_element(key, value, parameter):
            words.append((key, str(value.dtype)))
        elif isinstance(value, torch.Tensor):
            words.append((key, f"{value.dtype} {value.item()!r}"))
        else:
            words.append((key, repr(value)))
    return tuple(words)


def state_digest(states: Mapping[int, State]) -> str:
    """Return a digest of whole states: equal on two ranks if and only if the states are."""
    found = hashlib.blake2b(digest_size=16)
    for number, state in sorted(states.items()):
        for key, value in sorted(state.items()):
            found.update(f"{number} {key} ".encode())
            if isinstance(value, torch.Tensor):
                plain = value.detach().cpu().contiguous()
                found.update(f"{plain.dtype} {list(plain.shape)} ".encode())
                found.update(zlib.crc32(plain.view(-1).view(torch.uint8).numpy().data).to_bytes(4, "big"))
            else:
                found.update(repr(value).encode())
    return found.hexdigest()


def laid_out(value: torch.Tensor, parameter: torch.Tensor) -> torch.Tensor:
    """Return the elements of a tensor of a parameter's shape in the order in which its bucket has them."""
    flat = torch.empty(parameter.numel(), dtype=value.dtype, device=parameter.device)
    shaped_like(parameter, flat).copy_(value)
    return flat


def whole_states(
    engine: Engine, pieces: Sequence[StatePiece], parameters: Sequence[torch.Tensor], name: str
) -> dict[int, dict[str, Any]]:
    """Return the states that all ranks' pieces make, by parameter. Collective.

    `ValueError`, on all ranks, where elements are missing.
    """
    mine = [piece.outline for piece in pieces]
    outlines = [one for theirs in gather_objects(engine, mine, f"{name}.outline") for one in theirs]
    _check_complete(outlines, parameters)
    states: dict[int, dict[str, Any]] = {one.parameter: {} for one in outlines}
    places: dict[tuple[str, str, str], list[StatePiece]] = {}
    for one in outlines:
        parameter = parameters[one.parameter]
        for key, value in one.values.items():
            if isinstance(value, torch.dtype):
                places.setdefault((key, str(value), parameter.device.type), []).append(one)
            else:
                states[one.parameter][key] = _placed(value, parameter)
    for kind, found in sorted(places.items()):
        key, dtype_text, _device = kind
        own = [
            piece.values[key]
            for piece, outline in zip(pieces, mine, strict=True)
            if (str(outline.values.get(key)), parameters[piece.parameter].device.type) == kind[1:]
        ]
        dtype = found[0].values[key]
        nothing = torch.empty(0, dtype=dtype, device=parameters[found[0].parameter].device)
        everything = gather(engine, torch.cat(own or [nothing]), f"{name}.{key}.{dtype_text}")
        flats: dict[int, torch.Tensor] = {}
        at = 0
        for one in found:
            parameter = parameters[one.parameter]
            if one.parameter not in flats:
                flat = torch.zeros(parameter.numel(), dtype=dtype, device=parameter.device)
                layout = torch.empty_strided(parameter.shape, one.strides, device="meta")
                flats[one.parameter], states[one.parameter][key] = flat, shaped_like(layout, flat)
            flats[one.parameter][one.start : one.stop] = everything[at : (at := at + one.stop - one.start)]
    return states


def _moved(value: Any) -> Any:
    """Return a value as another rank can have it: with the kind of device that it is on."""
    return (value.detach().cpu(), value.device.type) if isinstance(value, torch.Tensor) else (value, "")


def _placed(moved: tuple[Any, str], parameter: torch.Tensor) -> Any:
    """Return a copy of the value where it was: on the parameter's device, or on the CPU."""
    value, device = moved
    if not isinstance(value, torch.Tensor):
        return value
    return value.clone() if device == "cpu" else value.to(parameter.device, copy=True)


def _check_complete(outlines: Iterable[StatePiece], parameters: Sequence[torch.Tensor]) -> None:
    counts: Counter[int] = Counter()
    for one in outlines:
        counts[one.parameter] += one.stop - one.start
    for number, count in counts.items():
        if number >= len(parameters) or count != parameters[number].numel():
            raise ValueError(
                "parts of the optimizer's state are missing: they were on ranks that are gone. Save "
                "state_dict() while all ranks are there, and load it on the new ones."
            )


def check_state(state_dict: Any, groups: Sequence[Mapping[str, Any]]) -> None:
    """See that a state dict is one of these parameters, before anything changes; `ValueError` otherwise."""
    theirs = state_dict["param_groups"]
    counts = [len(group["params"]) for group in theirs]
    own_counts = [len(group["params"]) for group in groups]
    if counts != own_counts:
        raise ValueError(
            f"the state dict is of another model: it has parameter groups of {counts} parameters, and the "
            f"optimizer of {own_counts}"
        )
    numbers = [number for group in theirs for number in group["params"]]
    parameters = [parameter for group in groups for parameter in group["params"]]
    for number, parameter in zip(numbers, parameters, strict=True):
        for key, value in state_dict["state"].get(number, {}).items():
            is_per_element(key, value, parameter)

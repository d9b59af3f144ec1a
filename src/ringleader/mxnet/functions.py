"""Broadcast and allgather of whole models and Python objects. Names are Horovod's."""

from __future__ import annotations

from types import MethodType
from typing import Any

from mxnet.gluon.parameter import DeferredInitializationError, Parameter, ParameterDict
from mxnet.ndarray import NDArray

from ringleader.adapters.basics import size
from ringleader.adapters.object_exchange import allgather_object, broadcast_object
from ringleader.mxnet.array_memory import ArgumentError
from ringleader.mxnet.operations import broadcast_

__all__ = ["allgather_object", "broadcast_object", "broadcast_parameters"]


def broadcast_parameters(params: Any, root_rank: int = 0, prefix: str | None = None) -> None:
    """Replace the parameters of all ranks by those of ``root_rank``, in place.

    ``params`` is what ``Block.collect_params()`` returns, or a dictionary of names and arrays or parameters,
    such as one of the two of ``Module.get_params()``; anything else is a `ValueError`. Parameters whose
    shapes are known only in the first forward pass are replaced there, so all ranks have to do one.
    ``prefix`` tells the parameters of several models from each other.
    """
    if not isinstance(params, (dict, ParameterDict)):
        raise ArgumentError(f"invalid params of type: {type(params)}; pass a dictionary, or collect_params()")
    if prefix is not None and not isinstance(prefix, str):
        raise ArgumentError(f"prefix is a string, not {prefix!r}")
    if size() == 1:
        return
    for key, value in sorted(params.items()):
        name = f"{prefix or ''}{key}"
        try:
            arrays = value.list_data() if isinstance(value, Parameter) else [value]
        except DeferredInitializationError:
            _broadcast_when_initialized(value, root_rank, name)
        else:
            _broadcast_all(arrays, root_rank, name)


def _broadcast_all(arrays: list[NDArray], root_rank: int, name: str) -> None:
    """Broadcast the first copy of a parameter; the others, on further devices of this rank, follow it."""
    first, *others = arrays
    broadcast_(first, root_rank, name=name)
    for other in others:
        first.copyto(other)


def _broadcast_when_initialized(parameter: Parameter, root_rank: int, name: str) -> None:
    """Have a parameter broadcast, once, at the end of the initialization that its first use brings."""

    def initialize(self: Parameter, *arguments: Any, **words: Any) -> None:
        del self._init_impl  # the class's own is back: what the script initializes later is its own matter
        self._init_impl(*arguments, **words)
        _broadcast_all(self.list_data(), root_rank, name)

    parameter._init_impl = MethodType(initialize, parameter)

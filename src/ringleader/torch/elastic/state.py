"""The state of a training with PyTorch. Path and names are Horovod's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ringleader.common.basics import rank
from ringleader.common.commit_layout import ArrayCodec, Captured
from ringleader.common.elastic import ObjectState
from ringleader.common.object_operations import broadcast_object
from ringleader.torch.elastic.sampler import ElasticSampler
from ringleader.torch.elastic.state_handlers import (
    HandlerWithContent,
    ModelStateHandler,
    OptimizerStateHandler,
    RandomState,
    RandomStateHandler,
    SamplerStateHandler,
    StateHandler,
)
from ringleader.torch.elastic.tensor_codec import TensorCodec

__all__ = [
    "ModelStateHandler",
    "OptimizerStateHandler",
    "RandomState",
    "SamplerStateHandler",
    "StateHandler",
    "TorchState",
    "get_handler_registry",
    "set_handler_registry",
]

_REGISTRY: list[tuple[type, type[StateHandler]]] = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
    (RandomState, RandomStateHandler),
]


def get_handler_registry() -> list[tuple[type, type[StateHandler]]]:
    """Return which handler takes care of which type; the first that fits does."""
    return _REGISTRY


def set_handler_registry(registry: list[tuple[type, type[StateHandler]]]) -> None:
    """Have other handlers, for states that are made from now on."""
    global _REGISTRY
    _REGISTRY = registry


class TorchState(ObjectState):
    """Models, optimizers, samplers and any other objects, which are attributes of it under their names.

    The model's and the optimizer's tensors are kept as they are, and everything else pickled.
    """

    _codec: ArrayCodec = TensorCodec()

    def __init__(self, model: Any = None, optimizer: Any = None, **kwargs: Any) -> None:
        """Take any number of objects; some may be models or optimizers too."""
        values = {"model": model, "optimizer": optimizer, **kwargs}
        self._handlers: dict[str, StateHandler] = {}
        for name, value in values.items():
            handler = next((make for kind, make in _REGISTRY if isinstance(value, kind)), None)
            if handler is not None:
                self._handlers[name] = handler(value)
        for name, one in self._handlers.items():
            super().__setattr__(name, one.value)
        rest = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **rest)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a new model or optimizer is kept instead of the old one from now on."""
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def captured(self) -> Mapping[str, Captured]:
        """See `ObjectState`."""
        content = {
            name: one.capture() for name, one in self._handlers.items() if isinstance(one, HandlerWithContent)
        }
        return {**content, **super().captured()}

    def _kept(self) -> set[str]:
        """See `ObjectState`."""
        content = {name for name, one in self._handlers.items() if isinstance(one, HandlerWithContent)}
        return content | super()._kept()

    def load(self, name: str, value: Any) -> None:
        """See `ObjectState`."""
        handler = self._handlers.get(name)
        if isinstance(handler, HandlerWithContent):
            handler.load(value)
        else:
            super().load(name, value)

    def load_own(self, name: str, value: Any) -> None:
        """See `ObjectState`."""
        handler = self._handlers.get(name)
        if isinstance(handler, HandlerWithContent):
            handler.load_own(value)

    def reads_in_place(self, name: str) -> bool:
        """See `ObjectState`."""
        return isinstance(self._handlers.get(name), ModelStateHandler)

    def _others(self) -> list[StateHandler]:
        """Return handlers of the script's own, which keep what they keep in this process."""
        return [one for one in self._handlers.values() if not isinstance(one, HandlerWithContent)]

    def save(self) -> None:
        """See `ObjectState`."""
        for handler in self._others():
            handler.save()
        super().save()

    def restore(self) -> None:
        """See `ObjectState`."""
        for handler in self._others():
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """See `ObjectState`."""
        for handler in self._others():
            handler.sync()
        super().sync()
        self.reset()

    def reset(self) -> None:
        """Divide what samplers have left among the ranks as they are now."""
        for handler in self._handlers.values():
            handler.reset()

    def before_reset(self) -> None:
        """See `State`."""
        for handler in self._handlers.values():
            handler.before_reset()

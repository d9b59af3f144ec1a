"""The state of a training with PyTorch: how models, optimizers, samplers and random numbers are kept.

Path and names are Horovod's.
"""

from __future__ import annotations

import random
from typing import Any

import numpy
import torch

from ringleader.adapters.basics import rank
from ringleader.adapters.commit_layout import Captured
from ringleader.adapters.elastic import ObjectState
from ringleader.adapters.object_exchange import broadcast_object
from ringleader.torch.elastic.sampler import ElasticSampler
from ringleader.torch.optimizer.optimizer_mixin import OptimizerMixin, loading_in_place
from ringleader.torch.optimizer.sharded_optimizer import ShardedMixin
from ringleader.torch.tensor_bytes import TensorCodec

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


class StateHandler:
    """Keeps one object; what scripts derive their own from.

    What a handler of a script keeps is in its process, and `sync` gives it to ranks that start later.
    """

    def __init__(self, value: Any) -> None:
        """Take the object."""
        self.value = value

    def save(self) -> None:
        """Keep the object as it is now."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to what was kept."""
        raise NotImplementedError

    def sync(self) -> None:
        """Give all ranks what rank 0 has. Collective."""
        raise NotImplementedError

    def set_value(self, value: Any) -> None:
        """Keep another object in its place."""
        self.value = value
        self.save()

    def reset(self) -> None:
        """Fit the object to the ranks as they are now."""

    def before_reset(self) -> None:
        """Gather what ranks have divided among them, while all of them are there. Collective."""


class HandlerWithContent(StateHandler):
    """A handler that says what is to be kept, so that it is in the state's commits: by `state_dict`."""

    def capture(self) -> Captured:
        """Return what is to be kept."""
        return Captured(value=self.value.state_dict())

    def load(self, value: Any) -> None:
        """Take over a value that was kept, or is another rank's."""
        self.value.load_state_dict(value)

    def load_own(self, value: Any) -> None:
        """Take over what was this rank's own."""

    def save(self) -> None:
        """Nothing: the state commits it."""

    def restore(self) -> None:
        """Nothing: the state restores it."""

    def sync(self) -> None:
        """Take over what rank 0 has, by itself. Collective."""
        value = broadcast_object(self.capture().value if rank() == 0 else None)
        if rank() != 0:
            self.load(value)


class ModelStateHandler(HandlerWithContent):
    """Keeps a model's parameters and buffers; buffers, such as running statistics, may differ by rank."""

    def capture(self) -> Captured:
        """See `HandlerWithContent`."""
        state = self.value.state_dict()
        names = {name for name, _buffer in self.value.named_buffers()}
        differing = frozenset(id(value) for name, value in state.items() if name in names)
        return Captured(value=dict(state), differing=differing)


class OptimizerStateHandler(HandlerWithContent):
    """Keeps an optimizer's state and options; with ``shard=True`` the whole, which all ranks gather."""

    def capture(self) -> Captured:
        """See `HandlerWithContent`; collective with ``shard=True``."""
        if isinstance(self.value, ShardedMixin):
            return Captured(value=self.value.state_dict_of(0))
        return super().capture()

    def load(self, value: Any) -> None:
        """See `HandlerWithContent`. Gradients of a step that was not made are forgotten."""
        with loading_in_place(self.value):
            self.value.load_state_dict(value)
        for group in self.value.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def before_reset(self) -> None:
        """Have the whole state on every rank, as some ranks may go."""
        if isinstance(self.value, ShardedMixin):
            self.value.load_state_dict(self.value.state_dict())

    def reset(self) -> None:
        """Forget what backward did for a step that was not made."""
        if isinstance(self.value, OptimizerMixin):
            self.value.forget_step()


class SamplerStateHandler(HandlerWithContent):
    """Keeps how much of an epoch is done."""

    def reset(self) -> None:
        """Divide what is left among the ranks as they are now."""
        self.value.reset()


class RandomState:
    """Represents in a `TorchState` the random numbers of Python, NumPy and PyTorch on the CPU.

    Each rank has its own. A replaced rank continues with those of the rank that it replaces.
    """


class RandomStateHandler(HandlerWithContent):
    """Keeps every rank's random numbers."""

    def capture(self) -> Captured:
        """See `HandlerWithContent`."""
        own = (random.getstate(), numpy.random.get_state(), torch.get_rng_state().numpy().tobytes())
        return Captured(value=None, per_rank=own)

    def load(self, value: Any) -> None:
        """See `HandlerWithContent`."""

    def load_own(self, value: Any) -> None:
        """See `HandlerWithContent`."""
        python, of_numpy, of_torch = value
        random.setstate(python)
        numpy.random.set_state(of_numpy)
        torch.set_rng_state(torch.frombuffer(bytearray(of_torch), dtype=torch.uint8))


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

    _codec = TensorCodec()

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
        # Those of a script keep what they keep in this process, the others have it in commits.
        self._content = {name: h for name, h in self._handlers.items() if isinstance(h, HandlerWithContent)}
        self._others = [one for name, one in self._handlers.items() if name not in self._content]
        self._beside = tuple(self._content)
        rest = {name: value for name, value in values.items() if name not in self._handlers}
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **rest)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute; a new model or optimizer is kept instead of the old one from now on."""
        handler = self.__dict__.get("_handlers", {}).get(name)
        if handler is not None:
            handler.set_value(value)
        super().__setattr__(name, value)

    def capture(self, name: str) -> Captured:
        """See `ObjectState`."""
        return self._content[name].capture() if name in self._content else super().capture(name)

    def load(self, name: str, value: Any) -> None:
        """See `ObjectState`."""
        if name in self._content:
            self._content[name].load(value)
        else:
            super().load(name, value)

    def load_own(self, name: str, value: Any) -> None:
        """See `ObjectState`."""
        if name in self._content:
            self._content[name].load_own(value)

    def reads_in_place(self, name: str) -> bool:
        """See `ObjectState`."""
        return isinstance(self._handlers.get(name), ModelStateHandler)

    def save(self) -> None:
        """See `ObjectState`."""
        for handler in self._others:
            handler.save()
        super().save()

    def restore(self) -> None:
        """See `ObjectState`."""
        for handler in self._others:
            handler.restore()
        super().restore()

    def sync(self) -> None:
        """See `ObjectState`."""
        for handler in self._others:
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

"""An optimizer of a script's class with a mixin in front of it, which can be copied and pickled."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import torch

from ringleader.adapters.consistency import ConsistencyCheck
from ringleader.engine.process_lifecycle import membership
from ringleader.torch.gradient_config import Named, default_names
from ringleader.torch.optimizer.trained_parameters import TrainedParameters
from ringleader.torch.tensor_bytes import TENSORS

if TYPE_CHECKING:
    from ringleader.torch.optimizer.optimizer_settings import OptimizerSettings


class OptimizerMixin:
    """What precedes the class of the wrapped optimizer: what all of them share."""

    _mixin: type[OptimizerMixin]
    _base: type[torch.optim.Optimizer]
    _trained_parameters: TrainedParameters
    param_groups: list[dict[str, Any]]

    def init_mixin(self, named: Named, settings: OptimizerSettings, passes: int) -> Self:
        """Begin without the other ranks: they are joined by `prepare`, at the latest for the next step."""
        self._parameter_names = {tensor: name for name, tensor in named}
        self._check = ConsistencyCheck(self._base.__name__, TENSORS)
        self._settings = settings
        self.backward_passes_per_step = passes
        self._passes: dict[torch.Tensor, int] = {}
        self._due = False
        """Whether a gradient waits for its exchange."""
        self._unsynchronized = False
        self._ready = False
        self._hooks: list[Any] = []
        self._zeros: list[tuple[torch.Tensor, torch.Tensor]] = []
        # Parameters may outlive the optimizer. The list is known here, the optimizer is not.
        weakref.finalize(self, remove_hooks, self._hooks).atexit = False
        _LIVE.add(self)
        return self

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickle and copy as the wrapped class does; the other ranks are joined anew."""
        state = super().__getstate__()
        named = [(name, tensor) for tensor, name in self._parameter_names.items()]
        own = {"named": named, "settings": self._settings, "passes": self.backward_passes_per_step}
        return restore, (self._mixin, self._base, state, own)

    def prepare(self) -> None:
        """Meet the other ranks. Collective."""
        raise NotImplementedError

    def _choose_trained(self) -> list[tuple[str, torch.Tensor]]:
        """Look at the parameters anew; return those that take part, with their names."""
        names = {p: name for name, p in default_names(self.param_groups)} | self._parameter_names
        everything = [p for group in self.param_groups for p in group["params"]]
        inside = sorted(self._trained_parameters.choose(self.param_groups))
        return [(names[everything[at]], everything[at]) for at in inside]

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        """Called by backward when a parameter's gradient is there."""
        raise NotImplementedError

    def _hook(self, parameters: list[torch.Tensor]) -> None:
        """Have backward tell when a parameter's gradient is there."""
        remove_hooks(self._hooks)
        told = _gradient_hook(weakref.ref(self))
        self._hooks += [
            parameter.register_post_accumulate_grad_hook(told)  # type: ignore[no-untyped-call]
            for parameter in parameters
            if parameter.is_leaf and parameter.requires_grad
        ]

    def _count(self, parameter: torch.Tensor) -> bool:
        """Count a backward pass; return whether it was the last one of the step."""
        passes = self._passes.get(parameter, 0)
        if passes >= self.backward_passes_per_step:
            if self._shares_parameters():
                return False  # passes for another optimizer count here, too, as long as it has not stepped
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to step(). "
                "Increase backward_passes_per_step to accumulate gradients locally."
            )
        self._passes[parameter] = passes + 1
        last = passes + 1 == self.backward_passes_per_step
        self._due = self._due or last
        return last

    def _shares_parameters(self) -> bool:
        """Return whether another live optimizer of ours has a parameter of this one."""
        mine = self._parameter_names.keys()
        return any(mine & other._parameter_names.keys() for other in _LIVE if other is not self)

    def _forget_passes(self) -> None:
        self._passes.clear()
        self._due = False

    def forget_step(self) -> None:
        """Forget what backward passes did for a step that is not made, as ranks have changed."""
        self._forget_passes()

    def set_backward_passes_per_step(self, passes: int) -> None:
        """Set how many backward passes add up before a step, from now on."""
        self.backward_passes_per_step = passes
        self._passes.clear()

    def show_zeros(self) -> None:
        """Have zeros where gradients are None, as with Horovod, whose scripts read them before backward."""
        for parameter in (one for group in self.param_groups for one in group["params"]):
            if parameter.requires_grad and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
                self._zeros.append((parameter, parameter.grad))

    def hide_zeros(self) -> None:
        """Have None again where backward wrote nothing: a step leaves such a parameter as it is."""
        for parameter, zeros in self._zeros:
            if parameter.grad is zeros and (zeros._version == 0 or not zeros.any()):
                parameter.grad = None
        self._zeros.clear()

    def load_state_dict(self, state_dict: Any) -> None:
        """Load into the groups and the state that exist, and forget what backward passes did before."""
        with loading_in_place(self):
            super().load_state_dict(state_dict)  # type: ignore[misc]
        self.loaded()

    def loaded(self) -> None:
        """Forget what backward passes did before a state was loaded, here or into the plain optimizer."""
        self._forget_passes()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it, backward only adds up and `step` is this rank's alone.

        The next step outside exchanges what all backward passes since the last `zero_grad` have added up.
        """
        before, self._unsynchronized = self._unsynchronized, True
        try:
            yield
        finally:
            self._unsynchronized = before

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to None, or to zero. Backward puts them where they are exchanged, either way."""
        if self._due and not self._shares_parameters():
            raise AssertionError(
                "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or "
                "optimizer.synchronize(). This is prohibited as it can cause a race condition."
            )
        self.hide_zeros()
        super().zero_grad(set_to_none)  # type: ignore[misc]


def _gradient_hook(mixin: Callable[[], OptimizerMixin | None]) -> Callable[[torch.Tensor], None]:
    """Return a hook for parameters that does not keep the optimizer alive."""

    def ready(parameter: torch.Tensor) -> None:
        optimizer = mixin()
        if optimizer is not None:
            optimizer._gradient_ready(parameter)

    return ready


def remove_hooks(hooks: list[Any]) -> None:
    """Take hooks off what they are on, and out of the list."""
    while hooks:
        hooks.pop().remove()


@contextmanager
def loading_in_place(optimizer: Any) -> Iterator[None]:
    """Within it a state dict is loaded; afterwards its values are in the objects that existed before.

    PyTorch makes a new state and a new list of new groups. Learning rate schedulers, the optimizer that was
    wrapped and scripts hold the old ones, and what they set there must count.
    """
    groups, state = optimizer.param_groups, optimizer.state
    try:
        yield
    finally:
        _move_loaded(optimizer, groups, state)


def _move_loaded(optimizer: Any, groups: list[dict[str, Any]], state: Any) -> None:
    """Have an optimizer use these groups and this state again, with the values that it has loaded."""
    used: set[int] = set()
    if optimizer.param_groups is not groups:
        for group, new in zip(groups, optimizer.param_groups, strict=True):
            params = group["params"]
            params[:] = new["params"]
            values = {key: _set_option(group.get(key), value, used) for key, value in new.items()}
            group.clear()
            group.update(values, params=params)
        optimizer.param_groups = groups
    if optimizer.state is not state:
        state.clear()
        state.update(optimizer.state)
        optimizer.state = state


def _set_option(old: Any, new: Any, used: set[int]) -> Any:
    """Return an option's new value. A tensor is kept and set, as captured graphs read it where it is.

    ``used`` has the tensors that are set already: one that several groups share can have one value only.
    """
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        return tuple(_set_option(*one, used) for one in zip(old, new, strict=True))
    count = new.numel() if isinstance(new, torch.Tensor) else isinstance(new, float | int)
    if not isinstance(old, torch.Tensor) or old.numel() != count or id(old) in used:
        return new
    used.add(id(old))
    with torch.no_grad():
        return old.copy_(new.reshape(old.shape)) if isinstance(new, torch.Tensor) else old.fill_(new)


def _load_beside(mixin: Callable[[], OptimizerMixin | None], optimizer: Any) -> None:
    """After a state was loaded into the plain optimizer: have the wrapped one go by it too."""
    wrapped: Any = mixin()
    if wrapped is not None and wrapped is not optimizer:
        _move_loaded(optimizer, wrapped.param_groups, wrapped.state)
        wrapped.loaded()


_DIVIDED = "_ringleader_divided"
"""Attribute of an optimizer that was wrapped with ``shard=True``: the wrapped one, which has its state."""
_LIVE: weakref.WeakSet[OptimizerMixin] = weakref.WeakSet()
"""All optimizers of ours."""


_CLASSES: dict[tuple[Any, Any], Any] = {}


def class_of(mixin: Any, base: Any) -> Any:
    """Return the class of optimizers of class ``base`` behind ``mixin``; it has the name of ``base``."""
    if (mixin, base) not in _CLASSES:
        own = {"_mixin": mixin, "_base": base, "__module__": base.__module__}
        _CLASSES[mixin, base] = type(base.__name__, (mixin, base), own)
    return _CLASSES[mixin, base]


def wrap(
    optimizer: torch.optim.Optimizer,
    mixin: type[OptimizerMixin],
    *,
    named: Named,
    settings: OptimizerSettings,
    passes: int,
) -> Any:
    """Return an optimizer that shares parameters, options and state with this one, behind ``mixin``."""
    divided = optimizer.__dict__.pop(_DIVIDED, None)
    if divided is not None:  # each rank has a part of the state: it is put together for the new one
        if membership() is not None:
            raise ValueError(
                "this optimizer was wrapped with shard=True before: in an elastic job make a new one to wrap "
                "again, and load state_dict() of the old one into it"
            )
        optimizer.load_state_dict(divided.state_dict())
    cls = class_of(mixin, optimizer.__class__)
    wrapped = cls.__new__(cls)
    # A learning rate scheduler replaces `step` of the optimizer that it was given; here it would hide ours.
    kept = {name: value for name, value in optimizer.__dict__.items() if name != "step"}
    wrapped.__dict__.update(kept)
    wrapped.init_mixin(named, settings, passes)
    # Nobody calls its own step any more, of which schedulers that were made for it would warn.
    optimizer._opt_called = True  # type: ignore[attr-defined]
    optimizer.register_load_state_dict_post_hook(partial(_load_beside, weakref.ref(wrapped)))
    if settings.shard:
        optimizer.__dict__[_DIVIDED] = wrapped
    if membership() is None:
        wrapped.prepare()
    # In an elastic job a rank that starts later is not with the others before it is in the elastic function.
    return wrapped


def restore(
    mixin: type[OptimizerMixin],
    base: type[torch.optim.Optimizer],
    state: dict[str, Any],
    own: dict[str, Any],
) -> Any:
    """Return the optimizer that was pickled or copied."""
    cls: Any = class_of(mixin, base)
    wrapped = cls.__new__(cls)
    wrapped.__setstate__(state)
    patched: Any = base
    if not getattr(patched.step, "hooked", False):
        # In a new process nobody has made one of that class yet, which is when PyTorch does this.
        patched.step = patched.profile_hook_step(patched.step)
        patched.step.hooked = True
    return wrapped.init_mixin(**own)

"""The optimizer of which every rank has a part: ``DistributedOptimizer(..., shard=True)``.

    gradients → each rank reduces its part → it makes the step for that part → all ranks have the parameters

The wrapped optimizer keeps groups and options; an *inner* optimizer of the same class has the elements that
this rank owns, as 1-D tensors, and their state. Its step is the only one that is made.
"""

from __future__ import annotations

import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch

from ringleader.adapters.object_exchange import gather_objects, sum_numbers
from ringleader.engine.group_engine import Engine
from ringleader.engine.operations import ReduceOp
from ringleader.torch.gradient_config import Named
from ringleader.torch.optimizer.gradient_exchange import GradientExchange
from ringleader.torch.optimizer.replicated_optimizer import ReplicatedMixin
from ringleader.torch.optimizer.sharded_gradients import ShardedGradients
from ringleader.torch.optimizer.sharded_state import (
    State,
    StatePiece,
    check_state,
    state_digest,
    whole_states,
)
from ringleader.torch.optimizer.sharded_step import InnerOptimizer

if TYPE_CHECKING:
    from ringleader.torch.optimizer.optimizer_settings import OptimizerSettings

OWNERS, EVERYWHERE = "owners", "everywhere"


class ShardedMixin(ReplicatedMixin):
    """What `DistributedOptimizer` puts in front of the wrapped class if each rank steps a part alone."""

    _buckets = ShardedGradients

    def init_mixin(self, named: Named, settings: OptimizerSettings, passes: int) -> Self:
        """See `OptimizerMixin`."""
        self._attributes = tuple(self.__dict__)
        """Those of the wrapped optimizer."""
        self._inner: InnerOptimizer | None = None
        """Makes the step; None as long as the state is whole, in ``state``."""
        self._kept: list[StatePiece] | None = None
        """This rank's pieces of the state where the inner optimizer that had them is gone."""
        self._reduced = ""
        """Where the gradients of all ranks are: nowhere yet, with the owners of parts, or everywhere."""
        self.state: dict[torch.Tensor, Any]
        return super().init_mixin(named, settings, passes)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse: a copy would have this rank's part of the state only."""
        raise TypeError(
            "an optimizer with shard=True cannot be copied or pickled, as each rank has a part of its state: "
            "save optimizer.state_dict(), which all ranks call"
        )

    # peers

    def prepare(self) -> None:
        """Meet the other ranks, and move gradients and parameters into memory that is divided. Collective."""
        super().prepare()
        self._reduced = ""
        if self._exchanger is None and self._kept is not None:
            raise ValueError(
                "parts of the optimizer's state are missing: they are on ranks that this one is not with any "
                "more. Save state_dict() while all ranks are there, and load it afterwards."
            )

    def release(self) -> None:
        """Let go of the engine's memory; this rank's part of the state stays."""
        if self._inner is not None:
            self._kept, self._inner = self._inner.pieces(), None
        super().release()

    def _gradient_ready(self, parameter: torch.Tensor) -> None:
        self._reduced = ""
        super()._gradient_ready(parameter)

    @property
    def _sharded(self) -> ShardedGradients | None:
        exchanger = self._exchanger
        return exchanger if isinstance(exchanger, ShardedGradients) else None

    # state

    @property
    def _numbers(self) -> list[int]:
        """Return, for each parameter in the buckets, its number in the groups."""
        everything = {id(p): at for at, p in enumerate(self._all())}
        return [everything[id(p)] for _name, p in self._named]

    def _all(self) -> list[torch.Tensor]:
        return [p for group in self.param_groups for p in group["params"]]

    def _pieces(self) -> list[StatePiece] | None:
        """Return this rank's pieces of the state, None if it has all of it."""
        return self._kept if self._inner is None else self._inner.pieces()

    def _gathered(self, root: int | None = None) -> dict[int, State]:
        """Return the whole state by parameter. Collective; `ValueError` on all ranks where it cannot be had.

        With a ``root`` that has all of it, ranks that have not get nothing.
        """
        everything, pieces = self._all(), self._pieces()
        whole: dict[int, State] = {at: self.state[p] for at, p in enumerate(everything) if p in self.state}
        mine = state_digest(whole) if pieces is None else None
        counts = [len(group["params"]) for group in self.param_groups]
        kind = f"{type(self).__name__} with parameter groups of {counts} parameters"
        answers = gather_objects(self._engine, (mine, kind), f"{self._serial}.whose state")
        digests = [digest for digest, _kind in answers]
        for rank, (_digest, theirs) in enumerate(answers):
            if theirs != answers[0][1]:
                raise ValueError(
                    f"the optimizers differ between rank 0 and rank {rank}: {answers[0][1]}, and {theirs}"
                )
        if root is not None and digests[root] is not None:
            return whole
        for rank, digest in enumerate(digests):
            if digest != digests[0]:
                raise ValueError(
                    f"the optimizer's state differs between rank 0 and rank {rank}: call load_state_dict on "
                    "all ranks with the same state, or hvd.broadcast_optimizer_state after it was loaded on "
                    "one"
                )
        if pieces is None:
            return whole
        return whole | whole_states(self._engine, pieces, everything, f"{self._serial}.state")

    def _divide_state(self, exchanger: ShardedGradients) -> None:
        """Give every rank its part of the state. Collective; nothing has changed where it raises."""
        states, everything, numbers = self._gathered(), self._all(), self._numbers
        attributes = {name: self.__dict__[name] for name in self._attributes if name in self.__dict__}
        self._inner = InnerOptimizer(self, attributes, exchanger, numbers=numbers, states=states)
        self._kept = None
        self.state.clear()
        rest = states.keys() - set(numbers)
        self.state.update({everything[at]: dict(states[at]) for at in sorted(rest)})

    def state_dict(self) -> dict[str, Any]:
        """Return the state as the wrapped optimizer has it, of all parts. Collective."""
        return self.state_dict_of(None)

    def state_dict_of(self, root: int | None) -> dict[str, Any]:
        """Do as `state_dict`; where ``root`` alone has loaded a state, the other ranks may get less."""
        if not self._ready:
            self.prepare()
        if self._exchanger is None:
            return super().state_dict()  # type: ignore[misc,no-any-return]
        everything, kept = self._all(), self.state
        states = self._gathered(root)
        try:
            self.state = defaultdict(dict, {everything[at]: dict(states[at]) for at in sorted(states)})
            return super().state_dict()  # type: ignore[misc,no-any-return]
        finally:
            self.state = kept

    def load_state_dict(self, state_dict: Any) -> None:
        """Load a whole state, which the next step divides; every rank loads the same."""
        check_state(state_dict, self.param_groups)
        super().load_state_dict(state_dict)

    def loaded(self) -> None:
        """See `OptimizerMixin`."""
        super().loaded()
        self._inner, self._kept, self._reduced = None, None, ""

    def state_bytes(self) -> int:
        """Return how much of the state this rank keeps, in bytes. Parts are divided by the first step."""
        whole = [value for state in self.state.values() for value in state.values()]
        mine = sum(value.nbytes for value in whole if isinstance(value, torch.Tensor))
        return mine + (self._inner.state_bytes() if self._inner is not None else 0)

    # a step

    def _request_if_changed(self, exchanger: GradientExchange) -> None:
        if self._inner is None:
            exchanger.request_agreement()
        super()._request_if_changed(exchanger)

    def _has_whole_state(self) -> bool:
        return self._inner is None

    def _agreed(self, *, divide: bool) -> None:
        if self._sharded is not None and divide:
            self._divide_state(self._sharded)

    def _take_sparse(self, exchanger: GradientExchange, sparse: dict[int, int]) -> None:
        if sparse:
            exchanger.new_sparse.clear()
            names = ", ".join(sorted(self._named[at][0] for at in sparse))
            raise ValueError(
                f"shard=True does not support sparse gradients, which {names} has: make the embedding with "
                "sparse=False"
            )

    def synchronize(self) -> None:
        """Exchange the gradients, so that every rank may look at all of them, or clip them, before `step`."""
        super().synchronize()
        if self._exchanger is not None:
            self._reduced = EVERYWHERE

    def _exchange_for_step(self) -> None:
        """Exchange the gradients, each for the owner of its part."""
        self.hide_zeros()
        if self._reduced:
            return
        if not self._ready:
            self.prepare()
        exchanger = self._sharded
        if exchanger is None:
            self._forget_passes()
            return
        with self._exchange_of_a_step(exchanger):
            asked = exchanger.exchange_parts()
            if asked:
                self._agree(exchanger)
            self._reduced = EVERYWHERE if asked else OWNERS

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Exchange the gradients, and make the step of this rank's part; all ranks get all parameters.

        After it, ``.grad`` holds the reduced gradients in this rank's part only, unless `synchronize` came
        before.
        """
        if self._unsynchronized and self._exchanger is not None:
            raise RuntimeError(
                "optimizer.step() within no_sync() is this rank's alone, but with shard=True it has a part "
                "of the state only: step outside of no_sync()"
            )
        return super().step(closure)

    step.hooked = True  # type: ignore[attr-defined]

    def _apply(self, closure: Callable[[], Any] | None) -> Any:
        if self._exchanger is None:
            return super()._apply(closure)
        return _STEP_WITH_HOOKS(self, closure)

    def _step_part(self, closure: Callable[[], Any] | None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        exchanger, inner = self._sharded, self._inner
        if not self._reduced or exchanger is None or inner is None:
            raise RuntimeError(
                "optimizer.step() within skip_synchronize() found no gradients that were exchanged: call "
                "optimizer.synchronize() or optimizer.clip_grad_norm_() after backward"
            )
        if self._reduced == EVERYWHERE:
            exchanger.begin_step()
        inner.step(self)
        exchanger.finish_step(left_over=self._reduced == OWNERS)
        self._reduced = ""
        return loss

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """Exchange the gradients and clip them by the norm over all of them; return that norm.

        As `torch.nn.utils.clip_grad_norm_`, but each rank clips its part. Call it between backward and
        `step`, on all ranks. (After `synchronize` PyTorch's function does the same.)
        """
        self._exchange_for_step()
        exchanger = self._sharded
        if exchanger is None or self._reduced == EVERYWHERE:
            return torch.nn.utils.clip_grad_norm_(
                self._all(), max_norm, norm_type, error_if_nonfinite=error_if_nonfinite
            )
        return clip_parts(
            self._engine,
            [part.gradients[slice(*part.span)] for part in exchanger.parts],
            max_norm=float(max_norm),
            norm_type=float(norm_type),
            error_if_nonfinite=error_if_nonfinite,
            name=f"{self._serial}.norm",
        )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to None, or to zero."""
        super().zero_grad(set_to_none)
        self._reduced = ""
        if self._sharded is not None:
            self._sharded.forget_gradients()


def _step_part(optimizer: ShardedMixin, closure: Callable[[], Any] | None) -> Any:
    return optimizer._step_part(closure)


_STEP_WITH_HOOKS = torch.optim.Optimizer.profile_hook_step(_step_part)
"""The step, with the hooks that a script has registered: they are called with the wrapped optimizer."""


def clip_parts(
    engine: Engine,
    parts: Sequence[torch.Tensor],
    *,
    max_norm: float,
    norm_type: float,
    error_if_nonfinite: bool,
    name: str,
) -> torch.Tensor:
    """Scale 1-D parts of gradients to a norm over all ranks of at most ``max_norm``; return what it was.

    Collective. `RuntimeError` for a norm that is not finite, on all ranks, where that is asked for.
    """
    wide = [torch.float64 if part.dtype == torch.float64 else torch.float32 for part in parts]
    of_parts = zip(parts, wide, strict=True)
    norms = [float(torch.linalg.vector_norm(part, norm_type, dtype=dtype)) for part, dtype in of_parts]
    if math.isinf(norm_type):
        total = sum_numbers(engine, array("d", [max(norms, default=0.0)]), name, ReduceOp.MAX)[0]
    else:
        powers = sum(norm**norm_type for norm in norms)
        total = sum_numbers(engine, array("d", [powers]), name)[0] ** (1.0 / norm_type)
    if error_if_nonfinite and not math.isfinite(total):
        raise RuntimeError(
            f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
            "cannot be clipped."
        )
    factor = max_norm / (total + 1e-6)
    if not factor >= 1.0:  # also where the norm is not a number, as PyTorch does
        for part in parts:
            part.mul_(factor)
    first = parts[0] if parts else torch.zeros(())
    return torch.tensor(total, dtype=first.dtype, device=first.device)

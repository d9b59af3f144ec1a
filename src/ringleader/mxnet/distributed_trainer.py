"""`DistributedTrainer`: Gluon's trainer, which averages gradients over the ranks in each step.

Name and meaning are Horovod's. `distributed_optimizer` is for other loops.
"""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Sequence
from typing import Any

import mxnet
import numpy

from ringleader.adapters.array_operations import ALLREDUCE
from ringleader.adapters.consistency import ConsistencyCheck, array_kind
from ringleader.adapters.process_sets import ProcessSet, global_process_set, group_of
from ringleader.adapters.reductions import Max
from ringleader.engine.operations import digest_of
from ringleader.engine.process_lifecycle import PROCESS
from ringleader.mxnet.array_memory import ArgumentError
from ringleader.mxnet.compression import Compression
from ringleader.mxnet.distributed_optimizer import (
    DistributedOptimizer,
    GradientReduction,
    checked_settings,
)

_BITS = 62


class DistributedTrainer(mxnet.gluon.Trainer):
    """Gluon's trainer over ranks: ``step``, or ``allreduce_grads`` and ``update``, as there."""

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: dict[str, Any] | None = None,
        compression: Any = Compression.none,
        gradient_predivide_factor: float = 1.0,
        prefix: str | None = None,
        num_groups: int = 0,
        process_set: ProcessSet = global_process_set,
    ) -> None:
        """Take parameters and an optimizer as Gluon's trainer does; the number of ranks is divided by here.

        ``compression``: one of `Compression`. ``gradient_predivide_factor``: gradients are divided by it
        before the sum, and the sum by the number of ranks over it. ``prefix`` tells the gradients of several
        trainers from each other. ``num_groups``: in how many groups gradients are exchanged; 0: all at once
        on one host, each on its own between hosts. A rank that is not in ``process_set`` updates by its own
        gradients. `ArgumentError` for what cannot be meant, for sparse parameters, and for several devices
        in one rank.
        """
        if prefix is not None and not isinstance(prefix, str):
            raise ArgumentError(f"prefix is a string, not {prefix!r}")
        settings = checked_settings(compression, gradient_predivide_factor, num_groups, process_set)
        if isinstance(optimizer, DistributedOptimizer):
            warnings.warn(
                "DistributedTrainer takes the optimizer out of a DistributedOptimizer", stacklevel=2
            )
            optimizer = optimizer._optimizer
        super().__init__(params, optimizer, optimizer_params=optimizer_params, kvstore=None)
        self._prefix = prefix or ""
        self._names = ParameterNames([one.name for one in self._params], self._prefix, process_set)
        self._reduction = GradientReduction(settings)
        self._process_set = process_set
        self._ignore_stale_grad = False
        cure = "hvd.broadcast_parameters(model.collect_params(), root_rank=0)"
        self._check = ConsistencyCheck("DistributedTrainer", array_kind(lambda one: one.asnumpy(), cure))
        self._check_parameters()

    def _check_parameters(self) -> None:
        if len(self._contexts) > 1:
            raise ArgumentError(
                f"the parameters are on {len(self._contexts)} devices; a rank has one: start more ranks"
            )
        for parameter in self._params:
            if parameter._stype != "default" or parameter._grad_stype != "default":
                raise ArgumentError(
                    f"parameter {parameter.name} or its gradient is sparse, which is not supported: make its "
                    "layer without sparse_grad=True, and the parameter with stype='default'"
                )

    def step(self, batch_size: int, ignore_stale_grad: bool = False) -> None:
        """Average the gradients over the ranks and update the parameters; see `mxnet.gluon.Trainer.step`.

        With ``ignore_stale_grad``, a gradient that was computed on some ranks only counts as zero on the
        others, and every rank updates its parameter; one that no rank computed is left alone.
        """
        self._ignore_stale_grad = ignore_stale_grad
        try:
            super().step(batch_size, ignore_stale_grad)
        finally:
            self._ignore_stale_grad = False
        self._reduction.metrics().step()

    def _allreduce_grads(self) -> None:
        """Replace each gradient by the mean of the ranks'."""
        if not self._reduction.others:
            return
        trained = [(at, one) for at, one in enumerate(self._params) if one.grad_req != "null"]
        if self._ignore_stale_grad:
            trained = self._computed_anywhere(trained)
        names = self._names.agreed()
        self._reduction.reduce([(names[at], one.list_grad()[0]) for at, one in trained])
        named = [(names[at], one.list_data()[0]) for at, one in trained]
        self._check.exchanged(group_of(self._process_set, "Allreduce"), named, f"{self._prefix}consistency")

    def _computed_anywhere(self, trained: list[tuple[int, Any]]) -> list[tuple[int, Any]]:
        """Return the parameters whose gradients some rank has computed since the last step. Collective."""
        weights = [parameter.list_data()[0] for _at, parameter in trained]
        mine = numpy.array([weight._fresh_grad for weight in weights], "uint8")
        anywhere = ALLREDUCE.run(mine, f"{self._prefix}fresh_gradients", self._process_set, Max)
        chosen = []
        for at, weight in enumerate(weights):
            if anywhere[at]:
                chosen.append(trained[at])
                if not mine[at]:
                    trained[at][1].list_grad()[0][:] = 0
                    weight._fresh_grad = True
        return chosen


class ParameterNames:
    """Gluon's names where all ranks have the same ones, else the parameters' numbers.

    Gluon counts blocks to name them, so a rank that made one more than the others, as for its own test,
    has other names for the same parameters.
    """

    def __init__(self, names: Sequence[str], prefix: str, process_set: ProcessSet) -> None:
        """Take this rank's names; ``prefix`` begins what they are in operations."""
        self._own = names
        self._prefix = prefix
        self._process_set = process_set
        self._agreed: list[str] = []
        self._agreed_in: weakref.ref[object] = weakref.ref(self)

    def agreed(self) -> list[str]:
        """Return a name for each parameter, equal on all ranks. Collective once between init and shutdown."""
        engine = PROCESS.get().engine
        if self._agreed_in() is not engine:
            names = self._own if self._equal() else map(str, range(len(self._own)))
            self._agreed = [f"{self._prefix}{name}" for name in names]
            self._agreed_in = weakref.ref(engine)
        return self._agreed

    def _equal(self) -> bool:
        """Return whether all ranks have the same names, each of them once. Ranks that joined do not count."""
        digest = digest_of("\n".join(self._own)) >> 64 - _BITS
        # The largest digest equals the smallest exactly when the largest complement is its complement.
        complement = 2**_BITS - digest
        if len(set(self._own)) < len(self._own):
            complement = 2**_BITS + 1  # of no digest
        mine = numpy.array([digest, complement], "int64")
        largest, complement = ALLREDUCE.run(mine, f"{self._prefix}parameter_names", self._process_set, Max)
        return int(largest) + int(complement) == 2**_BITS

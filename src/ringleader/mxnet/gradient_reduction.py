"""Gradients of all ranks made into their mean, in place: what optimizer and trainer share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mxnet.ndarray import NDArray

from ringleader.collectives.process_lifecycle import PROCESS
from ringleader.common.array_operations import ALLREDUCE_IN_PLACE
from ringleader.common.compression import check_compression
from ringleader.common.handles import synchronize
from ringleader.common.process_sets import ProcessSet, group_of
from ringleader.common.reductions import Average
from ringleader.common.step_metrics import StepMetrics
from ringleader.common.util import split_list
from ringleader.mxnet.array_memory import ArgumentError, writeable_view
from ringleader.mxnet.compression import NoneCompressor

Named = Sequence[tuple[str, NDArray]]
"""Gradients with their names, which are the same on all ranks."""


@dataclass(frozen=True, kw_only=True)
class GradientSettings:
    """How gradients are exchanged."""

    compression: Any = NoneCompressor
    """What makes them smaller for the wire; see `ringleader.common.compression.Compressor`."""
    predivide: float = 1.0
    """What of the division happens before the sum: division by this; the rest happens after it."""
    groups: int = 0
    """In how many groups they are exchanged; 0: all at once on one host, each on its own between hosts."""
    process_set: ProcessSet
    """The ranks that exchange them."""

    def __post_init__(self) -> None:
        """Raise `ArgumentError` where a value cannot be meant."""
        if not isinstance(self.process_set, ProcessSet):
            raise ArgumentError(f"process_set is a ProcessSet, not {self.process_set!r}")
        if isinstance(self.groups, bool) or not isinstance(self.groups, int) or self.groups < 0:
            raise ArgumentError(f"num_groups is a number of groups, 0 or more, not {self.groups!r}")
        if not isinstance(self.predivide, (int, float)) or not self.predivide > 0:
            raise ArgumentError(f"gradient_predivide_factor is a number above 0, not {self.predivide!r}")
        try:
            check_compression(self.compression)
        except ValueError as error:
            raise ArgumentError(str(error)) from None


class GradientReduction:
    """Exchanges gradients with the other ranks of a process set."""

    def __init__(self, settings: GradientSettings) -> None:
        """Take the settings."""
        self._settings = settings
        self._metrics: StepMetrics | None = None
        self._engine: object = None

    @property
    def others(self) -> bool:
        """Return whether this rank has gradients to exchange: it is in the set, and not alone there."""
        chosen = self._settings.process_set
        if chosen.included() is False:
            return False
        group = group_of(chosen, "Allreduce")
        return group.ranks.size > 1 and group.engine.transport.name != "uncoupled"

    def _meet(self) -> None:
        """Meet the others where ranks are in step but exchange nothing."""
        chosen = self._settings.process_set
        if chosen.included() is not False:
            group_of(chosen, "Allreduce").engine.meet()

    def reduce(self, gradients: Named) -> None:
        """Replace gradients by the mean of all ranks'.

        They are waited for from the last to the first, as backward computes them. Between hosts each is
        begun when it is there. On one host that gains nothing: the processors that would move the bytes are
        those that compute, so the ranks meet once.
        """
        if not gradients:
            return
        if not self.others:
            self._meet()
            return
        metrics = self.metrics()
        metrics.gradient()
        compression = self._settings.compression
        small = [(name, *compression.compress(gradient)) for name, gradient in gradients]
        handles = self._begin(list(reversed([(name, tensor) for name, tensor, _context in small])))
        metrics.exchange()
        _finish(handles)
        for (_name, gradient), (_same, tensor, context) in zip(gradients, small, strict=True):
            result = compression.decompress(tensor, context)
            if result is not gradient:
                gradient[:] = result
        metrics.exchanged()

    def metrics(self) -> StepMetrics:
        """Return what counts steps, for the engine of now."""
        session = PROCESS.get()
        if self._metrics is None or self._engine is not session.engine:
            self._engine = session.engine
            self._metrics = StepMetrics.from_environment(session.engine, timelines=session.timelines)
        return self._metrics

    def _begin(self, gradients: Named) -> list[int]:
        """Begin what was asked for and return handles."""
        settings = self._settings
        words = (settings.process_set, Average, 1.0 / settings.predivide, settings.predivide)
        one_host = group_of(settings.process_set, "Allreduce").ranks.hosts == 1
        groups = min(settings.groups or int(one_host), len(gradients))
        if not groups:
            return [
                ALLREDUCE_IN_PLACE.begin(writeable_view(tensor), name, *words) for name, tensor in gradients
            ]
        handles = []
        for group in split_list(gradients, groups):
            views = [writeable_view(tensor) for _name, tensor in group]
            names = [name for name, _tensor in group]
            handles.append(ALLREDUCE_IN_PLACE.begin_group(views, names, *words))
        return handles


def _finish(handles: Sequence[int]) -> None:
    """Wait for all of the operations, then raise the first error."""
    first: Exception | None = None
    for handle in handles:
        try:
            synchronize(handle)
        except Exception as error:
            first = first or error
    if first is not None:
        raise first

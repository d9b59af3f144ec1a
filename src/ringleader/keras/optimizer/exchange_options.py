"""How an optimizer exchanges gradients, checked."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from ringleader.collectives.operations import ReduceOp
from ringleader.common.compression import check_compression
from ringleader.common.process_sets import ProcessSet
from ringleader.common.reductions import Average, Sum, handle_average_backwards_compatibility


@dataclass(frozen=True, kw_only=True)
class ExchangeOptions:
    """How gradients are exchanged. Equal on all ranks."""

    name: str
    """How messages call the exchange; one of that name is under way at a time."""
    compression: Any
    """What makes gradients smaller for the wire: ``compress`` and ``decompress``."""
    sparse_as_dense: bool
    """Whether TensorFlow's IndexedSlices are exchanged as dense tensors."""
    op: ReduceOp
    """The reduction: Average or Sum."""
    predivide: float
    """What of an average's division happens before the sum: division by this; the rest happens after it."""
    process_set: ProcessSet
    """The ranks that exchange gradients."""
    passes: int
    """Gradients of so many steps are added up here before they are exchanged and applied."""
    average_passes: bool
    """Whether their mean is applied, not their sum."""
    scale_local_gradients: bool
    """Whether gradients of local variables are divided by the number of ranks."""

    @property
    def reduction(self) -> tuple[ReduceOp, float, float]:
        """Return the reduction, the factor before it and the factor after it."""
        return self.op, 1.0 / self.predivide, self.predivide


def checked_options(
    *,
    name: str,
    compression: Any,
    sparse_as_dense: bool,
    op: Any,
    gradient_predivide_factor: float,
    num_groups: int,
    groups: Any,
    process_set: ProcessSet,
    backward_passes_per_step: int,
    average_aggregated_gradients: bool,
    scale_local_gradients: bool,
) -> ExchangeOptions:
    """Return the options that a script asks for; `ValueError` where they contradict each other."""
    op = handle_average_backwards_compatibility(op, None)
    if op not in (Average, Sum):
        raise ValueError(f"op={op.name.title()} is not supported here: use hvd.Average or hvd.Sum")
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if isinstance(backward_passes_per_step, bool) or backward_passes_per_step < 1:
        raise ValueError(f"backward_passes_per_step must be at least 1, not {backward_passes_per_step}")
    check_compression(compression)
    if num_groups:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=4
        )
    _check_groups(groups if groups is not None else num_groups or None)
    return ExchangeOptions(
        name=name,
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide=float(gradient_predivide_factor),
        process_set=process_set,
        passes=int(backward_passes_per_step),
        average_passes=average_aggregated_gradients,
        scale_local_gradients=scale_local_gradients,
    )


def _check_groups(groups: Any) -> None:
    """Refuse invalid groups. Valid ones change nothing: all gradients of a step travel together anyway."""
    if groups is None or (isinstance(groups, int) and not isinstance(groups, bool) and groups > 0):
        return
    if not isinstance(groups, (list, tuple)):
        raise ValueError("groups should be a positive integer or a list of lists of variables.")
    variables = [id(one) for group in groups for one in (group if isinstance(group, (list, tuple)) else "?")]
    if not all(isinstance(group, (list, tuple)) for group in groups):
        raise ValueError("groups must consist of lists of variables.")
    if len(set(variables)) < len(variables):
        raise ValueError("A variable can only appear once in groups.")

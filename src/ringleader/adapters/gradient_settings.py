"""How an optimizer or a tape exchanges gradients, as a script asks for it: the same in every framework."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.adapters.compression import NoneCompressor, check_compression
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average
from ringleader.engine.operations import ReduceOp

Groups = int | Sequence[Sequence[Any]] | None


@dataclass(frozen=True, kw_only=True)
class GradientSettings:
    """How gradients are exchanged. Equal on all ranks. `ValueError` where settings contradict each other."""

    name: str = ""
    """How messages call the exchange; one of that name is under way at a time."""
    compression: Any = NoneCompressor
    """What makes dense gradients smaller for the wire: ``compress`` and ``decompress``."""
    op: ReduceOp = Average
    """The reduction."""
    predivide: float = 1.0
    """What of an average's division happens before the sum: division by this; the rest happens after it."""
    groups: Groups = None
    """Gradients that are reduced together: lists of parameters, or the number of groups; None: all, or by
    size."""
    sparse_as_dense: bool = False
    """Whether sparse gradients are exchanged as dense ones."""
    process_set: ProcessSet = global_process_set
    """The ranks that exchange gradients."""
    passes: int = 1
    """Gradients of this many backward passes are added up here before they are exchanged and applied."""
    average_passes: bool = False
    """Whether their mean is applied, not their sum."""
    scale_local_gradients: bool = True
    """Whether gradients that are not exchanged are divided by the number of ranks."""

    def __post_init__(self) -> None:
        """Check what can be checked in every framework."""
        if self.predivide != 1.0 and self.op is not Average:
            raise ValueError("gradient_predivide_factor not supported with op != Average")
        check_compression(self.compression)

    @property
    def reduction(self) -> tuple[ReduceOp, float, float]:
        """Return the reduction, the factor before it, and the factor after it beside a mean's division."""
        return self.op, 1.0 / self.predivide, float(self.predivide)


def checked_groups(
    groups: Any,
    num_groups: int,
    *,
    wanted: str,
    kind: str,
    word: str = "variable",
    key: Callable[[Any], object] = id,
    is_member: Callable[[Any], bool] = lambda _one: True,
) -> Groups:
    """Return valid groups; `ValueError` otherwise. ``num_groups`` is the older name of an integer.

    ``wanted`` says what groups may be, ``kind`` and ``word`` what is in them, and ``key`` which are the same.
    """
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups`", DeprecationWarning, stacklevel=4
        )
        groups = num_groups if groups is None else groups
    if groups is None:
        return None
    if isinstance(groups, int) and not isinstance(groups, bool) and groups > 0:
        return groups
    if not isinstance(groups, (list, tuple)):
        raise ValueError(f"groups should be {wanted}.")
    seen: set[object] = set()
    for group in groups:
        if not isinstance(group, (list, tuple)) or not all(map(is_member, group)):
            raise ValueError(f"groups must consist of lists of {kind}.")
        for one in group:
            if key(one) in seen:
                raise ValueError(f"A {word} can only appear once in groups.")
            seen.add(key(one))
    return groups


def weights_of(layers: Any, refusal: str) -> list[Any]:
    """Return what a layer of Keras, or several, train; `ValueError` of these words for anything else."""
    every = layers if isinstance(layers, (list, tuple, set)) else [] if layers is None else [layers]
    if not all(hasattr(layer, "trainable_weights") for layer in every):
        raise ValueError(refusal)
    return [weight for layer in every for weight in layer.trainable_weights]

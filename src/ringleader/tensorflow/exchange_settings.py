"""How a tape or an optimizer exchanges gradients, checked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ringleader.collectives.operations import ReduceOp
from ringleader.common.compression import check_compression
from ringleader.common.process_sets import ProcessSet, number_of
from ringleader.common.reductions import Adasum, Average, Sum, handle_average_backwards_compatibility

Groups = int | Sequence[Sequence[Any]] | None


@dataclass(frozen=True, kw_only=True)
class ExchangeSettings:
    """How gradients are exchanged. Equal on all ranks."""

    compression: Any
    """What makes dense gradients smaller for the wire: ``compress`` and ``decompress``."""
    sparse_as_dense: bool
    """Whether IndexedSlices are exchanged as dense tensors."""
    op: ReduceOp
    """The reduction."""
    predivide: float
    """What of an average's division happens before the sum: division by this; the rest happens after it."""
    groups: Groups
    """Variables whose gradients are reduced together: lists of them, or the number of groups; None: all."""
    process_set: ProcessSet
    """The ranks that exchange gradients."""

    @property
    def prescale(self) -> float:
        """Return the factor on each rank's gradients before the sum."""
        return 1.0 / self.predivide

    @property
    def postscale(self) -> float:
        """Return the factor on the result, beside the division of an average."""
        return self.predivide

    def check(self, *, sparse: bool) -> None:
        """Refuse a reduction that sparse gradients do not have."""
        if sparse and self.op not in (Average, Sum):
            raise NotImplementedError(
                f"op={self.op.name.title()} has no meaning for tf.IndexedSlices; pass sparse_as_dense=True, "
                "or op=hvd.Average or hvd.Sum"
            )

    def grouped(self, present: Sequence[int], variables: Sequence[Any] | None) -> tuple[tuple[int, ...], ...]:
        """Return groups of the gradients that are there, as indices into ``present``.

        ``present`` are the places of these gradients among all, and among the variables. A variable that is
        in no group makes one alone.
        """
        everything = tuple(range(len(present)))
        if self.groups is None:
            return (everything,) if everything else ()
        if isinstance(self.groups, int):
            size = -(-len(present) // min(self.groups, len(present) or 1)) or 1
            return tuple(everything[start : start + size] for start in everything[::size])
        if variables is None:
            raise ValueError("groups of variables need the variables of the gradients")
        at = {key(variables[place]): index for index, place in enumerate(present)}
        found = [tuple(at.pop(key(one)) for one in group if key(one) in at) for group in self.groups]
        return tuple(group for group in (*found, *((index,) for index in at.values())) if group)

    def scaled_rows(self, values: Any) -> Any:
        """Return gathered values as the reduction has them."""
        if self.op is not Average:
            return values
        return values / tf.cast(self.process_set.size(), values.dtype)


def key(variable: Any) -> int:
    """Return what a variable or tensor is known by in a dictionary; Keras' hold one of TensorFlow's."""
    inner = getattr(variable, "_value", variable)
    return id(inner if isinstance(inner, tf.Variable) else variable)


def checked_settings(
    *,
    compression: Any,
    sparse_as_dense: bool,
    op: ReduceOp,
    gradient_predivide_factor: float,
    num_groups: int,
    groups: Any,
    process_set: ProcessSet,
) -> ExchangeSettings:
    """Return the settings that a script asks for; `ValueError` where they contradict each other."""
    op = handle_average_backwards_compatibility(op, None)
    check_compression(compression)
    if gradient_predivide_factor != 1.0 and op is not Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if op is Adasum and number_of(process_set) != 0:
        raise NotImplementedError("Adasum does not support non-global process sets.")
    return ExchangeSettings(
        compression=compression,
        sparse_as_dense=sparse_as_dense,
        op=op,
        predivide=float(gradient_predivide_factor),
        groups=_checked_groups(groups, num_groups),
        process_set=process_set,
    )


def _checked_groups(groups: Any, num_groups: int) -> Groups:
    """Return valid groups. ``num_groups`` is the older name of an integer."""
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
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    seen: set[int] = set()
    for group in groups:
        if not isinstance(group, (list, tuple)):
            raise ValueError("groups must consist of lists of tf.Variable.")
        for variable in group:
            if key(variable) in seen:
                raise ValueError("A variable can only appear once in groups.")
            seen.add(key(variable))
    return groups

"""Tapes whose gradients are those of all ranks. Signatures and their order are Horovod's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import tensorflow as tf

from ringleader.adapters.gradient_settings import weights_of
from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.adapters.reductions import Average
from ringleader.tensorflow.compression import Compression
from ringleader.tensorflow.gradient_exchange import GradientExchange, checked_settings, key
from ringleader.tensorflow.util import called_as_written, traced_as_written

NAME = "DistributedGradientTape_Allreduce"
"""How messages call the exchange of a tape's gradients."""


class DistributedTape:
    """What precedes the class of the wrapped tape."""

    _exchange: GradientExchange

    @property
    def process_set(self) -> ProcessSet:
        """The ranks that exchange gradients."""
        return self._exchange.settings.process_set

    @property
    def scale_local_gradients(self) -> bool:
        """Whether gradients of local sources are divided by the number of ranks."""
        return self._exchange.settings.scale_local_gradients

    def register_local_source(self, source: Any) -> None:
        """Have a variable or tensor keep its local gradients: they are not exchanged.

        They are divided by the number of ranks unless ``scale_local_gradients`` was turned off.
        """
        self._exchange.local[key(source)] = source

    @traced_as_written
    def gradient(
        self,
        target: Any,
        sources: Any,
        output_gradients: Any = None,
        use_generic_names: bool = False,
        unconnected_gradients: Any = tf.UnconnectedGradients.NONE,
    ) -> Any:
        """Return the gradients of all ranks, in the structure of ``sources``; all ranks call it.

        Gradients that are None are left out, on all ranks the same ones. ``use_generic_names`` is Horovod's
        and changes nothing: names are the same on all ranks anyway.
        """
        found = super().gradient(  # type: ignore[misc]
            target, sources, output_gradients, unconnected_gradients=unconnected_gradients
        )
        reduced = self._exchange(tf.nest.flatten(found), tf.nest.flatten(sources))
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(
        self,
        target: Any,
        sources: Sequence[Any],
        output_gradients: Any = None,
        use_generic_names: bool = False,
    ) -> tuple[list[tuple[Any, Any]], list[tuple[Any, Any]]]:
        """Return (source, gradient) pairs of the local sources, and of the others."""
        gradients = self.gradient(target, sources, output_gradients, use_generic_names)
        pairs = list(zip(tf.nest.flatten(sources), tf.nest.flatten(gradients), strict=True))
        is_local = self._exchange.local
        local = [pair for pair in pairs if key(pair[0]) in is_local]
        return local, [pair for pair in pairs if key(pair[0]) not in is_local]


@called_as_written
def DistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a tape that continues from ``gradtape`` and whose `gradient` is reduced over the ranks.

    It is of the class of ``gradtape``; what was recorded is not copied. All gradients of a call travel
    together, also in a ``tf.function``, in ``groups`` where these are given: a number, or lists of variables.
    ``gradient_predivide_factor``: what of an average's division happens before the sum. ``device_dense`` and
    ``device_sparse`` are Horovod's and change nothing: gradients are exchanged in host memory.

    `ValueError` where the arguments contradict each other.
    """
    words = dict(locals())
    for name in ("gradtape", "device_dense", "device_sparse"):
        del words[name]
    settings = checked_settings(**words)
    if not isinstance(gradtape, tf.GradientTape):
        raise ValueError(f"DistributedGradientTape wraps a tf.GradientTape, not {type(gradtape).__name__}")
    cls = _class_of(gradtape.__class__)
    tape = cls.__new__(cls)
    tape.__dict__.update(gradtape.__dict__)
    tape._recording = False
    tape._exchange = GradientExchange(settings, NAME)
    return tape


@lru_cache(maxsize=64)
def _class_of(base: Any) -> Any:
    """Return the class of tapes of class ``base`` that exchange gradients; it has the name of ``base``."""
    if issubclass(base, DistributedTape):  # a tape that is wrapped again goes by the new settings only
        return base
    return type(base.__name__, (DistributedTape, base), {})


@called_as_written
def PartialDistributedGradientTape(  # noqa: N802 (Horovod's name)
    gradtape: tf.GradientTape,
    device_dense: str = "",
    device_sparse: str = "",
    compression: Any = Compression.none,
    sparse_as_dense: bool = False,
    op: Any = Average,
    gradient_predivide_factor: float = 1.0,
    num_groups: int = 0,
    groups: Any = None,
    process_set: ProcessSet = global_process_set,
    local_layers: Any = None,
    scale_local_gradients: bool = True,
) -> Any:
    """Return a `DistributedGradientTape` that leaves the gradients of some Keras layers to each rank.

    ``local_layers`` is a layer or several. See `DistributedTape.register_local_source`.
    """
    words = dict(locals())  # all but the layers are of a `DistributedGradientTape`
    kind = "All local layers must be of tf.keras.layers.Layer type."
    variables = weights_of(words.pop("local_layers"), kind)
    tape = DistributedGradientTape(**words)
    for variable in variables:
        tape.register_local_source(variable)
    return tape

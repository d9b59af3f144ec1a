"""`LocalGradientAggregationHelper` with the arguments that it takes in TensorFlow 2, under Horovod's name."""

from __future__ import annotations

from ringleader.adapters.process_sets import ProcessSet, global_process_set
from ringleader.tensorflow.gradient_aggregation import Exchange, LocalGradientAggregationHelper


class LocalGradientAggregationHelperEager(LocalGradientAggregationHelper):
    """Adds up gradients, eagerly or in a ``tf.function``."""

    def __init__(
        self,
        backward_passes_per_step: int,
        allreduce_func: Exchange,
        sparse_as_dense: bool,
        average_aggregated_gradients: bool,
        process_set: ProcessSet = global_process_set,
        scale_local_gradients: bool = True,
    ) -> None:
        """See `LocalGradientAggregationHelper`."""
        super().__init__(
            backward_passes_per_step,
            allreduce_func,
            sparse_as_dense,
            average_aggregated_gradients,
            process_set=process_set,
            scale_local_gradients=scale_local_gradients,
        )

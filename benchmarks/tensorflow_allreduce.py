"""Time of an eager allreduce of TensorFlow tensors on two ranks, against the engine on the same bytes.

    python benchmarks/tensorflow_allreduce.py [--rounds 30] [--ranks 2]

Both run in the same processes in turns. What lies between them is the way from TensorFlow's tensors to the
engine and back. Printed are medians per call and the median of the ratios within rounds; on a machine that is
never quiet, the ratio of the fastest rounds says more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys

from _pairs import best_ratio, context, in_turns, keep, pin, ratio, under_mpirun, verdict

SIZES = {"1 MiB": (1 << 20, 20), "16 MiB": (16 << 20, 3)}
"""Bytes of a tensor, and calls in a block."""
MOST = 1.3
"""Most times the engine's time."""


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument(
        "--pin", action="store_true", help="one core per rank: for a machine with nothing else to do"
    )
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    import numpy as np
    import tensorflow as tf

    import ringleader.tensorflow as hvd
    from ringleader.adapters.array_operations import ALLREDUCE
    from ringleader.adapters.basics import barrier

    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    result = {}
    for name, (nbytes, block) in SIZES.items():
        array = np.full(nbytes // 4, hvd.rank() + 1.0, "float32")
        tensor = tf.constant(array)
        total = hvd.size() * (hvd.size() + 1) / 2
        assert (hvd.allreduce(tensor, op=hvd.Sum).numpy() == total).all()
        assert (ALLREDUCE.run(array, None, hvd.global_process_set, hvd.Sum) == total).all()

        def ours(tensor: tf.Tensor = tensor) -> None:
            hvd.allreduce(tensor, op=hvd.Sum)

        def engine(array: np.ndarray = array) -> None:
            ALLREDUCE.run(array, None, hvd.global_process_set, hvd.Sum)

        arms = {"hvd.allreduce": ours, "engine": engine}
        times = in_turns(arms, meet=barrier, rounds=args.rounds, block=block)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        both = times["hvd.allreduce"], times["engine"]
        result[name] = {"seconds": medians, "ratio": ratio(*both), "fastest": best_ratio(*both)}
        if hvd.rank() == 0:
            shown = ", ".join(f"{arm} {value * 1e6:.0f} µs" for arm, value in medians.items())
            print(f"{name}, {hvd.size()} ranks: {shown}; {result[name]['fastest']:.2f} × in fastest rounds")
            print(verdict("hvd.allreduce over the engine", result[name]["ratio"], MOST, at_most=True))
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep("tensorflow_allreduce", result)
    hvd.shutdown()


if __name__ == "__main__":
    main()

"""Time of ``hvd.allreduce(x)`` as scripts of a framework call it, on two ranks, against the engine's.

    python benchmarks/framework_allreduce.py tensorflow|jax [--rounds 30] [--ranks 2]

``sum`` is the eager call with ``op=hvd.Sum``, against the engine on the same bytes as a NumPy array: between
them is the way from the framework's tensors to the engine and back. ``default`` is the call as it is, an
average, against the engine's sum in place. All run in the same processes in turns. Printed are medians per
call and the median of the ratios within rounds; on a machine that is never quiet, the ratio of the fastest
rounds says more.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Callable
from typing import Any

from _pairs import best_ratio, context, in_turns, keep, pin, ratio, under_mpirun, verdict, words

SIZES = {"1 MiB": (1 << 20, 20), "16 MiB": (16 << 20, 3)}
"""Bytes of a tensor, and calls in a block."""
REQUIRED = {
    "tensorflow": {"sum/engine": 1.3, "default/in place": 1.6},
    "jax": {"sum/engine": 2.5, "default/in place": 3.0},
}
"""Most times the engine's time."""


def adapter(framework: str) -> tuple[Any, Callable[[Any], Any]]:
    """Return the adapter of a framework, and what makes a tensor of an array."""
    if framework == "jax":
        os.environ.setdefault("JAX_PLATFORMS", "cpu")
        import jax.numpy

        import ringleader.jax as hvd_jax

        return hvd_jax, jax.numpy.asarray
    import tensorflow as tf

    import ringleader.tensorflow as hvd_tensorflow

    return hvd_tensorflow, tf.constant


def main() -> None:
    """Run and print."""
    parser = words(__doc__, rounds=30)
    parser.add_argument("framework", choices=list(REQUIRED))
    args = parser.parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    import numpy as np

    from ringleader.adapters.array_operations import ALLREDUCE, ALLREDUCE_IN_PLACE
    from ringleader.adapters.basics import barrier

    hvd, tensor_of = adapter(args.framework)
    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    result, world = {}, hvd.global_process_set
    for name, (nbytes, block) in SIZES.items():
        array = np.full(nbytes // 4, hvd.rank() + 1.0, "float32")
        tensor, zeros = tensor_of(array), np.zeros_like(array)
        total = hvd.size() * (hvd.size() + 1) / 2
        last: dict[str, Any] = {}

        def kept(call: Callable[[], Any], last: dict[str, Any] = last) -> Callable[[], None]:
            def run() -> None:
                last["result"] = call()  # as a loop replaces one result by the next

            return run

        arms = {
            "sum": kept(lambda tensor=tensor: hvd.allreduce(tensor, op=hvd.Sum)),
            "default": kept(lambda tensor=tensor: hvd.allreduce(tensor)),
            "engine": kept(lambda array=array: ALLREDUCE.run(array, None, world, hvd.Sum)),
            "in place": kept(lambda zeros=zeros: ALLREDUCE_IN_PLACE.run(zeros, None, world, hvd.Sum)),
        }
        for arm, want in (("sum", total), ("default", total / hvd.size()), ("engine", total)):
            arms[arm]()
            assert (np.asarray(last["result"]) == want).all(), arm
        times = in_turns(arms, meet=barrier, rounds=args.rounds, block=block)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        both = {pair: tuple(times[arm] for arm in pair.split("/")) for pair in REQUIRED[args.framework]}
        ratios = {pair: ratio(*two) for pair, two in both.items()}
        fastest = {pair: best_ratio(*two) for pair, two in both.items()}
        result[name] = {"seconds": medians, "ratios": ratios, "fastest": fastest}
        if hvd.rank() == 0:
            shown = ", ".join(f"{arm} {value * 1e6:.0f} µs" for arm, value in medians.items())
            print(f"{args.framework}, {name}, {hvd.size()} ranks: {shown}; fastest rounds {fastest}")
            for pair, most in REQUIRED[args.framework].items():
                print(verdict(f"{args.framework}, {name}, {pair}", ratios[pair], most, at_most=True))
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep(f"{args.framework}_allreduce", result)
    hvd.shutdown()


if __name__ == "__main__":
    main()

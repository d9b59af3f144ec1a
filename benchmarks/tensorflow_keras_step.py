"""Time of a training step of a Keras model on two ranks, against TensorFlow's own way between processes.

    python benchmarks/tensorflow_keras_step.py [--rounds 20] [--ranks 2]

Three layers, 512 wide, batch 64 per rank: one `tf.function` with a distributed tape, and the same with
`tf.distribute.MultiWorkerMirroredStrategy`, in the same processes in turns; and a step that exchanges
nothing. Printed are medians per step and the median of the ratios within rounds.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
from collections.abc import Callable
from typing import Any

from _pairs import context, in_step, in_turns, keep, pin, ratio, under_mpirun, verdict, words

WIDTH, BATCH, CLASSES = 512, 64, 10
LEAST = 1.2
"""How many times faster than the strategy."""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def worker_strategy(hvd: Any) -> Any:
    """Return TensorFlow's strategy over the ranks, as workers of a cluster; before any operation of its."""
    import tensorflow as tf

    workers = hvd.allgather_object(f"127.0.0.1:{free_port()}")
    task = {"type": "worker", "index": hvd.rank()}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": {"worker": workers}, "task": task})
    return tf.distribute.MultiWorkerMirroredStrategy()


def model_and_optimizer() -> tuple[Any, Any]:
    """Return the net and what trains it, with variables."""
    import tensorflow as tf

    dense = tf.keras.layers.Dense
    layers = [tf.keras.Input((WIDTH,)), *(dense(WIDTH, "relu") for _ in range(3)), dense(CLASSES)]
    model = tf.keras.Sequential(layers)
    optimizer = tf.keras.optimizers.SGD(0.001, momentum=0.9)
    optimizer.build(model.trainable_variables)
    return model, optimizer


def stepper(wrap: Callable[[Any], Any], strategy: Any = None) -> Callable[[], None]:
    """Return one training step; with a strategy its replica on this process takes it."""
    import contextlib

    import tensorflow as tf

    with strategy.scope() if strategy else contextlib.nullcontext():
        model, optimizer = model_and_optimizer()
        inputs = tf.random.normal((BATCH, WIDTH))
        labels = tf.random.uniform((BATCH,), 0, CLASSES, tf.int32)

    def step() -> None:
        with tf.GradientTape() as tape:
            logits = model(inputs, training=True)
            loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        gradients = wrap(tape).gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))

    function: Callable[[], None] = tf.function(
        (lambda: strategy.run(step)) if strategy else step, autograph=False
    )
    return function


def main() -> None:
    """Run and print."""
    args = words(__doc__, rounds=20).parse_args()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_USE_LEGACY_KERAS", "1")
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    import ringleader.tensorflow as hvd
    from ringleader.adapters.basics import barrier

    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    strategy = worker_strategy(hvd)
    arms = {
        "ringleader": stepper(hvd.DistributedGradientTape),
        "MultiWorkerMirroredStrategy": stepper(lambda tape: tape, strategy),
        "in step": in_step(stepper(lambda tape: tape), barrier),
        "uncoupled": stepper(lambda tape: tape),
    }
    times = in_turns(arms, meet=barrier, rounds=args.rounds, block=10)
    medians = {arm: statistics.median(values) for arm, values in times.items()}
    ratios = {arm: ratio(times["ringleader"], times[arm]) for arm in times if arm != "ringleader"}
    if hvd.rank() == 0:
        print(f"MLP 3 × {WIDTH}, batch {BATCH}, {hvd.size()} ranks: " + ", ".join(
            f"{arm} {value * 1e3:.2f} ms (best {min(times[arm]) * 1e3:.2f})" for arm, value in medians.items()
        ))  # fmt: skip
        print("    " + ", ".join(f"{value:.3f} × {arm}" for arm, value in ratios.items()))
        print(
            verdict(
                "TensorFlow step, the strategy over ours", 1 / ratios["MultiWorkerMirroredStrategy"], LEAST
            )
        )
        print(f"    {context()}")
        keep("tensorflow_keras_step", {"seconds": medians, "ours over": ratios, "rounds": args.rounds})
    hvd.shutdown()
    os._exit(0)  # the strategy's threads wait for processes that are gone


if __name__ == "__main__":
    main()

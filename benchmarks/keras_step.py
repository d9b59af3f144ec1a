"""Time of a training step of Keras on two ranks, against ranks that exchange nothing.

    KERAS_BACKEND=jax python benchmarks/keras_step.py [--rounds 20] [--ranks 2]

Three layers of 512, batch 64, in `fit`: 3.2 MB of gradients. KERAS_BACKEND is jax (the default), torch or
tensorflow; with TF_USE_LEGACY_KERAS=1 it is Keras 2. Both arms run in the same processes in turns.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Sequence

import numpy as np

from _pairs import best_ratio, context, in_turns, keep, pin, ratio, under_mpirun, verdict

STEPS = 20
"""Steps of one call of `fit`."""
REQUIRED = {"jax": 2.5}
"""Backend → most times the uncoupled step."""


def stepper(build: Callable[[], object], callbacks: Sequence[object] = ()) -> Callable[[], None]:
    """Return one call of `fit`."""
    model = build()
    random = np.random.default_rng(0)
    x = random.normal(size=(64 * STEPS, 512)).astype("float32")
    y = random.normal(size=(64 * STEPS, 1)).astype("float32")

    def fit() -> None:
        model.fit(x, y, batch_size=64, verbose=0, shuffle=False, callbacks=list(callbacks))

    return fit


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pin", action="store_true", help="one core per rank: threads do not race")
    args = parser.parse_args()
    os.environ.setdefault("KERAS_BACKEND", "jax")
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    import ringleader.keras as hvd
    from ringleader.keras.keras_version import backend, is_keras2, keras

    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    layers = keras().layers

    def build(wrap: Callable[[object], object]) -> object:
        hidden = [layers.Dense(512, activation="relu") for _ in range(3)]
        model = keras().Sequential([layers.Input((512,)), *hidden, layers.Dense(1)])
        model.compile(optimizer=wrap(keras().optimizers.SGD(1e-4)), loss="mse")
        return model

    class Meeting(keras().callbacks.Callback):  # type: ignore[misc,name-defined]
        """Has the ranks synchronize after each step."""

        def on_train_batch_end(self, batch: int, logs: object = None) -> None:
            hvd.barrier()

    arms = {
        "ringleader": stepper(lambda: build(hvd.DistributedOptimizer)),
        "in step": stepper(lambda: build(lambda optimizer: optimizer), [Meeting()]),
        "uncoupled": stepper(lambda: build(lambda optimizer: optimizer)),
    }
    for arm in arms.values():
        arm()  # compiles
    times = in_turns(arms, meet=hvd.barrier, rounds=args.rounds, block=1)
    seconds = {arm: statistics.median(values) / STEPS for arm, values in times.items()}
    middle = ratio(times["ringleader"], times["uncoupled"])
    best = best_ratio(times["ringleader"], times["uncoupled"])
    name = "keras2" if is_keras2() else backend()
    if hvd.rank() == 0:
        told = ", ".join(f"{arm} {value * 1e3:.2f} ms" for arm, value in seconds.items())
        print(f"Keras step, {name}, {hvd.size()} ranks: {told}")
        print(f"    {middle:.2f} × uncoupled, {best:.2f} × in the fastest rounds")
        print(f"    {ratio(times['ringleader'], times['in step']):.2f} × barrier-only ranks")
        if name in REQUIRED:
            print(verdict(f"Keras step, {name}, ours over uncoupled", middle, REQUIRED[name], at_most=True))
        print(f"    {context()}")
        keep(f"keras_step_{name}", {"seconds": seconds, "ratio": middle, "best": best, "times": times})
    hvd.shutdown()


if __name__ == "__main__":
    main()

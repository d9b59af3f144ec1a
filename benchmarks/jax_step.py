"""Time of a compiled step of JAX on two ranks: against barrier-only ranks, independent ones, and JAX's own
pmean.

    python benchmarks/jax_step.py [--rounds 20] [--ranks 2]

The net has three layers of 512, the batch 64 samples, the optimizer is Adam of optax. All arms run in turns,
so that a busy machine is busy for all of them. Printed are the fastest rounds per step, and the median of the
ratios within rounds. JAX's own way is a mesh over processes, with Gloo between them: each rank has one beside
it, which takes a step when asked through a pipe.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from _pairs import best_ratio, context, in_step, in_turns, keep, pin, ratio, under_mpirun, verdict

LAYERS, WIDTH, BATCH, BLOCK = 3, 512, 64, 10
DONE = "a step is done"


def net() -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the layers' weights, the same on all ranks."""
    drawn = np.random.default_rng(0)
    return [
        (drawn.normal(0, WIDTH**-0.5, (WIDTH, WIDTH)).astype("float32"), np.zeros(WIDTH, "float32"))
        for _ in range(LAYERS)
    ]


def loss_of(layers: Any, inputs: Any, targets: Any) -> Any:
    """Return the mean square error."""
    import jax.numpy as jnp

    for weights, biases in layers:
        inputs = jnp.tanh(inputs @ weights + biases)
    return jnp.mean((inputs - targets) ** 2)


def ours(optimizer: Any, batch: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """Return one training step; its result are the new parameters."""
    import jax
    import optax

    @jax.jit
    def step(layers: Any, state: Any, inputs: Any, targets: Any) -> Any:
        grads = jax.grad(loss_of)(layers, inputs, targets)
        updates, state = optimizer.update(grads, state, layers)
        return optax.apply_updates(layers, updates), state

    layers, inputs, targets = jax.device_put((net(), *batch))
    return keeping(step, layers, optimizer.init(layers), inputs, targets)


def of_jax(optimizer: Any, batch: tuple[np.ndarray, ...]) -> Callable[[], Any]:
    """Return the step in which JAX averages the gradients over a mesh of all processes."""
    import jax
    import optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    split, same = PartitionSpec("ranks"), PartitionSpec()

    @jax.jit
    @jax.shard_map(mesh=mesh, in_specs=(same, same, split, split), out_specs=(same, same), check_vma=False)
    def step(layers: Any, state: Any, inputs: Any, targets: Any) -> Any:
        grads = jax.lax.pmean(jax.grad(loss_of)(layers, inputs, targets), "ranks")
        updates, state = optimizer.update(grads, state, layers)
        return optax.apply_updates(layers, updates), state

    everywhere = NamedSharding(mesh, same)
    layers = jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(everywhere, leaf), net())
    rows = NamedSharding(mesh, split)
    inputs, targets = (jax.make_array_from_process_local_data(rows, part) for part in batch)
    return keeping(step, layers, jax.jit(optimizer.init)(layers), inputs, targets)


def keeping(step: Any, layers: Any, state: Any, inputs: Any, targets: Any) -> Callable[[], Any]:
    """Return a function that takes one step from where the last one came, and waits for it."""
    import jax

    now = [layers, state]

    def run() -> Any:
        now[:] = jax.block_until_ready(step(*now, inputs, targets))
        return now[0]

    return run


def serve(address: str, size: int, rank: int) -> None:
    """Be the process beside a rank: take a step of JAX's own for each line of input, then say so."""
    import jax
    import optax

    jax.distributed.initialize(address, size, rank, local_device_ids=[0])
    step = of_jax(optax.adam(1e-3), batch_of(rank))
    for line in sys.stdin:
        layers = step()
        first = np.asarray(layers[0][0].addressable_data(0)).tobytes().hex() if line == "check\n" else ""
        print(DONE, first, flush=True)


def beside(rank: int, size: int) -> Callable[..., bytes]:
    """Start the process beside this rank; return a function that has it take a step."""
    from ringleader.jax import broadcast_object

    with socket.socket() as free:
        free.bind(("", 0))
        port = broadcast_object(free.getsockname()[1])
    words = ["--serve", f"127.0.0.1:{port}", str(size), str(rank)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMIX_"))}
    process = subprocess.Popen(
        [sys.executable, __file__, *words],
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def step(word: str = "step") -> bytes:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"{word}\n")
        process.stdin.flush()
        while not (line := process.stdout.readline()).startswith(DONE):  # Gloo has things to say there, too
            if not line:
                sys.exit("the process of JAX's own has ended")
        return bytes.fromhex(line.removeprefix(DONE).strip())

    return step


def batch_of(rank: int) -> tuple[np.ndarray, ...]:
    """Return a rank's inputs and targets."""
    drawn = np.random.default_rng(rank + 1)
    return tuple(drawn.normal(size=(BATCH, WIDTH)).astype("float32") for _ in range(2))


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--pin", action="store_true", help="one core per rank")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
    if args.serve:
        serve(args.serve[0], int(args.serve[1]), int(args.serve[2]))
        return
    if under_mpirun(args.ranks, __file__, sys.argv[1:]):
        return
    import optax

    import ringleader.jax as hvd

    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    batch = batch_of(hvd.rank())
    arms = {
        "ringleader": ours(hvd.DistributedOptimizer(optax.adam(1e-3)), batch),
        "in step": in_step(ours(optax.adam(1e-3), batch), hvd.barrier),
        "uncoupled": ours(optax.adam(1e-3), batch),
        "JAX's pmean": beside(hvd.rank(), hvd.size()),
    }
    check(arms)
    times = in_turns(arms, meet=hvd.barrier, rounds=args.rounds, block=BLOCK)
    fastest = {arm: min(values) for arm, values in times.items()}
    ratios = {arm: ratio(times["ringleader"], times[arm]) for arm in times if arm != "ringleader"}
    best = {arm: best_ratio(times["ringleader"], times[arm]) for arm in ratios}
    if hvd.rank() == 0:
        print(
            f"JAX MLP {LAYERS} × {WIDTH}, batch {BATCH}, {hvd.size()} ranks: "
            + ", ".join(f"{arm} {seconds * 1e3:.2f} ms" for arm, seconds in fastest.items())
        )
        print(
            "    "
            + ", ".join(f"{ratios[arm]:.3f} × {arm} (fastest rounds {best[arm]:.3f})" for arm in ratios)
        )
        print(verdict("JAX step, ours over uncoupled", best["uncoupled"], 2.5, at_most=True))
        print(f"    {context()}")
        keep("jax_step", {"fastest": fastest, "ours over": ratios, "rounds": args.rounds, "block": BLOCK})
    hvd.shutdown()


def check(arms: dict[str, Callable[..., Any]]) -> None:
    """Compare what is timed: one step of ours and of JAX's own gives the same parameters."""
    mine, theirs = np.asarray(arms["ringleader"]()[0][0]), arms["JAX's pmean"]("check")
    if not np.allclose(mine.reshape(-1), np.frombuffer(theirs, "float32"), atol=1e-4):
        sys.exit("a step of ours and one of JAX's own differ")


if __name__ == "__main__":
    main()

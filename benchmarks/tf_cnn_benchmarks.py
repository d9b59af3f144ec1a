"""Images per second of tf_cnn_benchmarks on two ranks: coupled by Horovod's API, against as many uncoupled.

    python benchmarks/tf_cnn_benchmarks.py CHECKOUT [--rounds 3] [--model NAME ...]

CHECKOUT is the unmodified directory scripts/tf_cnn_benchmarks of github.com/tensorflow/benchmarks; without it
the variable TF_CNN_BENCHMARKS counts. Independent ranks run the same script, at the same time, on its
variables of one process (``--variable_update=independent``): they have nothing of Ringleader's in them. Each
rank has one thread to compute with.

The two take turns. A run's result is the sum over the ranks of the batch divided by the fastest step that the
lines tell, or the script's own mean: what a machine that is never quiet leaves of both.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from _pairs import context, keep, verdict

MODELS: dict[str, tuple[str, ...]] = {
    "resnet20": ("--data_name=cifar10", "--model=resnet20"),
    "trivial": ("--model=trivial",),
}
REQUIRED = {"resnet20": 0.75, "trivial": 0.6}
"""Coupled over uncoupled, of the best rounds."""
BATCH = 32
ROW = re.compile(r"^\[(\d+)\] (\d+)\timages/sec: ([\d.]+) ", re.MULTILINE)
"""Rank, step, and the mean rate of this rank's steps so far."""


def fastest(rows: Sequence[tuple[int, float]]) -> float:
    """Return the best rate between two rows of one rank; each tells the mean rate since the first step."""
    best, before, seconds = 0.0, 0, 0.0
    for step, rate in rows:
        total = step / rate
        if before:
            best = max(best, (step - before) / max(total - seconds, 1e-9))
        before, seconds = step, total
    return best


def run(
    checkout: Path, words: Sequence[str], *, coupled: bool, steps: int, ranks: int
) -> tuple[float, float]:
    """Return images per second over all ranks: of the fastest stretch of each rank, and of the whole run."""
    script = str(checkout / "tf_cnn_benchmarks.py")
    options = [
        "--device=cpu",
        "--data_format=NHWC",
        f"--batch_size={BATCH}",
        f"--num_batches={steps}",
        "--num_warmup_batches=5",
        f"--display_every={max(steps // 10, 1)}",
        "--num_intra_threads=1",
        f"--variable_update={'horovod' if coupled else 'independent'}",
    ]
    command = [sys.executable, "-m", "ringleader", "run", "--as-horovod", "--oversubscribe", "-n", str(ranks)]
    command += ["--timeout", "900", "--", sys.executable, "-u", script, *words, *options]
    environ = {"TF_USE_LEGACY_KERAS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "TF_NUM_INTRAOP_THREADS": "1"}
    result = subprocess.run(
        command, env=os.environ | environ, capture_output=True, text=True, timeout=960, check=False
    )
    rows: dict[int, list[tuple[int, float]]] = {rank: [] for rank in range(ranks)}
    for rank, step, rate in ROW.findall(result.stdout):
        rows[int(rank)].append((int(step), float(rate)))
    if result.returncode or not all(len(told) > 1 for told in rows.values()):
        sys.exit(f"{' '.join(command)}\n{result.stdout[-3000:]}{result.stderr[-3000:]}")
    return sum(map(fastest, rows.values())), sum(told[-1][1] for told in rows.values())


def compare(checkout: Path, model: str, args: argparse.Namespace) -> dict[str, object]:
    """Run both in turns and print what came of it."""
    rates: dict[str, list[tuple[float, float]]] = {"coupled": [], "uncoupled": []}
    for turn in range(args.rounds):
        for name in ("coupled", "uncoupled") if turn % 2 else ("uncoupled", "coupled"):
            rates[name].append(
                run(checkout, MODELS[model], coupled=name == "coupled", steps=args.steps, ranks=args.ranks)
            )
    ratios = [
        max(one[at] for one in rates["coupled"]) / max(one[at] for one in rates["uncoupled"]) for at in (0, 1)
    ]
    print(f"{model}, batch {BATCH}, {args.ranks} ranks with one thread each, images/s over all ranks")
    for name, values in rates.items():
        told = ", ".join(f"{stretch:.1f} ({mean:.1f})" for stretch, mean in values)
        print(f"    {name}, fastest stretch (mean) of each run: {told}")
    print(verdict(f"{model}: coupled over uncoupled, fastest stretches", ratios[0], REQUIRED[model]))
    print(f"    best runs, as the script counts: {ratios[1]:.2f}", flush=True)
    return {"rates": rates, "ratio": ratios[0], "ratio of means": ratios[1]}


def main() -> None:
    """Compare for each model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("checkout", nargs="?", default=os.environ.get("TF_CNN_BENCHMARKS", ""))
    parser.add_argument("--model", action="append", choices=sorted(MODELS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--ranks", type=int, default=2)
    args = parser.parse_args()
    if not args.checkout:
        sys.exit(
            "name a checkout: scripts/tf_cnn_benchmarks of github.com/tensorflow/benchmarks, as an argument "
            "or in TF_CNN_BENCHMARKS"
        )
    checkout = Path(args.checkout)
    if not (checkout / "tf_cnn_benchmarks.py").is_file():
        sys.exit(f"{checkout} has no tf_cnn_benchmarks.py: name the directory scripts/tf_cnn_benchmarks")
    results = {model: compare(checkout, model, args) for model in args.model or MODELS}
    print(f"    {context()}")
    keep("tf_cnn_benchmarks", {"ranks": args.ranks, "batch": BATCH, "steps": args.steps, **results})


if __name__ == "__main__":
    main()

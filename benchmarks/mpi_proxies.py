"""What MPI proxies cost: the same job elastic, where MPI lives in proxies beside the ranks, and not elastic.

    python benchmarks/mpi_proxies.py [--rounds 4] [--lab NAME] [LAYOUT …]

Layouts: ``1 rank`` and ``2 ranks`` on this machine, and ``lab 2x1``, two hosts of a lab that is up with one
rank each, where every byte goes through MPI. Both arms are started by ``ringleader run``, in turns. ``MLP``
and ``CNN`` are training steps, the rest all-reduces of an ordinary tensor, one at a time. A ratio is the
median over the rounds of that of the medians in a round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _pairs import context, keep, ratio, verdict

SIZES = (8, 4096, 1 << 20)
"""Bytes."""
SECONDS, WARM = 1.5, 10
"""How long each case is repeated in a job, and how often before that."""
LIMIT_SECONDS = 90
MOST_OF_A_STEP = 1.02
"""On one host with one rank."""
RESULTS = Path(__file__).parent / "results" / "mpi_proxies.json"


def measure(place: Path) -> None:
    """Be a rank: the median seconds of each case, as rank 0 writes them down."""
    import torch

    import ringleader.torch as hvd

    hvd.init()
    torch.manual_seed(0)
    found = {"MLP": timed(mlp_step()), "CNN": timed(cnn_step())}
    for nbytes in SIZES if hvd.size() > 1 else ():
        tensor = torch.zeros(nbytes // 4)
        found[f"{nbytes:,} B"] = timed(lambda one=tensor: hvd.allreduce_(one, name=f"of {one.numel()}"))
    if hvd.rank() == 0:
        place.write_text(json.dumps(found))
    hvd.shutdown()


def timed(act: Callable[[], Any]) -> float:
    """Return the median seconds of a call that all ranks make equally often."""
    import torch

    import ringleader.torch as hvd

    start = time.perf_counter()
    for _ in range(WARM):
        act()
    each = (time.perf_counter() - start) / WARM
    times = int(hvd.allreduce(torch.tensor(max(20.0, min(SECONDS / each, 5000)))))
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def step_of(model: Any, batch: Any) -> Callable[[], None]:
    """Return a training step."""
    import torch

    import ringleader.torch as hvd

    sgd = torch.optim.SGD(model.parameters(), lr=0.001)
    optimizer = hvd.DistributedOptimizer(sgd, model.named_parameters())

    def step() -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

    return step


def mlp_step() -> Callable[[], None]:
    """Return a step of 4 layers of 1024, 17 MB of gradients."""
    import torch

    return step_of(
        torch.nn.Sequential(*(torch.nn.Linear(1024, 1024) for _ in range(4))), torch.randn(64, 1024)
    )


def cnn_step() -> Callable[[], None]:
    """Return a step of a small convolutional net, 0.5 MB of gradients."""
    import torch
    from torch import nn

    layers = (
        nn.Conv2d(1, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
    )
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(512, 200), nn.ReLU(), nn.Linear(200, 10))
    return step_of(model, torch.randn(32, 1, 28, 28))


def job(where: list[str], *, elastic: bool, ranks: int) -> dict[str, float]:
    """Run a job; return the seconds of each case."""
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory) / "seconds"
        least = ["--min-np", str(ranks)] if elastic else []
        command = [sys.executable, "-m", "ringleader", "run", "-n", str(ranks), *where, *least]
        command += [sys.executable, __file__, "--rank", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
        found: dict[str, float] = json.loads(place.read_text())
        return found


def compare(layout: str, where: list[str], ranks: int, rounds: int) -> list[dict[str, Any]]:
    """Run both arms in turns; return a row for each case."""
    load = os.getloadavg()[0]
    arms: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    for turn in range(rounds):
        for elastic in (False, True) if turn % 2 == 0 else (True, False):
            arms[elastic].append(job(where, elastic=elastic, ranks=ranks))
    rows = []
    for case in arms[False][0]:
        direct, proxies = ([one[case] for one in arms[elastic]] for elastic in (False, True))
        row = {
            "layout": layout,
            "case": case,
            "direct_seconds": statistics.median(direct),
            "proxies_seconds": statistics.median(proxies),
            "ratio": ratio(proxies, direct),
            "ratios": [round(one / two, 4) for one, two in zip(proxies, direct, strict=True)],
            "load_before": round(load, 2),
        }
        rows.append(row)
        print(
            f"{layout:8} {case:12} direct {row['direct_seconds'] * 1e6:10.1f} µs   over proxies "
            f"{row['proxies_seconds'] * 1e6:10.1f} µs   ratio {row['ratio']:.3f}   of rounds {row['ratios']}",
            flush=True,
        )
    return rows


def main() -> None:
    """Compare both arms in the layouts that were asked for; rows of others stay as they are."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT", default=["1 rank", "2 ranks"])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--lab", metavar="NAME", default="lab")
    parser.add_argument("--rank", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        measure(args.rank)
        return
    layouts: dict[str, tuple[list[str], int]] = {
        "1 rank": ([], 1),
        "2 ranks": ([], 2),
        # Hosts of a lab share the cores, and each thinks that it has them all.
        "lab 2x1": (["--lab-name", args.lab, "--map-by", "node", "--threads", "1"], 2),
    }
    if unknown := set(args.layouts) - set(layouts):
        parser.error(f"unknown layout {', '.join(sorted(unknown))}: take {', '.join(layouts)}")
    kept = json.loads(RESULTS.read_text())["rows"] if RESULTS.exists() else []
    rows = [row for row in kept if row["layout"] not in args.layouts]
    for layout in args.layouts:
        rows += compare(layout, *layouts[layout], args.rounds)
    for row in rows:
        if row["layout"] == "1 rank":
            what = f"a step of one rank with its proxy, {row['case']}, over the same without"
            print(verdict(what, row["ratio"], MOST_OF_A_STEP, at_most=True))
    keep("mpi_proxies", {"context": context(), "rows": rows})


if __name__ == "__main__":
    main()

"""What the benchmarks of the engine share: ranks under mpirun, rounds in turns, medians and ratios."""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ringleader.agents.usable_cores import usable_cpus
from rows import line

_CHILD = "RINGLEADER_BENCHMARK_RANK"
"""Set for ranks that a benchmark started: how many cores they have together."""


def under_mpirun(ranks: int, script: str, arguments: list[str], mpirun: str | None = None) -> bool:
    """Start the script on ``ranks`` ranks unless this is one of them; return whether it was started."""
    if os.environ.get(_CHILD):
        return False
    here = Path(sys.executable).with_name("mpirun")
    command = [mpirun or str(here), "--allow-run-as-root", "--oversubscribe", "-n", str(ranks)]
    command += [sys.executable, script, *arguments]
    environ = {
        **os.environ,
        _CHILD: str(usable_cpus()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }
    environ.update({"PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"})
    result = subprocess.run(command, env=environ, timeout=1800, check=False)
    if result.returncode:
        sys.exit(result.returncode)
    return True


def pin(rank: int) -> None:
    """Give every rank its own core, as a launcher would."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    everything = range(os.cpu_count() or 1)
    os.sched_setaffinity(0, {(cores if len(cores) > 1 else list(everything))[rank % len(everything)]})


def words(doc: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return what reads the words that benchmarks on one host have in common."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument(
        "--pin", action="store_true", help="one core per rank: for a machine with nothing else to do"
    )
    return parser


def ready(doc: str, script: str, *, rounds: int) -> argparse.Namespace | None:
    """Read the words of a benchmark on one host and join the ranks; None where this process started them."""
    import torch

    import ringleader.torch as hvd

    args = words(doc, rounds=rounds).parse_args()
    if under_mpirun(args.ranks, script, sys.argv[1:]):
        return None
    hvd.init()
    if args.pin:
        pin(hvd.local_rank())
    torch.set_num_threads(1)
    join_gloo()
    return args


def join_gloo() -> None:
    """Make torch.distributed's process group over the ranks of the engine."""
    import torch

    import ringleader.torch as hvd

    first = hvd.rank() == 0
    host = "127.0.0.1" if hvd.size() == hvd.local_size() else socket.gethostname()
    serving = torch.distributed.TCPStore(host, 0, is_master=True, wait_for_workers=False) if first else None
    host, port = hvd.broadcast_object((host, serving.port) if serving is not None else None)
    store = serving or torch.distributed.TCPStore(host, port, is_master=False)
    torch.distributed.init_process_group("gloo", store=store, rank=hvd.rank(), world_size=hvd.size())


def part() -> None:
    """Leave Gloo and the other ranks."""
    import torch

    import ringleader.torch as hvd

    torch.distributed.destroy_process_group()
    hvd.shutdown()


def in_turns(
    arms: dict[str, Callable[[], None]], *, meet: Callable[[], None], rounds: int, block: int
) -> dict[str, list[float]]:
    """Time every arm ``rounds`` times in blocks of calls, in turns; seconds per call of each block."""
    times: dict[str, list[float]] = {name: [] for name in arms}
    names = list(arms)
    for turn in range(rounds):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            arm = arms[name]
            arm()  # the first call after another arm finds the caches cold
            meet()
            start = time.perf_counter()
            for _ in range(block):
                arm()
            times[name].append((time.perf_counter() - start) / block)
            meet()
    return times


def timed(
    arms: dict[str, Callable[[], Any]], *, meet: Callable[[], None], rounds: int, nbytes: int
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Time arms that reduce ``nbytes`` each, in blocks of about 16 MiB; return times and their medians."""
    block = max(1, min(200, (16 << 20) // nbytes))
    times = in_turns(arms, meet=meet, rounds=rounds, block=block)
    return times, {name: statistics.median(values) for name, values in times.items()}


def in_step(step: Callable[[], Any], barrier: Callable[[], None]) -> Callable[[], Any]:
    """Return a step after which the ranks synchronize: what being in step costs is not the exchange's."""

    def run() -> Any:
        result = step()
        barrier()
        return result

    return run


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median over rounds of the ratio within each round: what the machine does to both cancels."""
    return statistics.median(one / two for one, two in zip(ours, theirs, strict=True))


def best_ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the ratio of the fastest rounds: what a machine that is never quiet leaves of both."""
    return min(ours) / min(theirs)


def verdict(
    what: str, reached: float, required: float, *, at_most: bool = False, aim: float | None = None
) -> str:
    """Return one line: what was required and what was reached. Rows of the final table: `rows.required`."""
    return line(what, reached, required, at_most=at_most, aim=aim)


def context() -> dict[str, Any]:
    """Return what a number means nothing without."""
    load = os.getloadavg()[0]
    return {
        # A rank may have its own core; what counts is what all of them have.
        "cores": int(os.environ.get(_CHILD) or usable_cpus()),
        "load": round(load, 2),
        "machine": platform.machine(),
        "python": platform.python_version(),
    }


def keep(name: str, result: dict[str, Any]) -> None:
    """Write a result with its context next to the earlier ones."""
    directory = Path(__file__).parent / "results"
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.json").write_text(json.dumps({"context": context(), **result}, indent=1) + "\n")

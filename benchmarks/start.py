"""How long a job takes to start and end: `ringleader run` against a bare `mpirun` of the same ranks.

    python benchmarks/start.py [--pairs 15] [-n 2]      on this machine
    python benchmarks/start.py --lab                    on all slots of the lab that is up, both over its ssh

The command does nothing, so that only starting and ending is timed: `true` here, in the lab `sleep 1` on
both sides, because Open MPI 5's mpirun often hangs where ranks of several hosts end as soon as they began
(`ringleader run` does not). Runs alternate, mpirun first in one pair and second in the next: a machine that
is busy for a while is busy for both. Printed are medians, the median of the differences within pairs, and
of the ratios; the difference is compared with what is required.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from compileall import compile_dir
from dataclasses import dataclass
from pathlib import Path

from tabulate import tabulate

import ringleader
from _pairs import keep, verdict
from ringleader.errors import RingleaderError
from ringleader.lab import saved_state
from rows import BY_CASE, required

IN_LAB = 0.8
"""Seconds that `ringleader run` may take longer in the lab, its probe included."""

NOTHING_FOR_LONG = ("sleep", "1")
"""What the lab's ranks do; see above."""

MPIRUN = Path(sys.executable).with_name("mpirun")


@dataclass(frozen=True, kw_only=True)
class Contest:
    """Two commands that start the same ranks, and how much slower ours may be."""

    name: str
    """Of the file with the result."""
    title: str
    ours: tuple[str, ...]
    theirs: tuple[str, ...]
    environ: dict[str, str]
    """Variables that mpirun needs."""
    allowed: float
    """Seconds."""


def here(ranks: int) -> Contest:
    """Ranks on this machine."""
    return Contest(
        name="start",
        title=f"{ranks} ranks on this machine",
        ours=(sys.executable, "-m", "ringleader", "run", "--oversubscribe", "-n", str(ranks), "true"),
        theirs=(str(MPIRUN), "-n", str(ranks), "--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none", "true"),
        environ=as_root(),
        allowed=BY_CASE["start of 2 ranks, seconds"].required,
    )


def in_lab(name: str | None) -> Contest:
    """One rank on every slot of the lab that is up."""
    lab = saved_state.current(name)
    ranks = sum(host.slots for host in lab.hosts)
    where = ("--hostfile", lab.hostfile, "--ssh-config", lab.ssh_config)
    return Contest(
        name="start_lab",
        title=f"{ranks} ranks on {len(lab.hosts)} hosts over ssh",
        ours=(sys.executable, "-m", "ringleader", "run", *where, "-n", str(ranks), *NOTHING_FOR_LONG),
        theirs=(
            *(str(MPIRUN), "--hostfile", lab.hostfile, "-n", str(ranks)),
            *("--map-by", "slot", "--bind-to", "none", *NOTHING_FOR_LONG),
        ),
        environ=as_root()
        | {
            "PRTE_MCA_plm_ssh_agent": f"ssh -F {lab.ssh_config}",
            # The lab's hosts hold no key to each other, so all are reached from here, by both sides.
            "PRTE_MCA_plm_ssh_no_tree_spawn": "1",
        },
        allowed=IN_LAB,
    )


def as_root() -> dict[str, str]:
    """Return the variables without which mpirun refuses root: its two layers ask for two each."""
    if os.geteuid() != 0:
        return {}
    names = ("ALLOW_RUN_AS_ROOT", "ALLOW_RUN_AS_ROOT_CONFIRM")
    return {f"{layer}_{name}": "1" for layer in ("OMPI", "PRTE") for name in names}


def timed(command: tuple[str, ...], environ: dict[str, str]) -> float:
    """Run a command to its end; return seconds. A failure ends the benchmark: its time would mean nothing."""
    start = time.perf_counter()
    try:
        done = subprocess.run(
            command,
            env=os.environ | environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=120,
            check=False,
        )
    except subprocess.TimeoutExpired:
        sys.exit(f"{' '.join(command)}: no end after 120 s")
    seconds = time.perf_counter() - start
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr.decode(errors='replace')}")
    return seconds


def measure(contest: Contest, pairs: int) -> tuple[list[float], list[float]]:
    """Return the seconds of ours and of theirs, pair by pair, after one run of each that does not count."""

    def run_ours() -> float:
        return timed(contest.ours, {})

    def run_theirs() -> float:
        return timed(contest.theirs, contest.environ)

    order: list[Callable[[], float]] = [run_ours, run_theirs]
    seconds: dict[Callable[[], float], list[float]] = {run_ours: [], run_theirs: []}
    for run in order:
        run()
    for _ in range(pairs):
        order.reverse()
        for run in order:
            seconds[run].append(run())
    return seconds[run_ours], seconds[run_theirs]


def version(command: tuple[str, ...]) -> str:
    """Return the first line a program prints about itself."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return (done.stdout or done.stderr).splitlines()[0]


def main() -> None:
    """Measure one contest, print it, keep it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=15, help="runs of each (15)")
    parser.add_argument("-n", type=int, default=2, dest="ranks", help="ranks on this machine (2)")
    parser.add_argument("--lab", nargs="?", const="", metavar="NAME", help="on all slots of a lab that is up")
    args = parser.parse_args()
    if args.pairs < 1 or args.ranks < 1:
        parser.error("--pairs and -n: at least 1")
    try:
        contest = in_lab(args.lab or None) if args.lab is not None else here(args.ranks)
    except RingleaderError as error:
        sys.exit("\n".join(map(str, error.faults)))
    compile_dir(Path(ringleader.__file__).parent, quiet=1)  # as pip does: a shell may keep Python from it
    before = os.getloadavg()[0]
    ours, theirs = measure(contest, args.pairs)
    difference = statistics.median(one - two for one, two in zip(ours, theirs, strict=True))
    ratio = statistics.median(one / two for one, two in zip(ours, theirs, strict=True))
    rows = [
        (name, statistics.median(times), min(times), max(times))
        for name, times in (("ringleader run", ours), ("mpirun", theirs))
    ]
    print(f"{contest.title}, {args.pairs} pairs, seconds")
    print(tabulate(rows, headers=("", "median", "least", "most"), floatfmt=".3f"))
    print(f"\ndifference {difference:+.3f} s, ratio {ratio:.2f} (medians over pairs)")
    print(
        required("start of 2 ranks, seconds", difference)
        if contest.name == "start"
        else verdict("start in a lab, seconds longer than mpirun", difference, contest.allowed, at_most=True)
    )
    keep(
        contest.name,
        {
            "what": contest.title,
            "ours": {"command": contest.ours[1:], "seconds": ours},
            "theirs": {"command": ("mpirun", *contest.theirs[1:]), "seconds": theirs},
            "difference": difference,
            "ratio": ratio,
            "allowed": contest.allowed,
            "load_before": before,
            "versions": {
                "ringleader": ringleader.__version__,
                "mpirun": version((str(MPIRUN), "--version")),
                "ssh": version(("ssh", "-V")) if args.lab is not None else None,
                "kernel": platform.release(),
            },
        },
    )


if __name__ == "__main__":
    main()

"""Steps in labs at three rates, predicted from one rank and from messages, beside the measured ones.

    python benchmarks/predict_lab.py [--rates 8gbit,1gbit,200mbit] [--steps 4] [--repeats 3] [--runs DIR]

As root. The model sees the profile of one rank, what ranks lose that exchange nothing (all hosts share the
cores of this machine) and what they lose more when they synchronize once per step, messages both ways between
two hosts at each rate, and all-reduces of as many ranks over links without a limit, which only the cores
limit. It does not see a step of ranks that exchange something. Required: at most 10 % (root mean square), or
the extent of what was measured where that is larger.

With ``--runs`` what is measured is kept, and what was kept there before is not measured again.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from _pairs import context, keep, verdict
from lab_step import LabSetup, lab_step
from ringleader.bench import run_file
from ringleader.bench.training.measured_profile import profile_text
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.point_to_point import PointToPointRun
from ringleader.measurements.training import TrainingRun
from ringleader.predict.measured_job import from_document
from ringleader.predict.networks import WITHIN, Link, MeasuredAllReduce, all_reduce_of, link_of
from ringleader.predict.profile import Profile

RINGLEADER = Path(sys.executable).with_name("ringleader")
LAB = "predict"
SSH_PORT = 45
SLOTS = 2
SHORT = 4
"""Times as many steps are timed on one host, where a step is short."""
UNLIMITED = "100gbit"
"""More than the cores can send."""
LIMIT_SECONDS = 300
MOST = 0.1
"""Relative error that is required."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One size at one rate; seconds of a step."""

    rate: str
    size: str
    predicted: float
    measured: float
    low: float
    """Of the repetitions the fastest and the slowest."""
    high: float

    @property
    def error(self) -> float:
        """Relative."""
        return self.predicted / self.measured - 1

    @property
    def allowed(self) -> float:
        """10%, or the extent of what was measured."""
        return max(MOST, (self.high - self.low) / self.measured)


def run(*words: str) -> None:
    """Run a command of ringleader; its output is shown where it fails."""
    done = subprocess.run(
        (str(RINGLEADER), *words), capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False
    )
    if done.returncode:
        sys.exit(f"ringleader {' '.join(words)}\n{done.stdout}{done.stderr}")


@contextmanager
def lab(rate: str):
    """A lab whose links have this rate."""
    words = ("--hosts", "4", "--slots", str(SLOTS), "--bandwidth", rate, "--ssh-port", str(SSH_PORT))
    run("lab", "up", "--lab-name", LAB, *words, "--replace")
    try:
        yield
    finally:
        run("lab", "down", "--lab-name", LAB)


def messages(kept: Path, name: str) -> Link:
    """Measure messages both ways between two hosts."""
    sizes = ("-b", "1K", "-e", "8M", "-f", "8")
    words = ("--per-host", "1", "--ranks", "0,1", *sizes, "--seconds", "6", "--bidirectional")
    if not (kept / name).exists():
        run("bench", "p2p", "--lab-name", LAB, *words, "-o", str(kept), "--name", name)
    found = run_file.read_any(kept / name)
    assert isinstance(found, PointToPointRun)
    return link_of(found, name)


def all_reduces(kept: Path, ranks: int) -> MeasuredAllReduce:
    """Measure all-reduces of so many ranks in memory that the engine shares, in a lab without a limit."""
    name = f"allreduce-{ranks}"
    words = ("-n", str(ranks), "--memory", "registered", "-b", "1M", "-e", "16M", "-f", "4", "--seconds", "2")
    if not (kept / name).exists():
        run("bench", "allreduce", "--lab-name", LAB, *words, "-o", str(kept), "--name", name)
    found = run_file.read_any(kept / name)
    assert isinstance(found, CollectiveRun)
    return all_reduce_of(found, name)


def steps(kept: Path, name: str, ranks: int, arms: str, args: argparse.Namespace) -> TrainingRun:
    """Measure steps."""
    words = ("-n", str(ranks), "--arms", arms, "--warmup", "3")
    count = args.steps if ranks > SLOTS else SHORT * args.steps
    counts = ("--steps", str(count), "--repeats", str(args.repeats))
    if not (kept / name).exists():
        run("bench", "train", "--lab-name", LAB, *words, *counts, "-o", str(kept), "--name", name)
    found = run_file.read_any(kept / name)
    assert isinstance(found, TrainingRun)
    return found


@dataclass(frozen=True, kw_only=True)
class Shared:
    """What ranks that exchange nothing lose on the cores that they share."""

    rate: float
    """Rate of an independent rank in parts of one rank's alone."""
    meeting: float
    """Seconds of a step that meeting once adds to it."""
    standing: float
    """Seconds that a barrier-only rank stands at its meeting."""


def shared(trained: TrainingRun, alone: float) -> Shared:
    """Return what independent ranks, and ranks that only synchronize, tell. ``alone``: samples per second."""
    uncoupled, meeting = trained.arm("uncoupled"), trained.arm("in step")
    assert uncoupled is not None and meeting is not None and meeting.split is not None
    rate = min(1.0, statistics.median(uncoupled.rates) / trained.ranks / alone)
    free = trained.batch / alone / rate
    return Shared(
        rate=rate,
        meeting=max(0.0, statistics.median(meeting.step_seconds) - free),
        standing=meeting.split.waiting + meeting.split.exchange,
    )


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What all rows are predicted from."""

    profile: Profile
    """Of one rank."""
    all_reduces: dict[int, MeasuredAllReduce]
    """Number of ranks → over links without a limit."""


def predicted(machine: Machine, ranks: int, lost: Shared, between: Link) -> float:
    """Return the seconds of a step."""
    setup = LabSetup(
        between=between,
        per_host=SLOTS,
        within=machine.all_reduces[SLOTS],
        unlimited=machine.all_reduces[ranks],
        cores=len(os.sched_getaffinity(0)),
        sharing=lost.rate,
        fixed=lost.meeting,
        meeting=lost.standing,
    )
    return lab_step(machine.profile, setup, ranks).step


def profile_of(pair: TrainingRun) -> Profile:
    """Return the profile of the rank that trained alone."""
    text = profile_text(pair)
    assert text is not None
    document = {key: value for key, value in tomllib.loads(text).items() if key != "points"}
    return from_document(document, "1x1").profile


def measure(kept: Path, args: argparse.Namespace) -> list[Row]:
    """Measure everything, and predict each size."""
    sizes = [hosts * SLOTS for hosts in (1, 2, 4)]
    with lab(UNLIMITED):
        pair = steps(kept, "1x2", SLOTS, "ringleader,in-step,uncoupled,alone", args)
        reduced = {ranks: all_reduces(kept, ranks) for ranks in sizes}
    machine = Machine(profile=profile_of(pair), all_reduces=reduced)
    alone = machine.profile.batch / machine.profile.step_seconds
    one = pair.alone
    assert one is not None
    rows = [_row("any", "1x1", machine.profile.step_seconds, one.step_seconds)]
    on_host = predicted(machine, SLOTS, shared(pair, alone), WITHIN["shared-memory"])
    rows.append(_row("any", "1x2", on_host, _coupled(pair)))
    for rate in args.rates.split(","):
        with lab(rate):
            link = messages(kept, f"p2p-{rate}")
            for ranks in sizes[1:]:
                size = f"{ranks // SLOTS}x{SLOTS}"
                trained = steps(kept, f"{rate}-{size}", ranks, "ringleader,in-step,uncoupled", args)
                step = predicted(machine, ranks, shared(trained, alone), link)
                rows.append(_row(rate, size, step, _coupled(trained)))
    return rows


def _coupled(trained: TrainingRun) -> tuple[float, ...]:
    arm = trained.arm("ringleader")
    assert arm is not None
    return arm.step_seconds


def _row(rate: str, size: str, step: float, measured: Sequence[float]) -> Row:
    middle = statistics.median(measured)
    return Row(rate=rate, size=size, predicted=step, measured=middle, low=min(measured), high=max(measured))


def main() -> None:
    """Measure, predict, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rates", default="8gbit,1gbit,200mbit")
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--runs", type=Path, help="directory of the runs; default: a temporary one")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("labs need root")
    with tempfile.TemporaryDirectory() as kept:
        rows = measure(args.runs or Path(kept), args)
    print(f"{'rate':9} {'size':5} {'measured':>10} {'extent':>21} {'predicted':>10} {'error':>7}")
    for row in rows:
        extent = f"{1e3 * row.low:.1f} to {1e3 * row.high:.1f}"
        print(
            f"{row.rate:9} {row.size:5} {1e3 * row.measured:7.1f} ms {extent:>18} ms "
            f"{1e3 * row.predicted:7.1f} ms {100 * row.error:+6.1f}%"
        )
    error = math.sqrt(statistics.fmean(row.error**2 for row in rows))
    allowed = math.sqrt(statistics.fmean(row.allowed**2 for row in rows))
    print(verdict("root mean square of the relative error", error, allowed, at_most=True))
    print(f"    {context()}")
    keep("predict_lab", {"rows": [asdict(row) for row in rows], "error": error, "allowed": allowed})


if __name__ == "__main__":
    main()

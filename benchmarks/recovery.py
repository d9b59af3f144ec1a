"""How long does a job take to go on after a rank was killed, and how many steps are done again?

    python benchmarks/recovery.py [--kills 5] [--peer-python PATH]

One peer is ``torchrun --max-restarts`` with DistributedDataParallel on Gloo and a checkpoint file in each
step; ours is an elastic job with a commit in memory in each step. Another one is Horovod's elastic mode, with
our script unchanged, where ``--peer-python`` names a Python that has Horovod. Model and kill are the same:
SIGKILL to the last rank. Seconds are from the kill to the end of the next step that all ranks made.

Horovod gives up the host of a rank that fails. So its ranks are on names of this machine with one slot
each, and each kill needs a job of its own: with one name more than ranks a new rank replaces the one that
was killed; with as many the others go on alone, as ours do with ``--exclude-hosts``. It knows three names
of this machine, so there are two ranks.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from _pairs import keep

WARM_STEPS, GIVE_UP = 30, 120.0
SCRIPT = Path(__file__).with_name("recovery_script.py")


def steps_of(place: Path) -> list[tuple[float, int, int, int]]:
    """Return time, rank, step and process of every step that was noted, by time."""
    found = []
    for path in place.glob("*.log"):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3:
                found.append((float(words[0]), int(words[1]), int(words[2]), int(path.stem)))
    return sorted(found)


@dataclass(frozen=True)
class Case:
    """One way to train through failures."""

    name: str
    way: str
    """How the script trains: a word for it."""
    command: list[str]
    left: int
    """Ranks after a kill."""
    one_each: bool
    """One kill for each job."""


RANKS = 2


def cases(peer: str | None) -> list[Case]:
    """Return what is compared."""
    count, names = str(RANKS), [f"{name}:1" for name in ("localhost", "127.0.0.1", socket.gethostname())]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", count]
    torchrun += ["--max-restarts", "1000", "--monitor-interval", "0.1"]
    run = [sys.executable, "-m", "ringleader", "run", "-n", count, "--min-np", "1", "--max-np", count]
    script = ["--", sys.executable]
    one_host_less = ["-H", ",".join(names[:RANKS]), "--exclude-hosts"]
    replaced = [*run, "--oversubscribe", "--rank-restarts", "1000", *script]
    found = [
        Case("torchrun", "torchrun", torchrun, RANKS, one_each=False),
        Case("ours", "ringleader", replaced, RANKS, one_each=False),
        Case("ours, one fewer", "ringleader", [*run, *one_host_less, *script], RANKS - 1, one_each=True),
    ]
    if peer is not None:
        theirs = [peer, "-m", "horovod.runner.launch", "-np", count, "--min-np", "1", "--max-np", count]
        theirs += ["--network-interface", "lo", "-H"]
        found += [
            Case("Horovod", "horovod", [*theirs, ",".join(names), peer], RANKS, one_each=True),
            Case(
                "Horovod, one fewer",
                "horovod",
                [*theirs, ",".join(names[:RANKS]), peer],
                RANKS - 1,
                one_each=True,
            ),
        ]
    return found


def measured(case: Case, kills: int) -> dict[str, list[float]]:
    """Kill a job's last rank so often; return seconds and steps done again of each kill."""
    if not case.one_each:
        return one_job(case, kills)
    jobs = [one_job(case, 1) for _ in range(kills)]
    return {name: [number for job in jobs for number in job[name]] for name in jobs[0]}


def one_job(case: Case, kills: int) -> dict[str, list[float]]:
    """Do it in one job."""
    seconds, again = [], []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        job = subprocess.Popen(
            [*case.command, str(SCRIPT), case.way, str(place)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        try:
            for _ in range(kills):
                killed_at, last = _kill(place, job)
                step, at = _next_step(place, job, case.left, killed_at)
                seconds.append(at - killed_at)
                again.append(float(last - step + 1))
        finally:
            job.send_signal(signal.SIGTERM)
            try:
                job.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                job.kill()
    return {"seconds": seconds, "steps_again": again}


def _kill(place: Path, job: subprocess.Popen[bytes]) -> tuple[float, int]:
    """Wait for a few steps of all ranks, then kill the last one; return when, and the last step done."""
    begun = time.monotonic()
    while time.monotonic() < begun + GIVE_UP and job.poll() is None:
        steps = [one for one in steps_of(place) if one[0] > begun]
        of_last = [one for one in steps if one[1] == RANKS - 1]
        if len(of_last) >= WARM_STEPS:
            os.kill(of_last[-1][3], signal.SIGKILL)
            at = time.monotonic()
            time.sleep(0.01)
            return at, max(one[2] for one in steps_of(place) if one[0] <= at)
        time.sleep(0.02)
    sys.exit(f"the job makes no steps: {job.stderr.read().decode() if job.stderr and job.poll() else ''}")


def _next_step(place: Path, job: subprocess.Popen[bytes], ranks: int, killed_at: float) -> tuple[int, float]:
    """Return the first step that all ranks made after a time, and when the last of them did."""
    while time.monotonic() < killed_at + GIVE_UP and job.poll() is None:
        by_step: dict[int, dict[int, float]] = {}
        for at, rank, step, _ in steps_of(place):
            if at > killed_at:
                by_step.setdefault(step, {})[rank] = at
        whole = [(step, max(of.values())) for step, of in sorted(by_step.items()) if len(of) == ranks]
        if whole:
            return whole[0]
        time.sleep(0.01)
    said = job.stderr.read().decode() if job.stderr and job.poll() is not None else ""
    sys.exit(f"no step within {GIVE_UP:.0f} s after a kill: {said}")


def main() -> None:
    """Measure one after the other and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--peer-python", help="a Python that has Horovod")
    words = parser.parse_args()
    found = {}
    for case in cases(words.peer_python):
        found[case.name] = measured(case, words.kills)
        median, worst = statistics.median(found[case.name]["seconds"]), max(found[case.name]["seconds"])
        steps = statistics.median(found[case.name]["steps_again"])
        text = f"next step after {median:.3f} s (worst {worst:.3f}), {steps:.0f} steps again"
        print(f"{case.name:18} {text}", flush=True)
    ours = statistics.median(found["ours"]["seconds"])
    ratios = {name: statistics.median(one["seconds"]) / ours for name, one in found.items()}
    print(", ".join(f"{name} over ours: {ratio:.1f}" for name, ratio in ratios.items() if name != "ours"))
    keep("recovery", {"ranks": RANKS, "kills": words.kills, "ratios": ratios, **found})


if __name__ == "__main__":
    main()

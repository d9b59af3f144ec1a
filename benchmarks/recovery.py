"""How long does a job take to continue after a rank was killed, and how many steps are done again?

    python benchmarks/recovery.py [--kills 5] [--peer-python PATH] [--lab NAME]

One peer is ``torchrun --max-restarts`` with DistributedDataParallel on Gloo and a checkpoint file in each
step; ours is an elastic job with a commit in memory in each step. Another one is Horovod's elastic mode, with
our script unchanged, where ``--peer-python`` names a Python that has Horovod. Model and kill are the same:
SIGKILL to the last rank. Seconds are from the kill to the end of the next step that all ranks made.

Horovod gives up the host of a rank that fails. So its ranks are on names of this machine with one slot
each, and each kill needs its own job: with one name more than ranks a new rank replaces the one that
was killed; with as many the others continue alone, as ours do with ``--exclude-hosts``. It knows three names
of this machine, so there are two ranks.

With ``--lab`` the ranks are on hosts of a lab with one slot each, of which Horovod takes three. Its launcher
runs on the first host, as it takes no ssh configuration.
"""

from __future__ import annotations

import argparse
import contextlib
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
from ringleader.lab import saved_state
from ringleader.lab.saved_state import Lab

WARM_STEPS, GIVE_UP = 30, 120.0
SCRIPT = Path(__file__).with_name("recovery_script.py")


def steps_of(place: Path) -> list[tuple[float, int, int]]:
    """Return time, rank and number of every step that was noted, by time."""
    found = []
    for path in place.glob("*.log"):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) == 3:
                found.append((float(words[0]), int(words[1]), int(words[2])))
    return sorted(found)


@dataclass(frozen=True)
class Case:
    """One way to train through failures."""

    name: str
    way: str
    """How the script trains: a word for it."""
    commands: list[list[str]]
    """To be run at the same time, with the script's words behind each."""
    left: int
    """Ranks after a kill."""
    one_each: bool
    """One kill for each job."""


RANKS = 2


def cases(peer: str | None, lab: Lab | None) -> list[Case]:
    """Return what is compared."""
    count = str(RANKS)
    names = [one.address for one in lab.hosts] if lab else ["localhost", "127.0.0.1", socket.gethostname()]
    hosts = [f"{name}:1" for name in names]
    run = [sys.executable, "-m", "ringleader", "run", "--min-np", "1", "--max-np", count]
    run += ["--ssh-config", lab.ssh_config] if lab else []
    script = ["--", sys.executable]
    both = ["-H", ",".join(hosts[:RANKS])]
    replaced = both if lab else ["-n", count, "--oversubscribe"]
    found = [
        Case("torchrun", "torchrun", _torchrun(lab), RANKS, one_each=lab is not None),
        Case(
            "ours",
            "ringleader",
            [[*run, *replaced, "--rank-restarts", "1000", *script]],
            RANKS,
            one_each=False,
        ),
        Case(
            "ours, one fewer",
            "ringleader",
            [[*run, *both, "--exclude-hosts", *script]],
            RANKS - 1,
            one_each=True,
        ),
    ]
    if peer is not None:
        theirs = _on_host(lab, 0) if lab else []
        theirs += [peer, "-m", "horovod.runner.launch", "-np", count, "--min-np", "1", "--max-np", count]
        theirs += ["--network-interfaces", "eth0" if lab else "lo"]
        if lab is not None:
            theirs += ["--ssh-port", str(lab.spec.ssh_port)]
            theirs += ["--ssh-identity-file", str(Path(lab.ssh_config).with_name("id"))]
        for name, count_of_hosts, left in (
            ("Horovod", RANKS + 1, RANKS),
            ("Horovod, one fewer", RANKS, RANKS - 1),
        ):
            command = [*theirs, "-H", ",".join(hosts[:count_of_hosts]), peer]
            found.append(Case(name, "horovod", [command], left, one_each=True))
    return found


def _on_host(lab: Lab, index: int) -> list[str]:
    """Return the words that run a command on a host of the lab."""
    words = ["lab", "exec", "--lab-name", lab.name, lab.hosts[index].name, "--", "env", "OMP_NUM_THREADS=1"]
    return [sys.executable, "-m", "ringleader", *words]


def _torchrun(lab: Lab | None) -> list[list[str]]:
    command = [sys.executable, "-m", "torch.distributed.run"]
    command += ["--max-restarts", "1000", "--monitor-interval", "0.1"]
    if lab is None:
        return [[*command, "--standalone", "--nproc-per-node", str(RANKS)]]
    command += ["--nnodes", str(RANKS), "--nproc-per-node", "1", "--rdzv-backend", "c10d", "--rdzv-id", "r"]
    command += ["--rdzv-endpoint", f"{lab.hosts[0].address}:29400"]
    return [
        [*_on_host(lab, index), *command, "--local-addr", lab.hosts[index].address] for index in range(RANKS)
    ]


def measured(case: Case, kills: int) -> dict[str, list[float]]:
    """Kill a job's last rank this many times; return seconds and steps done again of each kill."""
    if not case.one_each:
        return one_job(case, kills)
    jobs = [one_job(case, 1) for _ in range(kills)]
    return {name: [number for job in jobs for number in job[name]] for name in jobs[0]}


def one_job(case: Case, kills: int) -> dict[str, list[float]]:
    """Do it in one job."""
    seconds, again = [], []
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        said = place / "said"
        with said.open("wb") as file:
            jobs = [
                subprocess.Popen(
                    [*command, str(SCRIPT), case.way, str(place)],
                    stdout=file,
                    stderr=file,
                    env={**os.environ, "OMP_NUM_THREADS": "1"},
                    start_new_session=True,
                )
                for command in case.commands
            ]
        try:
            for _ in range(kills):
                killed_at, last = _kill(place, jobs)
                step, at = _next_step(place, jobs, case.left, killed_at)
                seconds.append(at - killed_at)
                again.append(float(last - step + 1))
        finally:
            for job in jobs:
                job.send_signal(signal.SIGTERM)
            for job in jobs:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    job.wait(timeout=15)
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(job.pid, signal.SIGKILL)  # torchrun waits for its peers for minutes
                job.wait()
    return {"seconds": seconds, "steps_again": again}


def _kill(place: Path, jobs: list[subprocess.Popen[bytes]]) -> tuple[float, int]:
    """Wait for a few steps of all ranks, then kill the last one; return when, and the last step done."""
    begun, order, killed = time.monotonic(), place / f"kill-{RANKS - 1}", place / "killed"
    while _goes_on(jobs, begun):
        of_last = [one for one in steps_of(place) if one[0] > begun and one[1] == RANKS - 1]
        if len(of_last) >= WARM_STEPS:
            order.touch()
            break
        time.sleep(0.02)
    while _goes_on(jobs, begun):
        if killed.exists():
            at = float(killed.read_text())
            killed.unlink()
            return at, max(one[2] for one in steps_of(place) if one[0] <= at)
        time.sleep(0.002)
    raise DoesNotGoOnError(f"the job makes no steps: {(place / 'said').read_text(errors='replace')[-2000:]}")


class DoesNotGoOnError(Exception):
    """A job made no steps, or none after a kill."""


def _goes_on(jobs: list[subprocess.Popen[bytes]], since: float) -> bool:
    return time.monotonic() < since + GIVE_UP and all(job.poll() is None for job in jobs)


def _next_step(
    place: Path, jobs: list[subprocess.Popen[bytes]], ranks: int, killed_at: float
) -> tuple[int, float]:
    """Return the first step that all ranks made after a time, and when the last of them did."""
    while _goes_on(jobs, killed_at):
        by_step: dict[int, dict[int, float]] = {}
        for at, rank, step in steps_of(place):
            if at > killed_at:
                by_step.setdefault(step, {})[rank] = at
        whole = [(step, max(of.values())) for step, of in sorted(by_step.items()) if len(of) == ranks]
        if whole:
            return whole[0]
        time.sleep(0.01)
    said = (place / "said").read_text(errors="replace")[-2000:]
    raise DoesNotGoOnError(f"no step within {GIVE_UP:.0f} s after a kill: {said}")


def main() -> None:
    """Measure one after the other and print the ratios."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--peer-python", help="a Python that has Horovod")
    parser.add_argument("--lab", metavar="NAME", help="on hosts of a lab that is up, with one slot each")
    words = parser.parse_args()
    lab = saved_state.load(words.lab) if words.lab else None
    found = {}
    for case in cases(words.peer_python, lab):
        try:
            found[case.name] = measured(case, words.kills)
        except DoesNotGoOnError as error:
            print(f"{case.name:18} {error}", flush=True)
            continue
        median, worst = statistics.median(found[case.name]["seconds"]), max(found[case.name]["seconds"])
        steps = statistics.median(found[case.name]["steps_again"])
        text = f"next step after {median:.3f} s (worst {worst:.3f}), {steps:.0f} steps again"
        print(f"{case.name:18} {text}", flush=True)
    ours = statistics.median(found["ours"]["seconds"])
    ratios = {name: statistics.median(one["seconds"]) / ours for name, one in found.items()}
    print(", ".join(f"{name} over ours: {ratio:.1f}" for name, ratio in ratios.items() if name != "ours"))
    keep(
        "recovery_lab" if lab else "recovery",
        {"ranks": RANKS, "kills": words.kills, "ratios": ratios, **found},
    )


if __name__ == "__main__":
    main()

"""A training step of more ranks than cores: 3 and 4 ranks against 2 on the same two cores.

    python benchmarks/oversubscribed.py [--rounds 12] [--cores 2] [--quota CPUS]

R ranks on C cores have R/C of the work of C ranks, so a step takes 1.5 times as long for 3 on 2 where
waiting costs nothing. A rank that spins while it waits takes the processor that its peers need. One job for
each number of ranks stays up all the time; they compute in turns, and who has no turn waits in a pipe. So
each knows by itself whether it has a core for each rank, and a machine that is busy for a while is busy for
all. Beside each job's coupled steps run steps of as many ranks that exchange nothing. A step has ended when
the last rank's has. ``--quota`` puts everything into a control group with this many CPUs (needs root).
"""

from __future__ import annotations

import argparse
import os
import select
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from _pairs import context, keep, ratio
from rows import required

JOBS = (2, 3, 4)
BLOCK = 5
LIMIT_SECONDS = 60
_PIPES = "RINGLEADER_BENCHMARK_PIPES"
_RANK = "OMPI_COMM_WORLD_RANK"


class Job:
    """As many ranks, each of which waits in a pipe for what it is to run."""

    def __init__(self, ranks: int, directory: Path) -> None:
        """Start them."""
        self.orders: list[int] = []
        self.answers: list[int] = []
        directory.mkdir()
        for rank in range(ranks):
            for end in ("order", "answer"):
                os.mkfifo(directory / f"{end}{rank}")
        command = [str(Path(sys.executable).with_name("mpirun")), "--allow-run-as-root", "--oversubscribe"]
        command += ["--bind-to", "none", "-n", str(ranks), sys.executable, __file__]
        environ = {**os.environ, _PIPES: str(directory), "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(command, env=environ)
        for rank in range(ranks):
            # Both for reading and writing, so that opening them waits for no rank.
            self.orders.append(os.open(directory / f"order{rank}", os.O_RDWR))
            self.answers.append(os.open(directory / f"answer{rank}", os.O_RDWR))

    def run(self, arm: str) -> float:
        """Have all ranks run a block of steps; return seconds per step of the slowest."""
        self._order(arm)
        seconds = []
        for answer in self.answers:
            if not select.select([answer], [], [], LIMIT_SECONDS)[0]:
                self.process.kill()
                sys.exit(f"{len(self.answers)} ranks: no answer after {LIMIT_SECONDS} s")
            seconds.append(float(os.read(answer, 100)))
        return max(seconds)

    def end(self) -> None:
        """Let the ranks go."""
        self._order("end")
        self.process.wait(LIMIT_SECONDS)

    def _order(self, word: str) -> None:
        for order in self.orders:
            os.write(order, f"{word}\n".encode())


def serve(directory: Path) -> None:
    """Be a rank: run what the pipe says, and say how long it took."""
    import torch

    import ringleader.torch as hvd
    from step import mlp, stepper

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    wraps: dict[str, Callable] = {
        "coupled": lambda o, m: hvd.DistributedOptimizer(o, m.named_parameters()),
        "uncoupled": lambda o, m: o,
    }
    arms = {name: stepper(mlp(), (64, 1024), wrap) for name, wrap in wraps.items()}
    number = os.environ[_RANK]
    with (directory / f"order{number}").open() as orders, (directory / f"answer{number}").open("w") as answer:
        for line in orders:
            arm = arms.get(line.strip())
            if arm is None:
                break
            arm()
            hvd.barrier()
            start = time.perf_counter()
            for _ in range(BLOCK):
                arm()
            answer.write(f"{(time.perf_counter() - start) / BLOCK}\n")
            answer.flush()
    hvd.shutdown()


@contextmanager
def quota(cpus: float) -> Iterator[None]:
    """Put this process and its children into a control group with a quota of CPUs."""
    first = Path("/sys/fs/cgroup/cpu")
    root = first if first.is_dir() else Path("/sys/fs/cgroup")
    group = root / f"ringleader-benchmark-{os.getpid()}"
    group.mkdir()
    if root == first:
        (group / "cpu.cfs_quota_us").write_text(str(round(cpus * 100_000)))
    else:
        (group / "cpu.max").write_text(f"{round(cpus * 100_000)} 100000")
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        yield
    finally:
        (root / "cgroup.procs").write_text(str(os.getpid()))
        time.sleep(0.5)  # for mpirun's last process
        group.rmdir()


def measure(rounds: int) -> dict[tuple[int, str], list[float]]:
    """Return seconds per step of every job's two arms, round by round."""
    arms = [(ranks, arm) for ranks in JOBS for arm in ("coupled", "uncoupled")]
    times: dict[tuple[int, str], list[float]] = {one: [] for one in arms}
    directory = Path(tempfile.mkdtemp())
    jobs: dict[int, Job] = {}
    try:
        for ranks in JOBS:
            jobs[ranks] = Job(ranks, directory / str(ranks))
        for ranks, arm in arms:
            jobs[ranks].run(arm)
        for turn in range(rounds):
            for ranks, arm in arms[turn % len(arms) :] + arms[: turn % len(arms)]:
                times[ranks, arm].append(jobs[ranks].run(arm))
        for job in jobs.values():
            job.end()
    finally:
        for job in jobs.values():
            job.process.terminate()  # which mpirun passes on; one that has ended does not mind
        shutil.rmtree(directory)
    return times


def main() -> None:
    """Run and print."""
    if _PIPES in os.environ:
        return serve(Path(os.environ[_PIPES]))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--quota", type=float, metavar="CPUS")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    with ExitStack() as stack:
        if args.quota is not None:
            stack.enter_context(quota(args.quota))
        times = measure(args.rounds)
    result = {}
    for ranks in JOBS:
        ours, alone = times[ranks, "coupled"], times[ranks, "uncoupled"]
        row = {
            "seconds": statistics.median(ours),
            "uncoupled seconds": statistics.median(alone),
            "over uncoupled": ratio(ours, alone),
            "over 2 ranks": ratio(ours, times[2, "coupled"]),
            "uncoupled over 2 uncoupled": ratio(alone, times[2, "uncoupled"]),
        }
        result[ranks] = row
        print(f"{ranks} ranks on {args.cores} cores: {row['seconds'] * 1e3:.1f} ms, ", end="")
        print(f"uncoupled {row['uncoupled seconds'] * 1e3:.1f} ms; {row['over uncoupled']:.2f} × uncoupled, ")
        print(f"    {row['over 2 ranks']:.2f} × 2 ranks, ", end="")
        print(f"uncoupled {row['uncoupled over 2 uncoupled']:.2f} × 2 independent ranks")
    print(required("3 ranks on 2 cores, MLP", result[3]["over 2 ranks"]))
    print(f"    {context()}")
    name = "oversubscribed" if args.quota is None else "oversubscribed_quota"
    keep(name, {"cores": args.cores, "quota": args.quota, "rounds": args.rounds, "ranks": result})


if __name__ == "__main__":
    main()

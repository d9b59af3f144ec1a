"""Time of an allreduce of 64 MiB of float32 between the hosts of a lab: ours, MPI's, Gloo's, and the line's.

    python benchmarks/hosts.py --lab NAME [--rounds 3] [--rate "1 Gbit/s"]

Every arm is a job of its own, in turns: ranks that wait inside MPI would take the processors from the others.
``transport`` reduces memory that the engine registered, as gradients are; ``public`` is ``hvd.allreduce_``
of an ordinary tensor. ``line`` is how long 2(H-1)/H of the bytes take at the rate that was measured in jobs
between these, while all hosts send at once. Every result is checked.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _pairs import context, keep
from ringleader.lab import saved_state
from rows import required

COUNT = 16 << 20
"""Elements: 64 MiB of float32."""
REPEATS = 5
LIMIT_SECONDS = 120
"""A job that takes longer is stopped, and counts as having no result."""


def timed(
    arm: Callable[[], object], tensor: Any, rank: int, size: int, repeats: int = REPEATS
) -> list[float]:
    """Check one call, then time some; seconds of each."""
    import torch

    values = torch.arange(COUNT) % 97
    tensor.copy_(values * (rank + 1))
    arm()
    assert torch.equal(tensor, (values * sum(range(1, size + 1))).float()), "a wrong sum"
    tensor.zero_()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        arm()
        times.append(time.perf_counter() - start)
    return times


def line_rate(comm: Any, local: int, local_rank: int, nbytes: int = 32 << 20) -> float:
    """Return bytes per second that the slowest host sends to the next one, all of them at once."""
    import numpy

    data, room = numpy.zeros(nbytes, numpy.uint8), numpy.zeros(nbytes, numpy.uint8)
    rates = []
    for _ in range(3):
        patiently([comm.Ibarrier()])
        start = time.perf_counter()
        # One rank of each host sends: more would share the same line.
        if local_rank == 0:
            to, source = (comm.rank + local) % comm.size, (comm.rank - local) % comm.size
            patiently([comm.Irecv(room, source=source), comm.Isend(data, dest=to)])
        rates.append(nbytes / (time.perf_counter() - start) if local_rank == 0 else float("inf"))
    mine, slowest = numpy.array([statistics.median(rates)]), numpy.zeros(1)
    patiently([comm.Iallreduce(mine, slowest, op=_min())])
    return float(slowest[0])


def _min() -> Any:
    from mpi4py import MPI

    return MPI.MIN


def patiently(requests: list[Any]) -> None:
    """Wait without keeping the processor busy."""
    for request in requests:
        while not request.Test():
            time.sleep(0.00005)


def ours() -> dict[str, Any]:
    """Time both ways of ours."""
    import torch

    import ringleader.torch as hvd
    from ringleader.collectives.operations import ReduceOp
    from ringleader.torch.basics import session

    hvd.init()
    torch.set_num_threads(1)
    engine = session().engine
    region = engine.register(COUNT, "float32")

    def exchange() -> None:
        hvd.barrier()
        engine.transport.exchange(region, ReduceOp.SUM, 1.0)

    result = {"transport": timed(exchange, region.mine, hvd.rank(), hvd.size())}
    ordinary = torch.zeros(COUNT)
    result["public"] = timed(lambda: hvd.allreduce_(ordinary, op=hvd.Sum), ordinary, hvd.rank(), hvd.size())
    hvd.shutdown()
    return result


def theirs() -> dict[str, Any]:
    """Time MPI's own allreduce."""
    import torch
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    tensor = torch.zeros(COUNT)
    array = tensor.numpy()
    arm = lambda: comm.Allreduce(MPI.IN_PLACE, array)  # noqa: E731
    return {"MPI": timed(arm, tensor, comm.rank, comm.size, repeats=1)}


def line() -> dict[str, Any]:
    """Measure what a host can send."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    return {"rate": line_rate(comm, host.size, host.rank), "hosts": comm.size // host.size}


def gloo() -> dict[str, Any]:
    """Time Gloo's allreduce."""
    import torch
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    torch.set_num_threads(1)
    # Rank 0's host serves the others; ranks find each other by the addresses of their hosts' names.
    import socket

    address = comm.bcast((socket.gethostname(), 29511) if comm.rank == 0 else None)
    store = torch.distributed.TCPStore(*address, comm.size, comm.rank == 0)
    torch.distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    tensor = torch.zeros(COUNT)
    result = timed(lambda: torch.distributed.all_reduce(tensor), tensor, comm.rank, comm.size)
    torch.distributed.destroy_process_group()
    return {"Gloo": result}


ARMS = {"ours": ours, "theirs": theirs, "gloo": gloo, "line": line}


def job(lab: saved_state.Lab, arm: str) -> dict[str, Any]:
    """Run one arm on all slots of a lab; what it measured on rank 0, empty where it did not end in time."""
    command = [sys.executable, "-m", "ringleader", "run", "--ssh-config", lab.ssh_config]
    command += [
        "--hostfile",
        lab.hostfile,
        "--no-prefix",
        "--timeout",
        str(LIMIT_SECONDS),
        sys.executable,
        str(Path(__file__).resolve()),
        "--arm",
        arm,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"{arm}: no result, exit code {done.returncode}: {done.stderr[-600:]}", file=sys.stderr)
        return {}
    return dict(json.loads(lines[0]))


def report(args: argparse.Namespace, found: dict[str, list[Any]]) -> None:
    """Print and keep what was measured."""
    medians = {
        name: statistics.median(found[name])
        for name in ("transport", "public", "MPI", "Gloo")
        if found.get(name)
    }
    hosts, rate = found["hosts"][0], statistics.median(found["rate"])
    line = 2 * (hosts - 1) / hosts * 4 * COUNT / rate
    print(f"{hosts} hosts, 64 MiB, a line measured at {rate * 8e-9:.2f} Gbit/s takes {line * 1e3:.0f} ms")
    print("    " + ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in medians.items()))
    ratios = {
        f"{peer} over {arm}": value / medians[arm]
        for peer, value in [*medians.items(), ("line", line)]
        for arm in ("transport", "public")
        if peer not in ("transport", "public") and arm in medians
    }
    for name, row in (
        ("Gloo over transport", "64 MiB, 8 Gbit/s, gradients"),
        ("line over transport", "64 MiB, 1 Gbit/s, gradients"),
        ("line over public", "64 MiB, 1 Gbit/s, ordinary"),
    ):
        if args.rate in row and name in ratios:
            print(required(row, ratios[name]))
    print(f"    {context()}")
    keep(
        f"hosts_{args.lab}", {"line": line, "rate": rate, "hosts": hosts, "seconds": found, "ratios": ratios}
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lab")
    parser.add_argument("--arm", choices=list(ARMS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rate", choices=("8 Gbit/s", "1 Gbit/s"), default="1 Gbit/s", help="of the lab: has its own rows"
    )
    args = parser.parse_args()
    if args.arm:
        result = ARMS[args.arm]()
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(result), flush=True)
        return
    found: dict[str, list[Any]] = {}
    for turn in range(args.rounds):
        names = list(ARMS)
        for arm in names[turn % len(names) :] + names[: turn % len(names)]:
            for name, value in job(saved_state.current(args.lab), arm).items():
                found.setdefault(name, []).extend(value if isinstance(value, list) else [value])
    report(args, found)


if __name__ == "__main__":
    main()

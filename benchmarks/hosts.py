"""Time of an allreduce of float32 between the hosts of a lab: ours, MPI's, Gloo's, and raw TCP's.

    python benchmarks/hosts.py --lab NAME [--rounds 3] [--rate "1 Gbit/s"]

Every arm is its own job, in turns: ranks that wait inside MPI would take the processors from the others.
``gradients`` reduces memory that the engine registered, as gradients are; ``ordinary`` is ``hvd.allreduce_``
of any tensor, ``new`` is ``hvd.allreduce(x)``, an average. ``line`` is how long plain sockets take, in jobs
between these, for the 2(H-1)/H of the bytes that each of H hosts has to send: all hosts at once, in both
directions (`raw_tcp`). Every result is checked.
"""

from __future__ import annotations

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import raw_tcp
from _pairs import context, keep
from ringleader.lab import saved_state
from rows import required

MIB = 1 << 20
REPEATS = 5
LIMIT_SECONDS = 120
"""A job that takes longer is stopped, and counts as having no result."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Ranks of a lab that take part."""

    name: str
    """As the rows call it; empty for the whole lab."""
    hosts: int
    """Hosts with one rank each; 0: all slots of the lab."""
    sizes: tuple[int, ...]
    """MiB that are reduced."""
    arms: tuple[str, ...]
    rows: tuple[str, ...]
    """Required by name."""


SHAPES = (
    Shape(
        name="", hosts=0, sizes=(64,), arms=("ours", "theirs", "gloo", "line"),
        rows=("64 MiB, 1 Gbit/s, gradients", "64 MiB, 1 Gbit/s, ordinary", "64 MiB, 8 Gbit/s, gradients"),
    ),
    Shape(
        name="2×1", hosts=2, sizes=(64, 8), arms=("ours", "gloo", "line"),
        rows=(
            "64 MiB, 2×1, 1 Gbit/s, gradients", "64 MiB, 2×1, 1 Gbit/s, ordinary",
            "64 MiB, 2×1, 1 Gbit/s, new", "8 MiB, 2×1, 1 Gbit/s, gradients",
            "8 MiB, 2×1, 1 Gbit/s, ordinary", "8 MiB, 2×1, 1 Gbit/s, new",
        ),
    ),
)  # fmt: skip


def timed(
    arm: Callable[[], object], tensor: Any, rank: int, size: int, repeats: int = REPEATS
) -> list[float]:
    """Check one call, then time some; seconds of each."""
    import torch

    values = torch.arange(tensor.numel()) % 97
    tensor.copy_(values * (rank + 1))
    new = arm()
    total = (values * sum(range(1, size + 1))).float()
    is_new = isinstance(new, torch.Tensor) and new is not tensor
    assert torch.equal(new, total / size) if is_new else torch.equal(tensor, total), "a wrong sum"
    tensor.zero_()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        arm()
        times.append(time.perf_counter() - start)
    return times


def patiently(requests: list[Any]) -> None:
    """Wait without keeping the processor busy."""
    for request in requests:
        while not request.Test():
            time.sleep(0.00005)


def ours(sizes: Sequence[int]) -> dict[str, Any]:
    """Time both ways of ours."""
    import torch

    import ringleader.torch as hvd
    from ringleader.engine.operations import ReduceOp
    from ringleader.torch.basics import session

    hvd.init()
    torch.set_num_threads(1)
    engine = session().engine
    result = {}
    for mib in sizes:
        region = engine.register(mib * MIB // 4, "float32")

        def exchange(region: Any = region) -> None:
            hvd.barrier()
            engine.transport.exchange(region, ReduceOp.SUM, 1.0)

        result[f"{mib} MiB, gradients"] = timed(exchange, region.mine, hvd.rank(), hvd.size())
        tensor = torch.zeros(mib * MIB // 4)
        result[f"{mib} MiB, ordinary"] = timed(
            lambda tensor=tensor: hvd.allreduce_(tensor, op=hvd.Sum), tensor, hvd.rank(), hvd.size()
        )
        new = lambda tensor=tensor: hvd.allreduce(tensor)  # noqa: E731
        result[f"{mib} MiB, new"] = timed(new, tensor, hvd.rank(), hvd.size())
    hvd.shutdown()
    return result


def theirs(sizes: Sequence[int]) -> dict[str, Any]:
    """Time MPI's own allreduce."""
    import torch
    from mpi4py import MPI

    comm, result = MPI.COMM_WORLD, {}
    for mib in sizes:
        tensor = torch.zeros(mib * MIB // 4)
        array = tensor.numpy()
        arm = lambda array=array: comm.Allreduce(MPI.IN_PLACE, array)  # noqa: E731
        result[f"{mib} MiB, MPI"] = timed(arm, tensor, comm.rank, comm.size, repeats=1)
    return result


def line(sizes: Sequence[int]) -> dict[str, Any]:
    """Time plain sockets between the hosts: the slowest host of each repetition."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    host = comm.Split_type(MPI.COMM_TYPE_SHARED)
    listener = raw_tcp.new_listener() if host.rank == 0 else None
    mine = (socket.gethostname(), listener.getsockname()[1]) if listener is not None else None
    everybody = comm.allgather(mine)
    addresses = [address for address in everybody if address is not None]
    ring = raw_tcp.Ring(listener, addresses, addresses.index(mine)) if listener is not None else None
    hosts, result = len(addresses), {}
    for mib in sizes:
        nbytes, mine_seconds = 2 * (hosts - 1) * mib * MIB // hosts, []
        for _ in range(REPEATS + 1):
            patiently([comm.Ibarrier()])
            # One rank of each host sends: the others share its line. They must not wait inside MPI meanwhile.
            mine_seconds.append(ring.seconds(nbytes) if ring is not None else 0.0)
            patiently([comm.Ibarrier()])
        columns = zip(*comm.allgather(mine_seconds), strict=True)
        # The first time is the connection's slow start.
        result[f"{mib} MiB, line"] = [max(column) for column in columns][1:]
    if ring is not None:
        ring.close()
    return result


def gloo(sizes: Sequence[int]) -> dict[str, Any]:
    """Time Gloo's allreduce."""
    import torch
    from mpi4py import MPI

    comm, result = MPI.COMM_WORLD, {}
    torch.set_num_threads(1)
    # Rank 0's host serves the others; ranks find each other by the addresses of their hosts' names.
    address = comm.bcast((socket.gethostname(), 29511) if comm.rank == 0 else None)
    store = torch.distributed.TCPStore(*address, comm.size, comm.rank == 0)
    torch.distributed.init_process_group("gloo", store=store, rank=comm.rank, world_size=comm.size)
    for mib in sizes:
        tensor = torch.zeros(mib * MIB // 4)
        result[f"{mib} MiB, Gloo"] = timed(
            lambda tensor=tensor: torch.distributed.all_reduce(tensor), tensor, comm.rank, comm.size
        )
    torch.distributed.destroy_process_group()
    return result


ARMS = {"ours": ours, "theirs": theirs, "gloo": gloo, "line": line}


def job(lab: saved_state.Lab, shape: Shape, arm: str) -> dict[str, list[float]]:
    """Run one arm; what it measured on rank 0, empty where it did not end in time."""
    command = [sys.executable, "-m", "ringleader", "run", "--ssh-config", lab.ssh_config, "--no-prefix"]
    if shape.hosts:
        command += ["-H", ",".join(f"{host.name}:1" for host in lab.hosts[: shape.hosts])]
    else:
        command += ["--hostfile", lab.hostfile]
    command += ["--timeout", str(LIMIT_SECONDS), sys.executable, str(Path(__file__).resolve())]
    command += ["--arm", arm, "--sizes", ",".join(map(str, shape.sizes))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        print(f"{arm}: no result, exit code {done.returncode}: {done.stderr[-600:]}", file=sys.stderr)
        return {}
    return dict(json.loads(lines[0]))


def report(rate: str, shape: Shape, found: dict[str, list[float]]) -> dict[str, float]:
    """Print what was measured in one shape; return the ratios by the rows' names."""
    ratios: dict[str, float] = {}
    for mib in shape.sizes:
        medians = {
            name.removeprefix(f"{mib} MiB, "): statistics.median(values)
            for name, values in found.items()
            if name.startswith(f"{mib} MiB, ")
        }
        print(f"{shape.name or 'all slots'}, {mib} MiB, {rate}")
        print("    " + ", ".join(f"{name} {value * 1e3:.0f} ms" for name, value in medians.items()))
        place = ", ".join(word for word in (f"{mib} MiB", shape.name, rate) if word)
        for arm in ("gradients", "ordinary", "new"):
            for peer in ("line", "Gloo", "MPI"):
                if arm in medians and peer in medians:
                    ratios[f"{place}, {arm}: {peer}"] = medians[peer] / medians[arm]
            case, peer = f"{place}, {arm}", "Gloo" if rate == "8 Gbit/s" else "line"
            if case in shape.rows and f"{case}: {peer}" in ratios:
                print(required(case, ratios[f"{case}: {peer}"]))
    others = ", ".join(f"{name} {value:.2f}" for name, value in ratios.items())
    print(f"    over ours: {others}\n    {context()}")
    return ratios


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lab")
    parser.add_argument("--arm", choices=list(ARMS), help="this process is one of the ranks of that arm")
    parser.add_argument("--sizes", default="", help="MiB that a rank reduces")
    parser.add_argument("--shapes", default="all,2×1", help="which ranks of the lab: all, 2×1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--rate", choices=("8 Gbit/s", "1 Gbit/s"), default="1 Gbit/s", help="of the lab: has its own rows"
    )
    args = parser.parse_args()
    if args.arm:
        result = ARMS[args.arm]([int(size) for size in args.sizes.split(",")])
        from mpi4py import MPI

        if MPI.COMM_WORLD.rank == 0:
            print(json.dumps(result), flush=True)
        return
    lab, kept = saved_state.current(args.lab), {}
    for shape in (one for one in SHAPES if (one.name or "all") in args.shapes.split(",")):
        found: dict[str, list[float]] = {}
        for turn in range(args.rounds):
            at = turn % len(shape.arms)
            for arm in shape.arms[at:] + shape.arms[:at]:
                for name, values in job(lab, shape, arm).items():
                    found.setdefault(name, []).extend(values)
        kept[shape.name or "all"] = {"seconds": found, "ratios": report(args.rate, shape, found)}
    keep(f"hosts_{args.lab}", kept)


if __name__ == "__main__":
    main()

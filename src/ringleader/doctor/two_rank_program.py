"""What the two ranks of the self-test run: a sum over both, checked, through the engine that jobs use."""

from __future__ import annotations

import json
import resource
import sys
from importlib.util import find_spec
from typing import Any

from ringleader.doctor.import_probe import loaded

MARK = "ringleader-ranks "
COUNT = 262_144
"""Numbers that are summed up: 1 MiB."""


def through_torch() -> tuple[int, int]:
    """Sum with ``ringleader.torch``; return rank and size."""
    import torch  # type: ignore[import-not-found, unused-ignore]

    import ringleader.torch as hvd

    hvd.init()
    rank, size = hvd.rank(), hvd.size()
    total = hvd.allreduce(torch.full((COUNT,), float(rank + 1)), op=hvd.Sum)
    _check(bool((total == expected(size)).all()), rank)
    hvd.shutdown()
    return rank, size


def through_mpi() -> tuple[int, int]:
    """Sum with MPI; return rank and size."""
    import numpy
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    mine = numpy.full(COUNT, world.rank + 1, dtype=numpy.float32)
    total = numpy.empty_like(mine)
    world.Allreduce(mine, total)
    _check(bool((total == expected(world.size)).all()), world.rank)
    return world.rank, world.size


def expected(size: int) -> float:
    """Return what 1 + 2 + … + size is."""
    return size * (size + 1) / 2


def _check(right: bool, rank: int) -> None:
    if not right:
        sys.exit(f"rank {rank}: the sum is wrong")


def main() -> None:
    """Exchange; rank 0 says how it went."""
    torch = find_spec("torch") is not None
    rank, size = through_torch() if torch else through_mpi()
    if rank == 0:
        said: dict[str, Any] = {
            "size": size,
            "through": "ringleader.torch" if torch else "mpi4py",
            "libraries": loaded(),
            "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        }
        print(f"{MARK}{json.dumps(said)}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main()

"""What ``ringleader doctor -H`` runs on every host, in a rank: reads the facts, then compares clocks.

The facts go first: they are there even where the ranks' MPI does not come up.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from ringleader.launch import rank_answer

FACTS, CLOCKS = "facts", "clocks"
ROUNDS = 12
"""Round trips to each rank; the shortest one counts."""
CLOCK_TAG = 71


def main() -> None:
    """Tell the launcher this host's facts, and in rank 0 the offsets of the other ranks' clocks."""
    from ringleader.dataclass_json import document
    from ringleader.fabric.readers import read_host

    seconds, *log = sys.argv[1:]
    rank_answer.send(FACTS, document(read_host(seconds=float(seconds), log="".join(log))))
    offsets = compared_clocks(_world(), time.time)
    if offsets is not None:
        rank_answer.send(CLOCKS, offsets)


def _world() -> Any:
    """Return MPI's communicator of all ranks."""
    from ringleader.engine import loaded_mpi
    from ringleader.engine.engine_settings import read_settings

    return loaded_mpi.load(read_settings(os.environ)).COMM_WORLD


def compared_clocks(world: Any, now: Callable[[], float]) -> list[list[float]] | None:
    """Return [offset, uncertainty] in seconds of each rank's clock against rank 0's; ``None`` in other ranks.

    Rank 0 sends a message and notes when it left and when the answer, another rank's time, came. Where both
    ways took equally long, that time was read in the middle: the offset is wrong by half a round trip at most
    (Cristian, "Probabilistic clock synchronization", 1989).
    """
    if world.rank != 0:
        for _ in range(ROUNDS):
            world.recv(source=0, tag=CLOCK_TAG)
            world.send(now(), dest=0, tag=CLOCK_TAG)
        return None
    return [[0.0, 0.0], *(list(_offset(world, rank, now)) for rank in range(1, world.size))]


def _offset(world: Any, rank: int, now: Callable[[], float]) -> tuple[float, float]:
    best = (0.0, float("inf"))
    for _ in range(ROUNDS):
        left, start = now(), time.monotonic()
        world.send(None, dest=rank, tag=CLOCK_TAG)
        theirs = world.recv(source=rank, tag=CLOCK_TAG)
        half = (time.monotonic() - start) / 2
        if half < best[1]:
            best = (theirs - (left + half), half)
    return best


if __name__ == "__main__":
    main()
    from ringleader.engine.loaded_mpi import finalize

    finalize()

"""When everything of a rank is killed: of several who order it to end, whose grace counts."""

import os
import pickle
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringleader.agents.rank_process import LAUNCHER, RankProcess


def grace_of(orders: list[tuple[str, float]], place: Path) -> float:
    """Return the seconds that are left after orders to end, in a process that has no others below it."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            launcher: Any = SimpleNamespace(say=lambda **words: None)
            directory: Any = SimpleNamespace(path=str(place))
            rank = RankProcess(launcher=launcher, rank=0, directory=directory, environ={})
            before = time.monotonic()
            for by, grace in orders:
                rank.stop(by, grace)
            os.write(write, pickle.dumps((rank.kill_at or 0.0) - before))
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as answer:
        seconds = float(pickle.load(answer))
    os.waitpid(pid, 0)
    return seconds


@pytest.mark.process
@pytest.mark.parametrize(
    ("orders", "graces"),
    [
        ([(LAUNCHER, 100.0)], (90, 110)),
        ([("mpi", 2.0), (LAUNCHER, 100.0)], (90, 110)),
        ([(LAUNCHER, 100.0), (LAUNCHER, 0.0)], (-10, 10)),
        ([(LAUNCHER, 10.0), (LAUNCHER, 100.0)], (0, 20)),
        ([("mpi", 2.0), ("daemon", 100.0)], (-10, 12)),
    ],
    ids=["the launcher's", "the launcher's, not the MPI's", "a second order", "the first", "the shortest"],
)
def test_whose_grace_counts(
    orders: list[tuple[str, float]], graces: tuple[float, float], tmp_path: Path
) -> None:
    assert graces[0] < grace_of(orders, tmp_path) < graces[1]

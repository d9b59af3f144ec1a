"""Ranks that the others wait for: reports of ranks in, names out."""

import random

import pytest

from ringleader.launch.stragglers import SLOW, Stragglers


class Job:
    """Ranks that make the same steps, each with its own time in them; reports come once a second."""

    def __init__(self, own: dict[int, float], *, kind: str = "step", windows: int = 3) -> None:
        self.own, self.kind = own, kind
        self.found = Stragglers(window=10.0, windows=windows)
        self.totals = {rank: [0, 0.0, 0.0] for rank in own}
        self.now = 0.0
        self.named: list[int] = []

    def run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1.0
            length = max(self.own.values()) + 0.01
            steps = max(1, int(1.0 / length))
            for rank, mine in self.own.items():
                total = self.totals[rank]
                total[0] += steps
                total[1] += steps * length
                total[2] += steps * (length - mine)
                report = dict(zip(("steps", "step_seconds", "waiting_seconds"), total, strict=True))
                extra = {"exchange_seconds": 0.0} if self.kind == "step" else {}
                named = self.found.add(rank, {"kind": self.kind, **report, **extra}, self.now, len(self.own))
                self.named += [one.rank for one in named]


@pytest.mark.parametrize("kind", ["step", "own"])
@pytest.mark.parametrize("ranks", [2, 3, 8])
def test_a_rank_that_computes_longer_is_named_once_after_three_windows(kind, ranks):
    job = Job({rank: 0.2 if rank == 1 else 0.1 for rank in range(ranks)}, kind=kind)
    job.run(29)
    assert job.named == []
    job.run(300)
    assert job.named == [1]
    slow = job.found.found[1]
    assert slow.score == pytest.approx(2.0) and slow.own_seconds == pytest.approx(0.2)
    assert slow.median_seconds == pytest.approx(0.1) and slow.windows > 20 and 30 <= slow.at <= 33
    assert slow.text("rank 1 (h2)") == (
        "rank 1 (h2) is slow: of each step of 210 ms, 200 ms are its own work, 2.0 times the median rank's "
        "(100 ms): the others wait"
    )


def own(seconds, waiting):
    """What a rank that makes a step a second reports of itself."""
    return {"kind": "own", "steps": seconds, "step_seconds": seconds, "waiting_seconds": waiting}


def test_a_rank_that_was_slow_for_a_while_is_not_named():
    job = Job({0: 0.1, 1: 0.1, 2: 0.1})
    for _ in range(5):
        job.own[2] = 0.3
        job.run(20)
        job.own[2] = 0.1
        job.run(20)
    assert job.named == [] and job.found.scores[2] == pytest.approx(1.0)


@pytest.mark.parametrize("own", [{0: 0.1, 1: 0.1 * (SLOW - 0.02)}, {0: 0.0, 1: 0.0}])
def test_ranks_that_are_alike_are_not_named(own):
    job = Job(own)
    job.run(300)
    assert job.named == []


def test_what_nobody_notices_is_not_named_and_a_window_waits_for_every_rank():
    found, waits = (Stragglers(window=10.0, windows=1) for _ in range(2))
    named = []
    for second in range(1, 100):
        for rank, mine in ((0, 0.001), (1, 0.002)):  # twice as long, in a part of the step that is nothing
            named += found.add(rank, own(second, second * (1 - mine)), float(second), 2)
            named += waits.add(rank, own(second, rank * second / 2), float(second), 3)
    assert named == []


@pytest.mark.parametrize("seed", range(20))
def test_noise_names_nobody(seed):
    choose = random.Random(seed)
    job = Job(dict.fromkeys(range(4), 0.1))
    for _ in range(100):
        job.own = {rank: 0.1 * choose.uniform(0.9, 1.1) for rank in job.own}
        job.run(1)
    assert job.named == []


def test_a_rank_that_another_process_took_over_counts_from_there():
    job = Job({0: 0.1, 1: 0.1})
    job.run(15)
    job.totals[1] = [0, 0.0, 0.0]
    job.run(100)
    assert job.named == []


def test_reports_that_cannot_be_read_are_left_out():
    for wrong in ({}, {"steps": "x"}, {"steps": 1, "step_seconds": float("nan")}, {"steps": True}):
        assert Stragglers().add(0, {"kind": "step", **wrong}, 1.0, 1) == []

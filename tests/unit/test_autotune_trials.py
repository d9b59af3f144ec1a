"""Trials of bucket sizes."""

from __future__ import annotations

from ringleader.adapters.autotune import Trials


def _run(trials: Trials, seconds: dict[int | None, list[float]]) -> int:
    steps = 0
    while not trials.over:
        for one in seconds[trials.current]:
            steps += 1
            mine = trials.note(one)
            if mine is not None:
                trials.agree(mine)
                break
    return steps


def test_the_shortest_step_wins_and_the_first_step_of_each_does_not_count() -> None:
    trials = Trials(candidates=(8, 2, None), steps=3)
    steps = _run(trials, {8: [0.1, 5, 5, 5], 2: [99, 3, 90, 3], None: [0.1, 4, 4, 4]})
    assert steps == 12
    assert trials.seconds == [5, 3, 4]
    assert trials.current == 2
    assert trials.note(1.0) is None


def test_it_says_what_it_chose() -> None:
    trials = Trials(candidates=(8 << 20, None), seconds=[0.25, 0.125])
    assert trials.describe() == "buckets: no limit (a step took with 8 MiB 250.00 ms, no limit 125.00 ms)"

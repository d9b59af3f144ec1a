"""Trials of bucket sizes."""

from __future__ import annotations

from ringleader.collectives.choice import Choice, Way, choose, last_won
from ringleader.collectives.tuning import Trials


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


def test_a_way_wins_up_to_the_first_size_at_which_it_loses() -> None:
    times = {
        1: {Way.MPI: 1.0, Way.EVERYONE: 2.0, Way.SLICES: 3.0},
        4: {Way.MPI: 3.0, Way.EVERYONE: 2.0, Way.SLICES: 3.0},
        16: {Way.MPI: 1.0, Way.EVERYONE: 2.5, Way.SLICES: 3.0},
        64: {Way.MPI: 9.0, Way.EVERYONE: 6.0, Way.SLICES: 5.0},
    }
    assert last_won(times, Way.MPI) == 1
    assert last_won(times, Way.EVERYONE) == 0
    assert last_won(times, Way.EVERYONE, over=(Way.SLICES,)) == 16
    choice = choose({1: {Way.MPI: 1.0, Way.IN_PLACE: 2.0}, 4: {Way.MPI: 2.0, Way.IN_PLACE: 1.0}}, times)
    assert choice == Choice(registered_mpi_bytes=1, mpi_bytes=1, everyone_bytes=16)
    assert [choice.ordinary(n) for n in (1, 2, 16, 17)] == [Way.MPI, Way.EVERYONE, Way.EVERYONE, Way.SLICES]
    assert [choice.registered(n) for n in (1, 2)] == [Way.MPI, Way.IN_PLACE]
    assert Choice.from_list(choice.as_list()) == choice

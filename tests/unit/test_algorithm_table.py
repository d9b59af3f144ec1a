"""Trials of bucket sizes and of tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringleader.collectives.autotune_trials import Trials, describe_buckets, describe_table, refined
from ringleader.collectives.transports.algorithm_table import (
    Algorithm,
    AlgorithmTable,
    HierarchicalTable,
    OneHostTable,
    ReducedSizes,
    choose,
    last_won,
)


def _run(trials: Trials[int | None], seconds: dict[int | None, list[float]]) -> int:
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
    trials: Trials[int | None] = Trials(candidates=(8, 2, None), steps=3)
    steps = _run(trials, {8: [0.1, 5, 5, 5], 2: [99, 3, 90, 3], None: [0.1, 4, 4, 4]})
    assert steps == 12
    assert trials.seconds == [5, 3, 4]
    assert trials.current == 2
    assert trials.note(1.0) is None


def test_it_says_what_it_chose() -> None:
    trials: Trials[int | None] = Trials(candidates=(8 << 20, None), seconds=[0.25, 0.125])
    said = describe_buckets(trials)
    assert said == "buckets: no limit (a step took with 8 MiB 250.00 ms, no limit 125.00 ms)"


def test_a_way_wins_up_to_the_first_size_at_which_it_loses() -> None:
    times = {
        1: {Algorithm.MPI: 1.0, Algorithm.ONE_SHOT: 2.0, Algorithm.TWO_SHOT: 3.0},
        4: {Algorithm.MPI: 3.0, Algorithm.ONE_SHOT: 2.0, Algorithm.TWO_SHOT: 3.0},
        16: {Algorithm.MPI: 1.0, Algorithm.ONE_SHOT: 2.5, Algorithm.TWO_SHOT: 3.0},
        64: {Algorithm.MPI: 9.0, Algorithm.ONE_SHOT: 6.0, Algorithm.TWO_SHOT: 5.0},
    }
    assert last_won(times, Algorithm.MPI) == 1
    assert last_won(times, Algorithm.ONE_SHOT) == 0
    assert last_won(times, Algorithm.ONE_SHOT, over=(Algorithm.TWO_SHOT,)) == 16
    choice = choose(
        {1: {Algorithm.MPI: 1.0, Algorithm.IN_PLACE: 2.0}, 4: {Algorithm.MPI: 2.0, Algorithm.IN_PLACE: 1.0}},
        times,
    )
    assert choice == OneHostTable(registered_mpi_bytes=1, mpi_bytes=1, one_shot_bytes=16)
    assert [choice.ordinary(n) for n in (1, 2, 16, 17)] == [
        Algorithm.MPI,
        Algorithm.ONE_SHOT,
        Algorithm.ONE_SHOT,
        Algorithm.TWO_SHOT,
    ]
    assert [choice.registered(n) for n in (1, 2)] == [Algorithm.MPI, Algorithm.IN_PLACE]
    assert OneHostTable.from_list(choice.as_list()) == choice


KIB = 1 << 10
BASE = OneHostTable(registered_mpi_bytes=4 * KIB, mpi_bytes=4 * KIB, one_shot_bytes=64 * KIB)


@pytest.mark.parametrize(
    ("registered", "ordinary", "moved"),
    [
        ((), (), []),
        ((1 << 20,), (1 << 20,), []),
        ((2 * KIB,), (), [("registered_mpi_bytes", 1)]),
        ((16 * KIB,), (), [("registered_mpi_bytes", 16)]),
        ((), (8 * KIB,), [("mpi_bytes", 16)]),
        ((), (100 * KIB, 30 * KIB), [("one_shot_bytes", 16), ("one_shot_bytes", 256)]),
    ],
)
def test_only_values_that_make_a_difference_are_tried(
    registered: tuple[int, ...], ordinary: tuple[int, ...], moved: list[tuple[str, int]]
) -> None:
    used = ReducedSizes(registered=set(registered), ordinary=set(ordinary))
    assert BASE.neighbours(used) == [replace(BASE, **{name: kib * KIB}) for name, kib in moved]


def test_a_ladder_has_ends() -> None:
    used = ReducedSizes(ordinary={600, 200 * KIB})
    low, high = (
        OneHostTable(mpi_bytes=0, one_shot_bytes=0),
        OneHostTable(mpi_bytes=256 * KIB, one_shot_bytes=256 * KIB),
    )
    assert [one.mpi_bytes for one in low.neighbours(used)] == [KIB, 0]
    assert [one.mpi_bytes for one in high.neighbours(used)] == [64 * KIB]


@pytest.mark.parametrize(
    ("used", "moved"),
    [
        (ReducedSizes(registered={40 << 20}), {"piece_bytes"}),
        (ReducedSizes(registered={64 * KIB}), {"pairwise_bytes"}),
        (ReducedSizes(ordinary={10 * KIB}), {"pairwise_bytes"}),
        (ReducedSizes(ordinary={1 << 20}), set()),
    ],
)
def test_between_hosts(used: ReducedSizes, moved: set[str]) -> None:
    table = HierarchicalTable()
    assert {one.difference(table).split()[0] for one in table.neighbours(used)} == moved
    assert HierarchicalTable.from_list(table.as_list()) == table


def test_small_sizes_and_too_many_are_not_remembered() -> None:
    used = ReducedSizes()
    for nbytes in range(5000):
        used.note(used.ordinary, nbytes)
    assert min(used.ordinary) == 512 and len(used.ordinary) == 1024


def test_each_number_takes_the_value_that_saved_most() -> None:
    tables: list[AlgorithmTable] = [
        BASE,
        replace(BASE, mpi_bytes=KIB),
        replace(BASE, mpi_bytes=16 * KIB),
        replace(BASE, one_shot_bytes=16 * KIB),
        replace(BASE, registered_mpi_bytes=16 * KIB),
    ]
    trials = Trials(candidates=tables, seconds=[1.0, 0.97, 0.9, 1.2, 0.985])
    # A gain of 1.5 % is none.
    assert refined(trials) == replace(BASE, mpi_bytes=16 * KIB)
    said = describe_table(trials)
    assert said.startswith("MPI up to 16 KiB (4 KiB of registered memory), one-shot up to 64 KiB")
    assert "as before 1000.00 ms" in said and "with one_shot_bytes 16 KiB 1200.00 ms" in said
    alone: Trials[AlgorithmTable] = Trials(candidates=tables[:1], seconds=[1.0])
    assert refined(alone) == BASE and "a step took" not in describe_table(alone)

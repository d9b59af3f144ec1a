"""Trials of bucket sizes and of tables."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringleader.collectives.autotune_trials import Trials, describe_buckets, describe_table, refined
from ringleader.collectives.transports.algorithm_table import (
    Choice,
    HostsChoice,
    Table,
    Used,
    Way,
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


KIB = 1 << 10
BASE = Choice(registered_mpi_bytes=4 * KIB, mpi_bytes=4 * KIB, everyone_bytes=64 * KIB)


@pytest.mark.parametrize(
    ("registered", "ordinary", "moved"),
    [
        ((), (), []),
        ((1 << 20,), (1 << 20,), []),
        ((2 * KIB,), (), [("registered_mpi_bytes", 1)]),
        ((16 * KIB,), (), [("registered_mpi_bytes", 16)]),
        ((), (8 * KIB,), [("mpi_bytes", 16)]),
        ((), (100 * KIB, 30 * KIB), [("everyone_bytes", 16), ("everyone_bytes", 256)]),
    ],
)
def test_only_values_that_make_a_difference_are_tried(
    registered: tuple[int, ...], ordinary: tuple[int, ...], moved: list[tuple[str, int]]
) -> None:
    used = Used(registered=set(registered), ordinary=set(ordinary))
    assert BASE.moves(used) == [replace(BASE, **{name: kib * KIB}) for name, kib in moved]


def test_a_ladder_has_ends() -> None:
    used = Used(ordinary={600, 200 * KIB})
    low, high = Choice(mpi_bytes=0, everyone_bytes=0), Choice(mpi_bytes=256 * KIB, everyone_bytes=256 * KIB)
    assert [one.mpi_bytes for one in low.moves(used)] == [KIB, 0]
    assert [one.mpi_bytes for one in high.moves(used)] == [64 * KIB]


@pytest.mark.parametrize(
    ("used", "moved"),
    [
        (Used(registered={40 << 20}), {"piece_bytes"}),
        (Used(registered={64 * KIB}), {"pairwise_bytes"}),
        (Used(ordinary={10 * KIB}), {"pairwise_bytes"}),
        (Used(ordinary={1 << 20}), set()),
    ],
)
def test_between_hosts(used: Used, moved: set[str]) -> None:
    table = HostsChoice()
    assert {one.difference(table).split()[0] for one in table.moves(used)} == moved
    assert HostsChoice.from_list(table.as_list()) == table


def test_small_sizes_and_too_many_are_not_remembered() -> None:
    used = Used()
    for nbytes in range(5000):
        used.note(used.ordinary, nbytes)
    assert min(used.ordinary) == 512 and len(used.ordinary) == 1024


def test_each_number_takes_the_value_that_saved_most() -> None:
    tables: list[Table] = [
        BASE,
        replace(BASE, mpi_bytes=KIB),
        replace(BASE, mpi_bytes=16 * KIB),
        replace(BASE, everyone_bytes=16 * KIB),
        replace(BASE, registered_mpi_bytes=16 * KIB),
    ]
    trials = Trials(candidates=tables, seconds=[1.0, 0.97, 0.9, 1.2, 0.985])
    # A gain of 1.5 % is none.
    assert refined(trials) == replace(BASE, mpi_bytes=16 * KIB)
    said = describe_table(trials)
    assert said.startswith(
        "MPI up to 16 KiB (4 KiB of registered memory), every rank for itself up to 64 KiB"
    )
    assert "as before 1000.00 ms" in said and "with everyone_bytes 16 KiB 1200.00 ms" in said
    alone: Trials[Table] = Trials(candidates=tables[:1], seconds=[1.0])
    assert refined(alone) == BASE and "a step took" not in describe_table(alone)

"""Process sets: the table of numbers, and jobs that use them."""

from typing import Any

import pytest
from tests.collectives.layouts import LAYOUTS, programs

from ringleader.engine.process_set_registry import SetTable, in_turn

DYNAMIC = {"HOROVOD_DYNAMIC_PROCESS_SETS": "1"}
PATIENCE = DYNAMIC | {"RINGLEADER_MISMATCH_PATIENCE": "0.3"}


def test_numbers_are_given_in_order_and_again() -> None:
    table = SetTable(4)
    assert [table.add(ranks) for ranks in [(0, 1), (2, 3), (1,)]] == [1, 2, 3]
    table.remove(2)
    table.remove(1)
    assert [table.add(ranks) for ranks in [(3,), (2,), (0,)]] == [2, 1, 4]
    assert table.all() == {0: (0, 1, 2, 3), 1: (2,), 2: (3,), 3: (1,), 4: (0,)}
    assert (table.find((3,)), table.find((0, 1)), table.find((0, 1, 2, 3))) == (2, None, 0)
    assert (table.ranks(3), table.ranks(9)) == ((1,), None)


def test_what_is_a_set() -> None:
    table = SetTable(4)
    assert table.checked([3, 0, 2]) == (0, 2, 3)
    assert (table.present([9, 3, 0]), table.present([4])) == ((0, 3), ())  # missing for a time
    for ranks, said in (([], "at least one"), ([1, 1], "once"), ([0, 4], "not all among")):
        with pytest.raises(ValueError, match=said):
            table.checked(ranks)
    for ranks, said in (([], "at least one"), ([5, 5], "once"), ([-1, 0], "not all among")):
        with pytest.raises(ValueError, match=said):
            table.present(ranks)


def test_sets_of_a_split_communicator_follow_each_other() -> None:
    evens, odds = (0, 2), (1, 3)
    assert in_turn([[evens, (0,)], [odds, (0,)], [evens, (0,)], [odds, (0,)]]) == [evens, odds, (0,)]
    with pytest.raises(ValueError, match="different numbers"):
        in_turn([[evens], []])


@pytest.mark.mpi
@pytest.mark.torch
@programs(
    ("sets.py", "2 3 2x2", "4", DYNAMIC),
    # A script that loads MPI before us does not get our settings for it, and this one keeps it quiet.
    *((f"sets_at_init.py {how}", "4", "", {"OMPI_MCA_osc": "^ucx"}) for how in ("static", "communicator")),
    ("sets_at_init.py list", "4", "", {"OMPI_MCA_osc": "^ucx"}),
    ("sets_against_operations.py", "2 2+1", "", PATIENCE),
    ("waiting_across_sets.py slow", "3", "2+1", PATIENCE),
    ("waiting_across_sets.py another-thread", "3", "2+1", PATIENCE),
)
def test_programs(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.long
def test_ranks_end_although_memory_of_removed_sets_is_looked_at(jobs: Any) -> None:
    jobs.fresh("windows_left.py", ranks=3, timeout=60, **DYNAMIC).passed(3)


FOR_EVER = [
    "Mismatched operations across process sets, and every rank waits: ",
    "rank 0 in allreduce 'allreduce.all' of all ranks for rank 2",
    "rank 1 in hvd.remove_process_set([0, 2]) of all ranks for rank 2",
    "rank 2 in allreduce 'allreduce.pair' of process set 1 for rank 0",
]
IN_THREE_SETS = ["rank 2 in allreduce 'allreduce.other' of process set 2 for rank 1"]


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize(
    ("how", "layout", "said"),
    [
        ("for-ever", "3", FOR_EVER),
        ("for-ever", "2+1", FOR_EVER),
        pytest.param("for-ever", "3x1", FOR_EVER, marks=pytest.mark.long),
        ("in-three-sets", "3", IN_THREE_SETS),
        pytest.param("in-three-sets", "3x1", IN_THREE_SETS, marks=pytest.mark.long),
    ],
)
def test_ranks_that_wait_for_each_other_in_different_sets(
    jobs: Any, how: str, layout: str, said: list[str]
) -> None:
    """No set has all of its members, so that none of them could tell."""
    environ = PATIENCE | LAYOUTS[layout].environ
    job = jobs("waiting_across_sets.py", how, ranks=3, timeout=60, **environ)
    job.passed(3)
    assert all(job.out.count(words) == 3 for words in said), job.out

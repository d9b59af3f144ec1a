"""Process sets: the table of numbers, and jobs that use them."""

from typing import Any

import pytest

from ringleader.engine.process_set_registry import SetTable, in_turn


def test_numbers_are_given_in_order_and_again() -> None:
    table = SetTable(4)
    assert [table.add(ranks) for ranks in [(0, 1), (2, 3), (1,)]] == [1, 2, 3]
    table.remove(2)
    table.remove(1)
    assert [table.add(ranks) for ranks in [(3,), (2,), (0,)]] == [2, 1, 4]
    assert table.all() == {0: (0, 1, 2, 3), 1: (2,), 2: (3,), 3: (1,), 4: (0,)}
    assert (table.find((3,)), table.find((0, 1)), table.find((0, 1, 2, 3))) == (2, None, 0)
    assert (table.ranks(3), table.ranks(9)) == ((1,), None)


@pytest.mark.parametrize(
    ("ranks", "said"),
    [([], "at least one"), ([1, 1], "once"), ([0, 4], "not all among"), ([-1, 0], "not all among")],
)
def test_what_is_no_set(ranks: list[int], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SetTable(4).checked(ranks)


def test_ranks_are_sorted() -> None:
    assert SetTable(4).checked([3, 0, 2]) == (0, 2, 3)


def test_ranks_that_are_missing_for_a_time() -> None:
    assert SetTable(4).present([9, 3, 0]) == (0, 3)
    assert SetTable(4).present([4]) == ()
    for ranks in ([], [5, 5], [-1, 0]):
        with pytest.raises(ValueError, match=r"A process set|not all among"):
            SetTable(4).present(ranks)


def test_sets_of_a_split_communicator_follow_each_other() -> None:
    evens, odds = (0, 2), (1, 3)
    assert in_turn([[evens, (0,)], [odds, (0,)], [evens, (0,)], [odds, (0,)]]) == [evens, odds, (0,)]
    with pytest.raises(ValueError, match="different numbers"):
        in_turn([[evens], []])


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_sets(jobs: Any, ranks: int) -> None:
    jobs("sets.py", ranks=ranks, HOROVOD_DYNAMIC_PROCESS_SETS="1").passed(ranks)


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("how", ["static", "communicator", "list"])
def test_sets_at_init(jobs: Any, how: str) -> None:
    # A script that loads MPI before us does not get our settings for it, and this one keeps it quiet.
    jobs("sets_at_init.py", how, ranks=4, OMPI_MCA_osc="^ucx").passed(4)


@pytest.mark.mpi
@pytest.mark.torch
def test_sets_between_hosts(jobs: Any) -> None:
    jobs("sets.py", ranks=4, HOROVOD_DYNAMIC_PROCESS_SETS="1", RINGLEADER_RANKS_PER_HOST="2").passed(4)


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize(("ranks", "per_host"), [(2, ""), (3, "2")])
def test_a_change_of_sets_against_an_operation(jobs: Any, ranks: int, per_host: str) -> None:
    jobs(
        "sets_against_operations.py",
        ranks=ranks,
        HOROVOD_DYNAMIC_PROCESS_SETS="1",
        RINGLEADER_MISMATCH_PATIENCE="0.3",
        RINGLEADER_RANKS_PER_HOST=per_host,
    ).passed(ranks)


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.long
def test_ranks_end_although_memory_of_removed_sets_is_looked_at(jobs: Any) -> None:
    jobs.fresh("windows_left.py", ranks=3, timeout=60, HOROVOD_DYNAMIC_PROCESS_SETS="1").passed(3)


def across_sets(jobs: Any, how: str, per_host: str = "") -> Any:
    return jobs(
        "waiting_across_sets.py",
        how,
        ranks=3,
        timeout=60,
        HOROVOD_DYNAMIC_PROCESS_SETS="1",
        RINGLEADER_MISMATCH_PATIENCE="0.3",
        RINGLEADER_RANKS_PER_HOST=per_host,
    )


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("per_host", ["", "2", pytest.param("1", marks=pytest.mark.long)])
def test_ranks_that_wait_for_each_other_in_different_sets(jobs: Any, per_host: str) -> None:
    """No set has all of its members, so that none of them could tell."""
    job = across_sets(jobs, "for ever", per_host)
    job.passed(3)
    words = "Mismatched operations across process sets, and every rank waits: "
    assert job.out.count(words) == 3, job.out
    assert "rank 0 in allreduce 'allreduce.all' of all ranks for rank 2" in job.out
    assert "rank 1 in hvd.remove_process_set([0, 2]) of all ranks for rank 2" in job.out
    assert "rank 2 in allreduce 'allreduce.pair' of process set 1 for rank 0" in job.out


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("per_host", ["", pytest.param("1", marks=pytest.mark.long)])
def test_a_circle_of_three_sets(jobs: Any, per_host: str) -> None:
    job = across_sets(jobs, "in three sets", per_host)
    job.passed(3)
    assert job.out.count("rank 2 in allreduce 'allreduce.other' of process set 2 for rank 1") == 3, job.out


@pytest.mark.mpi
@pytest.mark.torch
@pytest.mark.parametrize("how", ["slow", "another thread"])
@pytest.mark.parametrize("per_host", ["", pytest.param("2", marks=pytest.mark.long)])
def test_a_rank_that_is_only_late_to_a_set(jobs: Any, how: str, per_host: str) -> None:
    across_sets(jobs, how, per_host).passed(3)

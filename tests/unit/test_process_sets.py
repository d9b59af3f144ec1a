"""Words that stand for no process set, and the sets that there are by the name in Horovod's tests."""

import pytest

import ringleader.torch as hvd
from ringleader.adapters.process_sets import global_process_set, next_serial, number_of


@pytest.mark.parametrize("word", [None, 0, [0, 1]])
def test_what_is_no_process_set_is_named(word: object) -> None:
    for call in (number_of, next_serial):
        with pytest.raises(TypeError, match=r"process_set= takes an hvd\.ProcessSet, not"):
            call(word)  # type: ignore[operator]
    assert number_of(global_process_set) == 0


def test_the_sets_of_a_job_by_the_name_that_horovods_tests_use() -> None:
    hvd.init()
    try:
        assert hvd.mpi_ops._basics._get_process_set_ids_and_ranks() == {0: [0]}
    finally:
        hvd.shutdown()

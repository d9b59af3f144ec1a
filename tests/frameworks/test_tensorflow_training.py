"""Tapes, aggregation, batch normalization: ranks learn together what one process learns alone."""

import pytest
from tests.frameworks.conftest import Train

pytestmark = [pytest.mark.timeout(400), pytest.mark.mpi]


@pytest.mark.long
def test_ranks_have_equal_weights_after_training(train: Train) -> None:
    train("tensorflow_training.py", "function", ranks=2).passed(2)


@pytest.mark.long
def test_a_rank_that_takes_more_steps_gets_an_error(train: Train) -> None:
    job = train("tensorflow_uneven_steps.py", ranks=2)
    assert job.code != 0 and job.out.count("rank done") == 1, job.out + job.err
    assert "HorovodInternalError" in job.err, job.err


@pytest.mark.long
@pytest.mark.parametrize(("ranks", "mode"), [(1, "function"), (2, "dense"), (3, "eager")])
def test_any_number_of_ranks_trains_alike(train: Train, ranks: int, mode: str) -> None:
    train("tensorflow_training.py", mode, ranks=ranks).passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [pytest.param(2, marks=pytest.mark.exhaustive), 3])
def test_tapes_give_the_gradients_of_all_ranks(train: Train, ranks: int) -> None:
    train("tensorflow_tape.py", ranks=ranks).passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize(
    ("ranks", "legacy"),
    [(2, "0"), (3, "1"), *(pytest.param(*one, marks=pytest.mark.exhaustive) for one in ((1, "0"), (2, "1")))],
)
def test_batch_normalization_over_all_ranks(train: Train, ranks: int, legacy: str) -> None:
    train("tensorflow_batch_norm.py", ranks=ranks, TF_USE_LEGACY_KERAS=legacy).passed(ranks)

"""JAX: jax.distributed as it is, and ringleader.jax."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.frameworks.conftest import Train

from ringleader.lab.saved_state import Lab

pytestmark = [pytest.mark.timeout(400), pytest.mark.mpi]


@pytest.mark.long
def test_operations(train: Train) -> None:
    train("jax_operations.py", ranks=2, RINGLEADER_MISMATCH_PATIENCE="1").passed(2)


def test_collectives_of_jax_itself(train: Train) -> None:
    train("jax_distributed.py", ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.exhaustive
@pytest.mark.parametrize("ranks", [1, 3])
def test_operations_on_other_numbers_of_ranks(train: Train, ranks: int) -> None:
    train("jax_operations.py", ranks=ranks, RINGLEADER_MISMATCH_PATIENCE="1").passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [4])
def test_any_number_of_ranks_has_equal_weights(train: Train, ranks: int) -> None:
    train("jax_training.py", "60", ranks=ranks, timeout=300).passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize("mpi", ["openmpi4", "mpich"])
def test_collectives_of_jax_itself_with_other_mpis(train: Train, mpi: str) -> None:
    train("jax_distributed.py", ranks=3, options=("--mpi", mpi)).passed(3)


@pytest.mark.long
def test_collectives_of_jax_itself_in_jobs_side_by_side(train: Train) -> None:
    with ThreadPoolExecutor() as pool:
        jobs = [pool.submit(train, "jax_distributed.py", ranks=2) for _ in range(3)]
    for job in jobs:
        job.result().passed(2)


@pytest.mark.long
def test_ranks_with_fewer_steps_are_an_error_and_not_a_hang(train: Train) -> None:
    job = train("jax_uneven_steps.py", ranks=2, timeout=100)
    assert job.code != 0 and "HorovodInternalError" in job.err, job.err[-3000:]


@pytest.mark.long
@pytest.mark.lab
@pytest.mark.parametrize(
    "program", ["jax_distributed.py", pytest.param("jax_training.py", marks=pytest.mark.exhaustive)]
)
def test_between_hosts(train: Train, lab: Lab, program: str) -> None:
    train(program, ranks=4, timeout=300, options=("--lab", "--lab-name", lab.name)).passed(4)

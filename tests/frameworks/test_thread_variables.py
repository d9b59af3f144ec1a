"""The threads of each framework are those of the variables that the launcher sets."""

import pytest
from tests.frameworks.conftest import Train


@pytest.mark.long
@pytest.mark.mpi
@pytest.mark.process
@pytest.mark.parametrize("framework", ["tensorflow", "jax"])
def test_ranks_that_roam_take_what_they_are_told(train: Train, framework: str) -> None:
    pytest.importorskip(framework)
    train("thread_counts.py", framework, ranks=1, options=("--bind", "none", "--threads", "5")).passed(1)

"""`ringleader.tensorflow`: what scripts meet besides results, on ranks of this machine."""

import pytest
from tests.frameworks.conftest import Train


@pytest.mark.long
def test_names_errors_threads_and_lives(train: Train) -> None:
    train("tensorflow_behavior.py", ranks=2, RINGLEADER_MISMATCH_PATIENCE="2").passed(2)


@pytest.mark.long
def test_names_errors_threads_and_lives_on_three_ranks(train: Train) -> None:
    train("tensorflow_behavior.py", ranks=3, timeout=400, RINGLEADER_MISMATCH_PATIENCE="2").passed(3)

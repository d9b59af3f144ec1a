"""`ringleader.tensorflow`: what scripts meet besides results, on ranks of this machine."""

from __future__ import annotations

import pytest
from tests.frameworks.conftest import Train


def test_names_errors_threads_and_lives(train: Train) -> None:
    train("tensorflow_behaviour.py", ranks=2, RINGLEADER_MISMATCH_PATIENCE="2").passed(2)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3])
def test_names_errors_threads_and_lives_on_other_numbers_of_ranks(train: Train, ranks: int) -> None:
    train("tensorflow_behaviour.py", ranks=ranks, timeout=400, RINGLEADER_MISMATCH_PATIENCE="2").passed(ranks)

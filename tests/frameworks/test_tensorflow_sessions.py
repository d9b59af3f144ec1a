"""Graphs and sessions of TensorFlow 1: operations, the optimizer, broadcasts."""

from __future__ import annotations

import pytest
from tests.frameworks.conftest import Train

pytest.importorskip("tensorflow")


def test_operations_in_sessions(train: Train) -> None:
    train("tensorflow_sessions.py", ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_operations_in_sessions_of_more_ranks(train: Train, ranks: int) -> None:
    train("tensorflow_sessions.py", ranks=ranks).passed(ranks)

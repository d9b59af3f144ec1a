"""Graphs and sessions of TensorFlow 1: operations, the optimizer, broadcasts."""

import pytest
from tests.frameworks.conftest import Train

pytest.importorskip("tensorflow")


@pytest.mark.long
def test_operations_in_sessions(train: Train) -> None:
    train("tensorflow_sessions.py", ranks=2).passed(2)


@pytest.mark.smoke
def test_a_session_waits_again_after_a_run_that_failed(train: Train) -> None:
    train("session_after_failure.py", ranks=1).passed(1)


@pytest.mark.long
@pytest.mark.exhaustive
def test_operations_in_sessions_of_more_ranks(train: Train) -> None:
    train("tensorflow_sessions.py", ranks=3).passed(3)


@pytest.mark.long
def test_training_in_sessions(train: Train) -> None:
    train("tensorflow_session_training.py", "v1", ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("version", "ranks"), [("v2", 2), pytest.param("v1", 4, marks=pytest.mark.exhaustive)]
)
def test_training_in_sessions_of_other_kinds(train: Train, version: str, ranks: int) -> None:
    train("tensorflow_session_training.py", version, "all", ranks=ranks, timeout=400).passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize("mode", ["dies", "differs", "leaves", "interrupted", "forked"])
def test_faults_while_sessions_wait(train: Train, mode: str) -> None:
    done = train("tensorflow_session_faults.py", mode, ranks=2)
    assert done.out.count("rank done") == 2, done.out[-3000:] + done.err[-3000:]
    assert done.code != 124


@pytest.mark.long
def test_one_operation_in_two_calls_at_a_time(train: Train) -> None:
    train("tensorflow_session_faults.py", "twice", ranks=1).passed(1)

"""Keras' example: ranks end with the same parameters, and know the digits."""

from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(400)]


@pytest.mark.long
@pytest.mark.parametrize("backend", ["jax", "torch", "tensorflow"])
def test_two_ranks_learn_the_digits(run: Callable, monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    monkeypatch.setenv("KERAS_BACKEND", backend)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    ended = run("keras_mnist.py", "--epochs", 8, ranks=2, launched=True)
    assert ended.line("[0] parameters of rank 0: ") == ended.line("[1] parameters of rank 1: ")
    assert float(ended.line("[0] test accuracy: ").split()[0].rstrip("%")) > 93

"""Keras of both generations on every backend: ranks train together, and nothing makes them differ or hang."""

from __future__ import annotations

import pytest
from tests.frameworks.conftest import Train

pytestmark = [pytest.mark.timeout(400), pytest.mark.mpi]

KERAS = {
    "keras2": {"TF_USE_LEGACY_KERAS": "1"},
    "tensorflow": {"KERAS_BACKEND": "tensorflow"},
    "torch": {"KERAS_BACKEND": "torch"},
    "jax": {"KERAS_BACKEND": "jax"},
}


@pytest.mark.parametrize("which", KERAS)
def test_ranks_train_together(train: Train, which: str) -> None:
    train("keras_training.py", "40", ranks=2, **KERAS[which]).passed(2)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@pytest.mark.parametrize("which", KERAS)
def test_any_number_of_ranks_has_equal_weights(train: Train, which: str, ranks: int) -> None:
    train("keras_training.py", "200", ranks=ranks, timeout=300, **KERAS[which]).passed(ranks)


@pytest.mark.parametrize(
    ("which", "case"),
    [
        ("jax", "steps"),
        ("jax", "processor"),
        ("tensorflow", "arguments"),
        *(
            pytest.param(which, case, marks=pytest.mark.long)
            for which in KERAS
            for case in ("steps", "exit", "variables", "arguments", "processor")
            if (which, case) not in (("jax", "steps"), ("jax", "processor"), ("tensorflow", "arguments"))
        ),
    ],
)
def test_faults_end_with_an_error_on_every_rank(train: Train, which: str, case: str) -> None:
    train("keras_faults.py", case, ranks=2, **KERAS[which]).passed(2)


@pytest.mark.long
@pytest.mark.parametrize("which", KERAS)
def test_values_agree_with_numpy(train: Train, which: str) -> None:
    train("contract.py", "keras", ranks=2, **KERAS[which]).passed(2)

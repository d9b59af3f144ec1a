"""Keras of both generations on every backend: ranks train together, and nothing makes them differ or hang."""

import pytest
from tests.frameworks.conftest import Train

pytestmark = [pytest.mark.timeout(400), pytest.mark.mpi]

KERAS = {
    "keras2": {"TF_USE_LEGACY_KERAS": "1"},
    "tensorflow": {"KERAS_BACKEND": "tensorflow"},
    "torch": {"KERAS_BACKEND": "torch"},
    "jax": {"KERAS_BACKEND": "jax"},
}


@pytest.mark.parametrize(
    "which", [pytest.param("keras2", marks=pytest.mark.smoke), pytest.param("jax", marks=pytest.mark.long)]
)
def test_ranks_train_together(train: Train, which: str) -> None:
    train("keras_training.py", "40", ranks=2, **KERAS[which]).passed(2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "ranks"),
    [
        ("keras2", 4),
        ("tensorflow", 3),
        ("torch", 2),
        ("jax", 1),
    ],
)
def test_any_number_of_ranks_has_equal_weights(train: Train, which: str, ranks: int) -> None:
    train("keras_training.py", "60", ranks=ranks, timeout=300, **KERAS[which]).passed(ranks)


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "case"),
    [
        ("jax", "steps"),
        ("jax", "processor"),
        ("tensorflow", "steps"),
        ("torch", "metrics"),
        ("keras2", "variables"),
        *(
            pytest.param(which, case, marks=pytest.mark.exhaustive)
            for which, case in (
                ("tensorflow", "arguments"),
                ("torch", "steps"),
                ("torch", "exit"),
                ("jax", "variables"),
            )
        ),
        ("keras2", "exit"),
    ],
)
def test_faults_end_with_an_error_on_every_rank(train: Train, which: str, case: str) -> None:
    train("keras_faults.py", case, ranks=2, **KERAS[which]).passed(2)


@pytest.mark.long
@pytest.mark.parametrize("which", ["keras2", "jax"])
def test_values_agree_with_numpy(train: Train, which: str) -> None:
    train("contract.py", "keras", ranks=2, **KERAS[which]).passed(2)


@pytest.mark.long
@pytest.mark.parametrize(
    "which",
    [
        pytest.param("keras2", marks=pytest.mark.long),
        pytest.param("tensorflow", marks=pytest.mark.long),
        "torch",
    ],
)
def test_weights_that_differ_are_reported(train: Train, which: str) -> None:
    done = train("keras_consistency.py", "3", ranks=2, **KERAS[which])
    done.passed(2)
    [line] = [line for line in done.err.splitlines() if "differ between ranks" in line]
    assert "after step 8: rank 1 differs from rank 0 in " in line
    assert "hvd.broadcast_variables(" in line
    train("keras_consistency.py", "0", ranks=2, **KERAS[which]).passed(2)

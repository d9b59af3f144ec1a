"""Elastic states of TensorFlow and Keras on ranks of a job that is not elastic."""

import pytest
from tests.frameworks.conftest import Train

pytestmark = [pytest.mark.timeout(400), pytest.mark.mpi]


@pytest.mark.long
@pytest.mark.parametrize("how", ["eager", "session"])
def test_states_of_variables(train: Train, how: str) -> None:
    train("elastic_tensorflow.py", how, ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("which", "environ"),
    [
        ("tf.keras", {"TF_USE_LEGACY_KERAS": "1"}),
        pytest.param("tf.keras", {}, marks=pytest.mark.long),
        pytest.param("keras", {"KERAS_BACKEND": "torch"}, marks=pytest.mark.long),
        pytest.param("keras", {"KERAS_BACKEND": "jax"}, marks=pytest.mark.long),
    ],
)
def test_fit_goes_on_where_it_was(train: Train, which: str, environ: dict[str, str]) -> None:
    train("elastic_keras.py", which, ranks=1, **environ).passed(1)
    train("elastic_keras.py", which, ranks=2, **environ).passed(2)

"""Every operation of every adapter, compared with NumPy."""

import pytest
from tests.frameworks.conftest import Train


@pytest.mark.parametrize(
    "bridge",
    [pytest.param("tensorflow_eager", marks=pytest.mark.long), pytest.param("jax", marks=pytest.mark.smoke)],
)
def test_operations_agree_with_numpy(train: Train, bridge: str) -> None:
    train("contract.py", bridge, ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bridge", "ranks"),
    [
        ("tensorflow_eager", 1),
        ("tensorflow_eager", 3),
        ("tensorflow_function", 2),
        ("tensorflow_session", 2),
        ("jax", 4),
        ("jax_jit", 3),
    ],
)
def test_operations_of_all_kinds_agree_with_numpy(train: Train, bridge: str, ranks: int) -> None:
    train("contract.py", bridge, ranks=ranks, timeout=500).passed(ranks)

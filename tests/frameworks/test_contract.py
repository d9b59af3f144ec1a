"""Every operation of every adapter, compared with NumPy."""

from __future__ import annotations

import pytest
from tests.frameworks.conftest import Train

BRIDGES = ["tensorflow_eager", "tensorflow_function", "jax"]
LONG_BRIDGES = [*BRIDGES, "jax_jit", "tensorflow_session"]


@pytest.mark.parametrize("bridge", BRIDGES)
def test_operations_agree_with_numpy(train: Train, bridge: str) -> None:
    train("contract.py", bridge, ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3, 4])
@pytest.mark.parametrize("bridge", LONG_BRIDGES)
def test_operations_agree_with_numpy_on_other_numbers_of_ranks(train: Train, bridge: str, ranks: int) -> None:
    train("contract.py", bridge, ranks=ranks, timeout=500).passed(ranks)

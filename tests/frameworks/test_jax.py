"""JAX: jax.distributed as it is, and ringleader.jax."""

from __future__ import annotations

import pytest

from .conftest import Train

pytestmark = pytest.mark.process


def test_operations_and_training(train: Train) -> None:
    train("jax_operations.py", ranks=2, RINGLEADER_MISMATCH_PATIENCE="1").passed(2)


def test_jaxs_own_collectives_as_they_are(train: Train) -> None:
    train("jax_distributed.py", ranks=2).passed(2)


@pytest.mark.long
@pytest.mark.parametrize("ranks", [1, 3, 4])
def test_operations(train: Train, ranks: int) -> None:
    train("jax_operations.py", ranks=ranks, RINGLEADER_MISMATCH_PATIENCE="1").passed(ranks)

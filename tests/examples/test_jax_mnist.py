"""The example for JAX learns its digits on one rank and on two, whose parameters stay equal."""

from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.timeout(300)]


@pytest.mark.long
@pytest.mark.parametrize("ranks", [2, pytest.param(1, marks=pytest.mark.long)])
def test_it_learns(run: Callable, ranks: int) -> None:
    ended = run("jax_mnist.py", "--epochs", 6, "--check-equal", ranks=ranks, launched=True)
    assert float(ended.line("[0] test accuracy: ").split()[0].rstrip("%")) > 90
    assert len({ended.line(f"[{rank}] parameters of rank {rank}: ") for rank in range(ranks)}) == 1

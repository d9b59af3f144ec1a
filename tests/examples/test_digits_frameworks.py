"""The MNIST examples of the other frameworks: ranks end with the same parameters, and know the digits."""

from collections.abc import Callable

import pytest

pytestmark = [pytest.mark.mpi, pytest.mark.long, pytest.mark.timeout(400)]


@pytest.mark.parametrize(
    ("example", "backend", "ranks"),
    [
        ("jax_mnist.py --epochs 6 --check-equal", "", 2),
        ("jax_mnist.py --epochs 6 --check-equal", "", 1),
        *(("keras_mnist.py --epochs 8", backend, 2) for backend in ("jax", "torch", "tensorflow")),
        *((f"tensorflow{version}_mnist.py --check-equal", "", 2) for version in (1, 2)),
    ],
)
def test_ranks_learn_the_digits_together(
    run: Callable, monkeypatch: pytest.MonkeyPatch, example: str, backend: str, ranks: int
) -> None:
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "2")
    if backend:
        monkeypatch.setenv("KERAS_BACKEND", backend)
    is_tensorflow = example.startswith("tensorflow")
    # A training of some seconds has its rate reported.
    ended = run(*example.split(), ranks=ranks, launched=True, quiet=False)
    assert float(ended.line("[0] test accuracy: ").split()[0].rstrip("%")) > 90
    what = "weights" if is_tensorflow else "parameters"
    assert len({ended.line(f"[{rank}] {what} of rank {rank}: ") for rank in range(ranks)}) == 1

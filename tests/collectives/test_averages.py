"""An average is the sum divided by the number of ranks, not multiplied by a rounded inverse."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ringleader.collectives.kernels import divisor_of
from ringleader.collectives.operations import ReduceOp
from ringleader.torch.kernels import TorchKernels

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


@pytest.mark.parametrize("size", range(2, 130))
def test_what_divides(size: int) -> None:
    power = size & (size - 1) == 0
    assert divisor_of(1 / size) == (0 if power else size)


@pytest.mark.parametrize("factor", [1.0, 0.0, -1 / 3, 3.0, 2 / 3, 0.3333, 1e-320, float("inf"), float("nan")])
def test_what_multiplies(factor: float) -> None:
    assert divisor_of(factor) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [3, 5, 6, 7, 49])
def test_the_last_bit(dtype: torch.dtype, size: int) -> None:
    values = torch.linspace(-1000, 1000, 100_003, dtype=dtype)
    want = values.numpy() / values.numpy().dtype.type(size)
    assert (values * (1 / size) != torch.from_numpy(want)).any(), "these values tell nothing"
    scaled, everywhere = values.clone(), [values.clone(), torch.zeros_like(values)]
    kernels = TorchKernels()
    kernels.scale(scaled, 1 / size)
    kernels.everywhere([everywhere])(ReduceOp.SUM, 1 / size)
    for got in (scaled, *everywhere):
        assert torch.equal(got, torch.from_numpy(want))


@pytest.mark.parametrize(
    ("size", "transport", "environ"),
    [
        (3, "window", {}),
        (3, "mpi", {"RINGLEADER_TRANSPORT": "mpi"}),
        pytest.param(3, "mpi", {"RINGLEADER_RANKS_PER_HOST": "1"}, marks=pytest.mark.long),
        pytest.param(6, "hosts", {"RINGLEADER_RANKS_PER_HOST": "2"}, marks=pytest.mark.long),
        (3, "distributed", {"RINGLEADER_TRANSPORT": "distributed"}),
    ],
    ids=["window", "mpi", "3x1", "3x2", "distributed"],
)
def test_ranks(jobs: Any, size: int, transport: str, environ: dict[str, str]) -> None:
    jobs("averages.py", transport, ranks=size, **environ).passed(size)

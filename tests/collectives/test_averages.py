"""An average is the sum divided by the number of ranks, not multiplied by a rounded inverse."""

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.collectives.layouts import programs

from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import divisor_of
from ringleader.torch.torch_kernels import TorchKernels, scale_on_device

pytestmark = [pytest.mark.mpi, pytest.mark.torch]


def test_what_divides_and_what_multiplies() -> None:
    for size in range(2, 130):
        assert divisor_of(1 / size) == (0 if size & (size - 1) == 0 else size)
    for factor in (1.0, 0.0, -1 / 3, 3.0, 2 / 3, 0.3333, 1e-320, math.inf, math.nan):
        assert divisor_of(factor) == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [3, 6, 49])
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


@programs(
    ("averages.py {transport}", "", "3 3x1 3x2"),
    *(
        ("averages.py {transport}", "", "3", {"RINGLEADER_TRANSPORT": name})
        for name in ("mpi", "distributed")
    ),
)
def test_ranks(jobs: Any, program: str, layout: Any, environ: dict[str, str]) -> None:
    jobs.pass_on(layout, program, **environ)


INTEGERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
FRACTIONS = st.builds(Fraction, st.integers(-99_999, 99_999), st.integers(1, 99_999))


@given(
    name=st.sampled_from(INTEGERS),
    fraction=st.one_of(FRACTIONS, st.builds(Fraction, st.just(1), st.integers(1, 5000))),
    near=st.lists(st.tuples(st.sampled_from([0, 1, 2, 3]), st.integers(0, 300)), min_size=1, max_size=20),
)
@settings(max_examples=200, deadline=None, derandomize=True, database=None)
@example(name="uint64", fraction=Fraction(1, 49), near=[(1, 49), (3, 0)])
@example(name="int64", fraction=Fraction(10_000_001, 10_000_000), near=[(3, 0), (0, 0)])
@example(name="int64", fraction=Fraction(-1), near=[(3, 0), (0, 0)])
def test_integers_scale_as_python_divides(name: str, fraction: Fraction, near: list[tuple[int, int]]) -> None:
    """NumPy's arrays, tensors, and the arithmetic of tensors on devices: exact, cut, within the type."""
    least, most = int(np.iinfo(name).min), int(np.iinfo(name).max)
    places = (least, 0, most // 2, most)
    numbers = [min(max(places[at] + (-away if at == 3 else away), least), most) for at, away in near]
    want = [min(max(int(number * fraction), least), most) for number in numbers]
    array = np.array(numbers, name)
    tensor, device = torch.from_numpy(array.copy()), torch.from_numpy(array.copy())
    NumpyAdapter().scale(array, float(fraction))
    TorchKernels().scale(tensor, float(fraction))
    scale_on_device(device, float(fraction))
    assert array.tolist() == tensor.tolist() == device.tolist() == want


@pytest.mark.parametrize("factor", [math.pi, -math.pi / 1e5, 1e30, -1e30, 1 + 2**-40, math.inf])
def test_a_factor_that_is_no_small_fraction_stays_within_the_type(factor: float) -> None:
    for name in INTEGERS:
        least, most = int(np.iinfo(name).min), int(np.iinfo(name).max)
        numbers = [least, most, 1, most // 3]
        array = np.array(numbers, name)
        NumpyAdapter().scale(array, factor)
        for number, got in zip(numbers, array.tolist(), strict=True):
            exact = number * Fraction(factor) if math.isfinite(factor) else Fraction(number * 10**30)
            want = min(max(int(exact), least), most)
            assert abs(got - want) <= abs(want) * 2.0**-51 + 1, (name, number, got, want)


def test_long_arrays_of_integers_scale_in_pieces() -> None:
    array = np.arange(300_000).reshape(3, 100_000)
    tensor = torch.from_numpy(array.copy())
    TorchKernels().scale(tensor, 1 / 7)
    assert np.array_equal(tensor.numpy(), array // 7)

"""The vector kernels of each framework: every type, reduction and factor gives what PyTorch's give."""

from typing import Any

import numpy as np
import pytest
import torch

from ringleader.adapters.numpy_adapter import NumpyAdapter, aligned_empty, dtype_name, is_aligned
from ringleader.adapters.numpy_arithmetic import dtype_named
from ringleader.engine.operations import ReduceOp
from ringleader.engine.reduction_kernels import ITEMSIZE, divisor_of
from ringleader.torch.torch_kernels import TORCH_TYPES, TorchKernels

pytestmark = [pytest.mark.torch]

NUMPY, TORCH = NumpyAdapter(), TorchKernels()
OPS = (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT)
FACTORS = (1.0, 1 / 3, 0.25, -2.0, 1 / 49)


def values(dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Small numbers that every type can hold, signs where it has them."""
    drawn = np.random.default_rng(seed).integers(0 if dtype.startswith("u") else -9, 10, 1001)
    return drawn.astype(dtype_named(dtype))


def tensor_of(array: np.ndarray[Any, Any]) -> torch.Tensor:
    """A tensor with the same bits."""
    return torch.frombuffer(bytearray(array.tobytes()), dtype=TORCH_TYPES[dtype_name(array)])


def bits(one: Any) -> bytes:
    return bytes(one.view(torch.uint8).numpy()) if isinstance(one, torch.Tensor) else one.tobytes()


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_reductions_have_the_same_bits(dtype: str, op: ReduceOp) -> None:
    for factor in FACTORS:
        parts = [values(dtype, seed) for seed in range(3)]
        tensors = [tensor_of(part) for part in parts]
        out, wanted = NUMPY.empty((1001,), dtype), TORCH.empty((1001,), dtype)
        NUMPY.reduce(out, parts, op, factor)
        TORCH.reduce(wanted, tensors, op, factor)
        assert bits(out) == bits(wanted), factor
        NUMPY.everywhere([parts])(op, factor)
        TORCH.everywhere([tensors])(op, factor)
        for part, tensor in zip(parts, tensors, strict=True):
            assert bits(part) == bits(tensor) == bits(wanted), factor


@pytest.mark.parametrize("factor", [0.5, 1 / 3, 1 / 7, 1 / 49, 0.1, -2.0, 1e-5, 3e4, 0.0])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_half_is_scaled_in_float32_and_rounded_once(dtype: str, factor: float) -> None:
    numbers = torch.from_numpy(np.arange(1 << 16, dtype="uint16").view("int16"))
    whole, divisor = numbers.view(TORCH_TYPES[dtype]), divisor_of(factor)
    exact = whole.float()
    exact = exact / divisor if divisor else exact * torch.tensor(factor, dtype=torch.float32)
    want, array = exact.to(whole.dtype), TORCH.to_numpy(whole.clone())
    in_place = whole.clone()
    TORCH.scale(in_place, factor)
    NUMPY.scale(array, factor)
    for got in (in_place, TORCH.from_numpy(array)):
        assert torch.equal(got.isnan(), want.isnan())
        assert bits(got[~want.isnan()]) == bits(want[~want.isnan()])


@pytest.mark.parametrize("dtype", ["float32", "int32", "bfloat16"])
def test_long_arrays_are_reduced_and_scaled_in_pieces(dtype: str) -> None:
    parts = [np.tile(values(dtype, seed), 70) for seed in range(3)]
    for kernels in (NUMPY, TORCH):
        memories = [bytearray(part.tobytes()) for part in parts]
        arrays = [kernels.over(memory, dtype, parts[0].size) for memory in memories]
        want = kernels.empty((parts[0].size,), dtype)
        kernels.reduce(want, arrays, ReduceOp.SUM, 1.0)
        kernels.scale(want, 1 / 3)
        kernels.reduce(arrays[0], arrays, ReduceOp.SUM, 1 / 3)
        assert bits(arrays[0]) == bits(want)


@pytest.mark.parametrize("dtype", [name for name in ITEMSIZE if "float" in name])
def test_adasums_parts_are_alike(dtype: str) -> None:
    first, second = values(dtype, 1), values(dtype, 2)
    assert NUMPY.dots(first, second) == TORCH.dots(tensor_of(first), tensor_of(second))
    out, wanted = NUMPY.empty((1001,), dtype), TORCH.empty((1001,), dtype)
    NUMPY.blend(out, first, 0.3, second, 0.7)
    TORCH.blend(wanted, tensor_of(first), 0.3, tensor_of(second), 0.7)
    assert bits(out) == bits(wanted)


@pytest.mark.parametrize("kernels", [NUMPY, TORCH], ids=["numpy", "torch"])
def test_views_and_copies(kernels: Any) -> None:
    memory = bytearray(48)
    flat = kernels.over(memory, "float32", 12)
    square = flat[4:8].reshape(2, 2)
    kernels.copy(square, kernels.over(np.arange(4, dtype="float32"), "float32", 4))
    assert np.frombuffer(memory, "float32").tolist() == [0] * 4 + [0, 1, 2, 3] + [0] * 4
    assert kernels.address(square) == kernels.address(flat) + 16
    assert (kernels.count(square), kernels.length(square)) == (4, 2)
    assert kernels.addresses([square, flat]) == [kernels.address(square), kernels.address(flat)]
    kernels.copy(square, flat[:4].reshape(2, 2))
    assert not any(memory)
    kernels.copy(flat, kernels.over(np.ones(12, "float32"), "float32", 12).reshape(3, 4))
    kernels.zero(kernels.flat(square))
    assert np.frombuffer(memory, "float32").tolist() == [1] * 4 + [0] * 4 + [1] * 4
    assert kernels.count(kernels.over(memory, "int64", 0)) == 0


def test_types_that_cannot_be_carried() -> None:
    for array in (np.array(["text"]), np.array([object()]), np.zeros(2, ">f4"), np.zeros(2, "c8")):
        with pytest.raises(ValueError, match="is not supported"):
            dtype_name(array)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_integers_of_any_layout_are_scaled(dtype: str) -> None:
    drawn = np.random.default_rng(1).integers(0 if dtype.startswith("u") else -99, 100, (30, 41))
    for factor in (1 / 3, 0.5, 1 / 49, 0.1):
        want = drawn.astype(dtype)
        NUMPY.scale(want, factor)
        for order in (np.s_[:], np.s_[::2, 1::3]):
            array, tensor = (make(drawn.astype(dtype))[order].T for make in (np.array, torch.from_numpy))
            NUMPY.scale(array, factor)
            TORCH.scale(tensor, factor)
            assert np.array_equal(array, want[order].T)
            assert np.array_equal(tensor.numpy(), want[order].T)
    for count in (0, 7):
        tensor = torch.full((count,), 9, dtype=TORCH_TYPES[dtype])
        for factor in (1 / 3, 2 / 3, 2.0):
            TORCH.scale(tensor, factor)
        assert tensor.tolist() == [4] * count
        assert not count or tensor.untyped_storage().resizable(), "as before it was scaled"


def test_many_ranks_divide_a_narrow_type() -> None:
    got = np.array([-128, -127, 0, 127], "int8")
    NUMPY.scale(got, 1 / 128)
    assert got.tolist() == [-1, 0, 0, 0]


@pytest.mark.parametrize("shape", [(), (0, 3), (5, 7)])
def test_new_arrays_are_aligned(shape: tuple[int, ...]) -> None:
    for dtype in ITEMSIZE:
        array = aligned_empty(shape, dtype_named(dtype))
        assert (array.shape, dtype_name(array), array.flags.c_contiguous) == (shape, dtype, True)
        assert array.ctypes.data % 64 == 0
        assert dtype == "bfloat16" or is_aligned(array)
    assert not is_aligned(aligned_empty((9,), dtype_named("uint8"))[1:])

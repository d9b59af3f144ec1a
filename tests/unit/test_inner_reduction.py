"""Which factors the backend applies within a reduction."""

import pytest
import torch

from ringleader.engine.operations import ReduceOp
from ringleader.torch.c10d.process_group import InnerReduction, inner_reduction, nccl_too_old

HALF = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


@pytest.mark.parametrize("dtype", HALF)
def test_nccl_averages_and_scales_sums_of_floats_itself(dtype: torch.dtype) -> None:
    def inner(op: ReduceOp, factor: float) -> InnerReduction:
        return inner_reduction(op, factor, dtype, size=4, scales=True)

    assert inner(ReduceOp.SUM, 0.25) == InnerReduction(name="AVG")
    inside = InnerReduction(name="PREMUL_SUM", factor=0.5)
    # PyTorch before 2.14 reads a power of two as 0 there.
    after = InnerReduction(name="SUM", left=0.5)
    assert inner(ReduceOp.SUM, 0.5) == (after if dtype is torch.bfloat16 else inside)
    assert inner(ReduceOp.SUM, 1.0) == InnerReduction(name="SUM")
    assert inner(ReduceOp.MAX, 0.25) == InnerReduction(name="MAX", left=0.25)


@pytest.mark.parametrize(
    ("dtype", "scales"), [(torch.int32, True), (torch.uint8, True), (torch.float32, False)]
)
def test_what_the_backend_cannot_scale_is_left_to_us(dtype: torch.dtype, scales: bool) -> None:
    reduction = inner_reduction(ReduceOp.SUM, 0.25, dtype, size=4, scales=scales)
    assert reduction == InnerReduction(name="SUM", left=0.25)


def test_a_factor_that_would_lose_digits_in_the_element_type_is_left_to_us() -> None:
    small = inner_reduction(ReduceOp.SUM, 1e-5, torch.float16, size=4, scales=True)
    assert small == InnerReduction(name="SUM", left=1e-5)


@pytest.mark.parametrize(
    ("version", "said"), [((2, 27, 3), ""), ((2, 11, 1), ""), ((2, 9, 6), "NCCL 2.9.6 is loaded and 2.11.1")]
)
def test_an_nccl_that_is_too_old_is_named_with_the_cure(version: tuple[int, ...], said: str) -> None:
    found = nccl_too_old(version)
    assert found.startswith(said) and bool(found) == bool(said)
    assert not found or "LD_LIBRARY_PATH" in found


def test_a_rank_alone_has_no_average() -> None:
    assert inner_reduction(ReduceOp.SUM, 1.0, torch.float32, size=1, scales=True).name == "SUM"

"""Sizes, counts and faults of a collective test, against nccl-tests' own formulas."""

from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import pytest

from ringleader.bench.collective_plan import (
    DTYPES,
    PARTED,
    CollectivePlan,
    bytes_of,
    cases,
    count_of,
    dtype_named,
    faults_of,
)
from ringleader.bench.message_sizes import sizes_between
from ringleader.measurements.collective import OPERATIONS

PLAN = CollectivePlan(operation="allreduce", sizes=(1024,))


def published_count(operation: str, size: int, itemsize: int, ranks: int) -> int:
    """GetCollByteCount of nccl-tests' all_gather.cu, reduce_scatter.cu, alltoall.cu: ``paramcount``."""
    count = size // itemsize
    if operation in ("allgather", "reducescatter", "alltoall"):
        return (count // ranks) & ~(16 // itemsize - 1)
    return count


@hypothesis.given(
    operation=st.sampled_from(OPERATIONS),
    size=st.integers(0, 1 << 40),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    ranks=st.integers(2, 5000),
)
def test_counts_are_those_of_nccl_tests(operation: str, size: int, itemsize: int, ranks: int) -> None:
    count = count_of(operation, size, itemsize, ranks)
    assert count == published_count(operation, size, itemsize, ranks)
    assert bytes_of(operation, count, itemsize, ranks) <= size
    if operation in PARTED:
        assert count * itemsize % 16 == 0


def test_sizes_grow_by_a_factor_or_by_bytes() -> None:
    assert list(sizes_between(8, 64, factor=2, step=0)) == [8, 16, 32, 64]
    assert list(sizes_between(8, 63, factor=2, step=0)) == [8, 16, 32]
    assert list(sizes_between(10, 30, factor=1, step=10)) == [10, 20, 30]
    assert list(sizes_between(5, 5, factor=1, step=0)) == [5]


def test_every_size_comes_once_and_none_is_empty() -> None:
    plan = replace(PLAN, operation="allgather", sizes=(8, 16, 32, 33, 34, 64))
    assert cases(plan, 2) == [(32, 4), (64, 8)]


@pytest.mark.parametrize(
    ("word", "name"), [("float", "float32"), ("half", "float16"), ("BFLOAT16", "bfloat16"), ("int8", "int8")]
)
def test_element_types_have_nccl_tests_names_and_ours(word: str, name: str) -> None:
    assert dtype_named(word) == name == dtype_named(name)
    assert name in DTYPES


def test_an_unknown_element_type_has_no_name() -> None:
    assert dtype_named("f8e4m3") is None


@pytest.mark.parametrize(
    ("changes", "ranks", "where"),
    [
        ({}, 2, []),
        ({}, 1, ["-n"]),
        ({"operation": "broadcast", "root": 2}, 2, ["--root"]),
        ({"iterations": 0, "warmup": -1, "checks": -1}, 2, ["--warmup_iters", "--iters", "--check"]),
        ({"seconds": 0.0}, 2, ["--seconds"]),
        ({"implementations": ("ringleader", "nccl")}, 2, ["--against"]),
        ({"implementations": ("ringleader", "nccl"), "memory": "cuda"}, 2, []),
        ({"memory": "registered", "framework": "numpy"}, 2, ["--memory"]),
        ({"operation": "alltoall", "sizes": (16,)}, 2, ["--maxbytes"]),
        ({"dtype": "float64", "sizes": (4,)}, 2, ["--maxbytes"]),
    ],
)
def test_all_faults_of_a_plan_are_told(changes: dict[str, object], ranks: int, where: list[str]) -> None:
    assert [fault.where for fault in faults_of(replace(PLAN, **changes), ranks)] == where


def test_a_deadline_grows_with_the_bytes() -> None:
    assert PLAN.deadline(0, 20) == PLAN.patience < PLAN.deadline(1 << 30, 1) < PLAN.deadline(1 << 30, 20)

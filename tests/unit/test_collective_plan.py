"""Sizes, counts and faults of a collective test, against nccl-tests' own formulas."""

from dataclasses import replace

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis import given

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
from ringleader.bench.message_sizes import Size, message_sizes, size_up_to, sizes_between
from ringleader.measurements.collective import OPERATIONS
from ringleader.option_fields import WrongValueError

PLAN = CollectivePlan(operation="allreduce", sizes=(1024,))


def published_count(operation, size, itemsize, ranks):
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
def test_counts_are_those_of_nccl_tests(operation, size, itemsize, ranks):
    count = count_of(operation, size, itemsize, ranks)
    assert count == published_count(operation, size, itemsize, ranks)
    assert bytes_of(operation, count, itemsize, ranks) <= size
    if operation in PARTED:
        assert count * itemsize % 16 == 0


def test_every_size_comes_once_and_none_is_empty():
    plan = replace(PLAN, operation="allgather", sizes=(8, 16, 32, 33, 34, 64))
    assert cases(plan, 2) == [(32, 4), (64, 8)]


def test_all_faults_of_a_plan_are_told():
    for changes, ranks, where in (
        ({}, 2, []),
        ({}, 1, ["-n"]),
        ({"operation": "broadcast", "root": 2}, 2, ["--root"]),
        ({"iterations": 0, "warmup": -1, "checks": -1}, 2, ["--warmup_iters", "--iters", "--check"]),
        ({"implementations": ("ringleader", "nccl")}, 2, ["--against"]),
        ({"implementations": ("ringleader", "nccl"), "memory": "cuda"}, 2, []),
        ({"memory": "registered", "framework": "numpy"}, 2, ["--memory"]),
        ({"operation": "alltoall", "sizes": (16,)}, 2, ["--maxbytes"]),
        ({"dtype": "float64", "sizes": (4,)}, 2, ["--maxbytes"]),
    ):
        assert [fault.where for fault in faults_of(replace(PLAN, **changes), ranks)] == where


def test_names_sizes_and_deadlines():
    assert list(sizes_between(8, 63, factor=2, step=0)) == [8, 16, 32]
    assert list(sizes_between(10, 30, factor=1, step=10)) == [10, 20, 30]
    assert list(sizes_between(5, 5, factor=1, step=0)) == [5]
    for word, name in {"float": "float32", "half": "float16", "BFLOAT16": "bfloat16", "int8": "int8"}.items():
        assert dtype_named(word) == name == dtype_named(name) and name in DTYPES
    assert dtype_named("f8e4m3") is None
    assert PLAN.deadline(0, 20) == PLAN.patience < PLAN.deadline(1 << 30, 1) < PLAN.deadline(1 << 30, 20)


MOST = 1 << 30
read = size_up_to(MOST, "1024M")


def test_a_size_has_a_binary_unit_and_is_shown_as_written():
    for text, size in (
        ("1", 1),
        ("64K", 65536),
        ("8MiB", 8 << 20),
        ("1.5G", 3 << 29),
        (" 2 ", 2),
        ("", None),
        ("1e6", None),
        ("64 X", None),
        ("nan", None),
        ("٣", None),
    ):
        if size is None:
            with pytest.raises(WrongValueError, match="is not a size"):
                Size(text)
        else:
            assert int(Size(text)) == size and str(Size(text)) == text


@given(*(st.text("0123456789kKmMgG.ib- ", max_size=12) for _ in range(2)), st.integers(2, 10**9))
def test_any_words_give_sizes_or_faults(low, high, factor):
    try:
        words = read(low), read(high)
    except WrongValueError:
        return
    faults = []
    sizes = message_sizes(*words, factor=factor, options=("-b", "-e"), faults=faults)
    assert bool(sizes) != bool(faults) and [fault.where for fault in faults] in ([], ["-b and -e"])
    assert list(sizes) == sorted(set(sizes)) and all(1 <= size <= MOST for size in sizes)


def test_each_size_is_a_multiple_of_the_one_before_and_within_bounds():
    for low, high, factor, sizes in (
        ("1", "8", 2, (1, 2, 4, 8)),
        ("1", "7", 2, (1, 2, 4)),
        ("4K", "1M", 16, (4096, 65536, 1 << 20)),
        ("1", "1", 100000000, (1,)),
    ):
        faults = []
        found = message_sizes(read(low), read(high), factor=factor, options=("-b", "-e"), faults=faults)
        assert found == sizes and not faults
    for text, what in (
        ("0", "1 byte at least"),
        ("2G", "2G is 2147483648 bytes"),
        ("x", "'x' is not a size"),
    ):
        with pytest.raises(WrongValueError, match=what):
            read(text)

"""What ranks bring and must get: exact in every element type, and a wrong element is counted."""

import itertools

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest

from ringleader.bench.collective_plan import DTYPES, REDOPS, REDUCING
from ringleader.bench.collective_values import Case, decoded, encoded, expected, sent, wrong_elements
from ringleader.bench.rank_speed import (
    COPY_BYTES,
    LEAST_RUNS,
    copy_bytes,
    copy_rate,
    gpu_copies,
    kernel_times,
)
from ringleader.measurements.collective import OPERATIONS


def all_sent(case, turn):
    """What every rank brings, as bytes."""
    cases = [Case(**{**vars(case), "rank": rank}) for rank in range(case.ranks)]
    return [sent(one, turn, 0, one.sent_bytes) for one in cases]


def values(data, dtype):
    return decoded(data, dtype) if "float" in dtype else data.view(dtype)


def by_hand(case, turn):
    """What the case's rank gets, computed from what all bring; sums in the element type's own arithmetic."""
    every = all_sent(case, turn)
    part = case.part_bytes
    if case.operation in REDUCING:
        typed = [values(data, case.dtype) for data in every]
        kinds = {"prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum}
        total = typed[0]
        for one in typed[1:]:
            total = kinds.get(case.redop, numpy.add)(total, one)
        if case.redop == "avg":
            total = total / case.ranks if "float" in case.dtype else total // case.ranks
        data = encoded(total, case.dtype)
        return data[case.rank * part : (case.rank + 1) * part] if case.operation == "reducescatter" else data
    if case.operation == "allgather":
        return numpy.concatenate(every)
    if case.operation == "broadcast":
        return every[case.root]
    if case.operation == "sendrecv":
        return every[case.rank - 1]
    return numpy.concatenate([data[case.rank * part : (case.rank + 1) * part] for data in every])


@st.composite
def a_case(draw):
    operation = draw(st.sampled_from(OPERATIONS))
    ranks = draw(st.integers(2, 9))
    return Case(
        operation=operation,
        dtype=draw(st.sampled_from(sorted(DTYPES))),
        redop=draw(st.sampled_from(REDOPS)) if operation in REDUCING else "none",
        root=draw(st.integers(0, ranks - 1)),
        count=draw(st.integers(1, 600)),
        ranks=ranks,
        rank=draw(st.integers(0, ranks - 1)),
    )


@hypothesis.given(case=a_case(), turn=st.integers(0, 5))
def test_what_is_expected_is_what_comes_out(case, turn):
    got = by_hand(case, turn)
    assert got.nbytes == case.received_bytes
    assert wrong_elements(case, turn, got) == 0


@hypothesis.given(case=a_case(), places=st.sets(st.integers(0, 10**9), min_size=1, max_size=5))
def test_every_wrong_element_is_counted_once(case, places):
    got = by_hand(case, 1).copy()
    elements = got.reshape(-1, case.itemsize)
    chosen = {place % len(elements) for place in places}
    for place in chosen:
        elements[place] ^= 0x55
    assert wrong_elements(case, 1, got) == len(chosen)


@pytest.mark.parametrize("redop", REDOPS)
@pytest.mark.parametrize("ranks", [2, 64, 1000])
def test_the_result_of_a_rank_that_was_left_out_is_wrong(redop, ranks):
    case = Case(operation="allreduce", dtype="int32", redop=redop, root=-1, count=500, ranks=ranks, rank=0)
    every = [data.view(numpy.int32) for data in all_sent(case, 1)]
    kinds = {"prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum}
    total = kinds.get(redop, numpy.add).reduce(numpy.stack(every[1:]))
    got = total // ranks if redop == "avg" else total
    if redop in ("min", "max") and ranks > 2:
        return  # one of many need not be the extreme anywhere
    assert wrong_elements(case, 1, got.astype(numpy.int32).view(numpy.uint8)) > 0


def case_of(operation, dtype, count, redop="none", ranks=2):
    return Case(operation=operation, dtype=dtype, redop=redop, root=-1, count=count, ranks=ranks, rank=0)


def test_what_is_wrong_without_a_wrong_bit_in_an_element():
    too_few = case_of("allreduce", "int32", 4, "sum")
    assert wrong_elements(too_few, 1, numpy.zeros(12, numpy.uint8)) == 4
    case = case_of("allgather", "float32", 64)
    parts_changed_places = numpy.concatenate(all_sent(case, 1)[::-1])
    assert wrong_elements(case, 1, parts_changed_places) == 128
    # A mean of floats may be rounded, and no more.
    case = case_of("allreduce", "float32", 100, "avg", ranks=3)
    exact = expected(case, 1, 0, case.received_bytes).view(numpy.float32)
    assert wrong_elements(case, 1, numpy.nextafter(exact, 0).view(numpy.uint8)) == 0
    assert wrong_elements(case, 1, (exact * 1.001).view(numpy.uint8)) == 100
    whole = case_of("allreduce", "int64", 100, "avg", ranks=3)
    off = expected(whole, 1, 0, whole.received_bytes).view(numpy.int64) + 1
    assert wrong_elements(whole, 1, off.view(numpy.uint8)) == 100


def clock_of(step):
    ticks = itertools.count()
    return lambda: next(ticks) * step


def test_times_of_the_kernel_and_copies_are_the_clocks_own():
    assert kernel_times(0.0, clock=clock_of(0.5)) == (0.5,) * LEAST_RUNS
    assert copy_rate(0.0, size=1000, clock=clock_of(0.25)) == 8000.0, "what is read and what is written"
    assert gpu_copies(0.1, devices=[]) == ()


def test_the_buffer_is_larger_than_the_caches_and_small_beside_the_memory(tmp_path):
    assert copy_bytes(root=tmp_path) == COPY_BYTES
    place = tmp_path / "sys/devices/system/cpu/cpu0/cache/index3"
    place.mkdir(parents=True)
    (tmp_path / "proc").mkdir()
    for cache, free, size in (
        ("32768K", 64 << 20, 128 << 20),
        ("1024K", 64 << 20, COPY_BYTES),
        ("512M", 1 << 20, 64 << 20),
        ("", 0, 1 << 20),
    ):
        (place / "size").write_text(f"{cache}\n")
        (tmp_path / "proc/meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable: {free} kB\n")
        assert copy_bytes(root=tmp_path) == size
        assert copy_bytes(4, root=tmp_path) == max(1 << 20, min(size, free * 1024 // 64))

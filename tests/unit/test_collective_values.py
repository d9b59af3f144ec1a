"""What ranks bring and must get: exact in every element type, and a wrong element is counted."""

from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy
import pytest

from ringleader.bench.collective_plan import DTYPES, REDOPS, REDUCING
from ringleader.bench.collective_values import Case, decoded, encoded, expected, sent, wrong_elements
from ringleader.measurements.collective import OPERATIONS

Array = numpy.ndarray[Any, Any]


def all_sent(case: Case, turn: int) -> list[Array]:
    """What every rank brings, as bytes."""
    cases = [Case(**{**vars(case), "rank": rank}) for rank in range(case.ranks)]
    return [sent(one, turn, 0, one.sent_bytes) for one in cases]


def values(data: Array, dtype: str) -> Array:
    return decoded(data, dtype) if "float" in dtype else data.view(dtype)


def by_hand(case: Case, turn: int) -> Array:
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
def a_case(draw: st.DrawFn) -> Case:
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
def test_what_is_expected_is_what_comes_out(case: Case, turn: int) -> None:
    got = by_hand(case, turn)
    assert got.nbytes == case.received_bytes
    assert wrong_elements(case, turn, got) == 0


@hypothesis.given(case=a_case(), places=st.sets(st.integers(0, 10**9), min_size=1, max_size=5))
def test_every_wrong_element_is_counted_once(case: Case, places: set[int]) -> None:
    got = by_hand(case, 1).copy()
    elements = got.reshape(-1, case.itemsize)
    chosen = {place % len(elements) for place in places}
    for place in chosen:
        elements[place] ^= 0x55
    assert wrong_elements(case, 1, got) == len(chosen)


def test_too_few_bytes_are_all_wrong() -> None:
    case = Case(operation="allreduce", dtype="int32", redop="sum", root=-1, count=4, ranks=2, rank=0)
    assert wrong_elements(case, 1, numpy.zeros(12, numpy.uint8)) == 4


def test_parts_that_change_places_are_wrong() -> None:
    case = Case(operation="allgather", dtype="float32", redop="none", root=-1, count=64, ranks=2, rank=0)
    got = numpy.concatenate(all_sent(case, 1)[::-1])
    assert wrong_elements(case, 1, got) == 128


@pytest.mark.parametrize("redop", REDOPS)
@pytest.mark.parametrize("ranks", [2, 64, 1000])
def test_the_result_of_a_rank_that_was_left_out_is_wrong(redop: str, ranks: int) -> None:
    case = Case(operation="allreduce", dtype="int32", redop=redop, root=-1, count=500, ranks=ranks, rank=0)
    every = [data.view(numpy.int32) for data in all_sent(case, 1)]
    kinds = {"prod": numpy.multiply, "min": numpy.minimum, "max": numpy.maximum}
    total = kinds.get(redop, numpy.add).reduce(numpy.stack(every[1:]))
    got = total // ranks if redop == "avg" else total
    if redop in ("min", "max") and ranks > 2:
        return  # one of many need not be the extreme anywhere
    assert wrong_elements(case, 1, got.astype(numpy.int32).view(numpy.uint8)) > 0


def test_a_mean_of_floats_may_be_rounded_and_no_more() -> None:
    case = Case(operation="allreduce", dtype="float32", redop="avg", root=-1, count=100, ranks=3, rank=0)
    exact = expected(case, 1, 0, case.received_bytes).view(numpy.float32)
    assert wrong_elements(case, 1, numpy.nextafter(exact, 0).view(numpy.uint8)) == 0
    assert wrong_elements(case, 1, (exact * 1.001).view(numpy.uint8)) == 100
    whole = Case(**{**vars(case), "dtype": "int64"})
    off = expected(whole, 1, 0, whole.received_bytes).view(numpy.int64) + 1
    assert wrong_elements(whole, 1, off.view(numpy.uint8)) == 100

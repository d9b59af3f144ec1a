"""Sums that go to the owner of a part, and parts that go from the owner to all."""

import numpy
from hypothesis import given
from hypothesis import strategies as st

from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.engine.operations import ReduceOp
from ringleader.engine.registered_memory import part_publisher, part_reducer


@given(size=st.integers(1, 5), count=st.integers(0, 40), step=st.integers(1, 50), data=st.data())
def test_owners_get_the_sum_and_nothing_else_changes(size, count, step, data):
    me, start = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    before = [numpy.arange(count, dtype=numpy.float32) + 100 * rank for rank in range(size)]
    memory = [array.copy() for array in before]
    reduce = part_reducer(NumpyAdapter(), memory, me=me, dtype="float32", span=(start, stop), step=step)
    reduce(ReduceOp.SUM, 0.5)
    for rank, array in enumerate(memory):
        want = before[rank].copy()
        if rank == me:
            want[start:stop] = sum(one[start:stop] for one in before) * 0.5
        assert numpy.array_equal(array, want)


@given(size=st.integers(1, 4), count=st.integers(0, 40), step=st.integers(1, 50), data=st.data())
def test_a_part_goes_to_all(size, count, step, data):
    me, start = data.draw(st.integers(0, size - 1)), data.draw(st.integers(0, count))
    stop = data.draw(st.integers(start, count))
    before = [numpy.full(count, rank) for rank in range(size)]
    memory = [array.copy() for array in before]
    part_publisher(NumpyAdapter(), memory, me=me, span=(start, stop), step=step)()
    for rank, array in enumerate(memory):
        want = before[rank].copy()
        want[start:stop] = me
        assert numpy.array_equal(array, want)

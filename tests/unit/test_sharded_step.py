"""How parts are cut: every owned element of a parameter is in one shard, and in one only."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.torch.bucket_plan import ParameterShape, plan_buckets
from ringleader.torch.optimizer.sharded_gradients import ROW, part_of
from ringleader.torch.optimizer.sharded_step import cut_shards

pytestmark = pytest.mark.torch

COUNTS = st.lists(st.integers(0, 200), min_size=1, max_size=9)


@given(rows=st.integers(0, 500), size=st.integers(1, 9))
def test_parts_cover_a_bucket_evenly(rows: int, size: int) -> None:
    parts = [part_of(rows * ROW, rank=rank, size=size) for rank in range(size)]
    assert [start for start, _stop in parts] == [0, *(stop for _start, stop in parts[:-1])]
    assert parts[-1][1] == rows * ROW
    lengths = [stop - start for start, stop in parts]
    assert max(lengths) - min(lengths) <= ROW


@given(counts=COUNTS, size=st.integers(1, 5), data=st.data())
def test_every_owned_element_is_in_one_shard(counts: list[int], size: int, data: st.DataObject) -> None:
    types = [data.draw(st.sampled_from(["float32", "float64"])) for _ in counts]
    kinds = [(data.draw(st.integers(0, 1)), data.draw(st.integers(0, 1))) for _ in counts]
    longest = [data.draw(st.none() | st.integers(1, 300)) for _ in range(2)]
    shapes = [
        ParameterShape(name=str(at), dtype=dtype, itemsize=4 if dtype == "float32" else 8, dims=(count,))
        for at, (count, dtype) in enumerate(zip(counts, types, strict=True))
    ]
    plan = plan_buckets(shapes, cap_bytes=None)
    seen = [[0] * count for count in counts]
    for rank in range(size):
        owned = [part_of(bucket.count, rank=rank, size=size) for bucket in plan.buckets]
        for shard in cut_shards(plan, owned=owned, kinds=kinds, longest=longest):
            low, high = owned[shard.bucket]
            assert low <= shard.start < shard.stop <= high
            limit = longest[shard.group]
            assert limit is None or shard.stop - shard.start <= limit
            places = {span.parameter: span.offset for span in plan.buckets[shard.bucket].spans}
            assert len({kinds[span.parameter] for span in shard.spans}) == 1
            for span in shard.spans:
                assert kinds[span.parameter][0] == shard.group
                # The place of an element in the bucket is the same from both ends.
                assert shard.start + span.offset == places[span.parameter] + span.start
                for at in range(span.start, span.stop):
                    seen[span.parameter][at] += 1
    assert all(times == 1 for one in seen for times in one)

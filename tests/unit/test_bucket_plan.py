"""Plans of buckets: orders, groups, and memory that fits every plan of the same parameters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.torch.bucket_plan import ParameterShape, even_groups, plan_buckets
from ringleader.torch.optimizer.sharded_gradients import ROW, part_of
from ringleader.torch.optimizer.sharded_step import cut_shards

SIZES = {"float32": 4, "float64": 8, "bfloat16": 2}
SHAPES = st.lists(
    st.builds(
        lambda dtype, count: ParameterShape(name="p", dtype=dtype, itemsize=SIZES[dtype], dims=(count,)),
        st.sampled_from(sorted(SIZES)),
        st.integers(0, 300),
    ),
    min_size=1,
    max_size=20,
)
CAPS = st.one_of(st.none(), st.integers(1, 4000))


def placed(plan):
    return [span.parameter for bucket in plan.buckets for span in bucket.spans]


@given(SHAPES, CAPS, st.randoms(use_true_random=False))
def test_a_plan_in_another_order_fits_the_same_memory(shapes, cap, random):
    order = list(range(len(shapes)))
    random.shuffle(order)
    first, second = plan_buckets(shapes, cap_bytes=cap), plan_buckets(shapes, cap_bytes=cap, order=order)
    assert first.room == second.room
    for plan in (first, second):
        ends = {}
        for bucket in plan.buckets:
            assert bucket.start == ends.get(bucket.dtype, 0)
            ends[bucket.dtype] = bucket.start + bucket.count
            # What travels in two bytes per element begins at a whole cache line too.
            assert bucket.start * 2 % 64 == 0
            used = 0
            for span in bucket.spans:
                assert span.count == shapes[span.parameter].count
                assert span.offset >= used and span.offset * 2 % 64 == 0, "gradients share memory"
                used = span.offset + span.count
            assert used <= bucket.count
        assert ends == dict(plan.room)
    for dtype in SIZES:
        mine = [at for at in placed(second) if shapes[at].dtype == dtype]
        assert mine == [at for at in order if shapes[at].dtype == dtype]


@given(SHAPES, st.data())
def test_parameters_left_out_have_no_place(shapes, data):
    order = data.draw(st.lists(st.sampled_from(range(len(shapes))), unique=True))
    plan = plan_buckets(shapes, cap_bytes=None, order=order)
    assert sorted(placed(plan)) == sorted(order)
    everything = dict(plan_buckets(shapes, cap_bytes=None).room)
    assert all(count <= everything[dtype] for dtype, count in plan.room)


@given(SHAPES, CAPS, st.data())
def test_a_group_is_one_bucket_per_type(shapes, cap, data):
    names = list(range(len(shapes)))
    cut = data.draw(st.integers(1, len(shapes)))
    group = names[:cut]
    plan = plan_buckets(shapes, cap_bytes=cap, groups=[group])
    with_group = [bucket for bucket in plan.buckets if {p.parameter for p in bucket.spans} & set(group)]
    assert len(with_group) == len({shapes[at].dtype for at in group})
    assert sorted(p.parameter for b in with_group for p in b.spans) == group
    assert sorted(placed(plan)) == names
    # Buckets come in the order in which their last gradient does.
    last = [min(p.parameter for p in bucket.spans) for bucket in plan.buckets]
    assert last == sorted(last, reverse=True)


@given(SHAPES, st.integers(1, 8))
def test_even_groups_hold_everything_once(shapes, number):
    groups = even_groups(shapes, number)
    assert len(groups) <= number
    assert [at for group in groups for at in group] == list(reversed(range(len(shapes))))


def test_what_comes_last_in_backward_is_small():
    sizes = (200_000, 9_000_000, 700_000, 600_000, 300_000)  # bytes, in the order of the parameters
    shapes = [ParameterShape(name="p", dtype="float32", itemsize=4, dims=(nbytes // 4,)) for nbytes in sizes]
    spans = [
        [span.parameter for span in bucket.spans]
        for bucket in plan_buckets(shapes, cap_bytes=8 << 20).buckets
    ]
    assert spans == [[4, 3, 2], [1], [0]]
    order = [1, 0, 2, 3, 4]
    cut = plan_buckets(shapes, cap_bytes=8 << 20, order=order).buckets
    assert [[span.parameter for span in bucket.spans] for bucket in cut] == [[1], [0, 2], [3, 4]]
    # One bucket stays one: it is what the script asked for.
    assert len(plan_buckets(shapes, cap_bytes=None).buckets) == 1


def test_even_groups_are_even():
    shapes = [ParameterShape(name="p", dtype="float32", itemsize=4, dims=(64,)) for _ in range(12)]
    assert [len(group) for group in even_groups(shapes, 4)] == [3, 3, 3, 3]
    full = [len(plan_buckets(shapes[:2], cap_bytes=cap).buckets) for cap in (511, 512)]
    assert full == [2, 1], "a bucket is full only when nothing more fits"


pytestmark = pytest.mark.torch

COUNTS = st.lists(st.integers(0, 200), min_size=1, max_size=9)


@given(rows=st.integers(0, 500), size=st.integers(1, 9))
def test_parts_cover_a_bucket_evenly(rows, size):
    parts = [part_of(rows * ROW, rank=rank, size=size) for rank in range(size)]
    assert [start for start, _stop in parts] == [0, *(stop for _start, stop in parts[:-1])]
    assert parts[-1][1] == rows * ROW
    lengths = [stop - start for start, stop in parts]
    assert max(lengths) - min(lengths) <= ROW


@given(counts=COUNTS, size=st.integers(1, 5), data=st.data())
def test_every_owned_element_is_in_one_shard(counts, size, data):
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

"""Plans of buckets: orders, groups, and memory that fits every plan of the same parameters."""

from hypothesis import given
from hypothesis import strategies as st

from ringleader.torch.bucket_plan import BucketPlan, ParameterShape, even_groups, plan_buckets

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


def placed(plan: BucketPlan) -> list[int]:
    return [span.parameter for bucket in plan.buckets for span in bucket.spans]


@given(SHAPES, CAPS, st.randoms(use_true_random=False))
def test_a_plan_in_another_order_fits_the_same_memory(
    shapes: list[ParameterShape], cap: int | None, random
) -> None:
    order = list(range(len(shapes)))
    random.shuffle(order)
    first, second = plan_buckets(shapes, cap_bytes=cap), plan_buckets(shapes, cap_bytes=cap, order=order)
    assert first.room == second.room
    for plan in (first, second):
        ends: dict[str, int] = {}
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
def test_parameters_left_out_have_no_place(shapes: list[ParameterShape], data: st.DataObject) -> None:
    order = data.draw(st.lists(st.sampled_from(range(len(shapes))), unique=True))
    plan = plan_buckets(shapes, cap_bytes=None, order=order)
    assert sorted(placed(plan)) == sorted(order)
    everything = dict(plan_buckets(shapes, cap_bytes=None).room)
    assert all(count <= everything[dtype] for dtype, count in plan.room)


@given(SHAPES, CAPS, st.data())
def test_a_group_is_one_bucket_per_type(
    shapes: list[ParameterShape], cap: int | None, data: st.DataObject
) -> None:
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
def test_even_groups_hold_everything_once(shapes: list[ParameterShape], number: int) -> None:
    groups = even_groups(shapes, number)
    assert len(groups) <= number
    assert [at for group in groups for at in group] == list(reversed(range(len(shapes))))


def test_even_groups_are_even() -> None:
    shapes = [ParameterShape(name="p", dtype="float32", itemsize=4, dims=(64,)) for _ in range(12)]
    assert [len(group) for group in even_groups(shapes, 4)] == [3, 3, 3, 3]


def test_what_comes_last_in_backward_is_small() -> None:
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


def test_a_bucket_is_full_only_when_nothing_more_fits() -> None:
    shapes = [ParameterShape(name="p", dtype="float32", itemsize=4, dims=(64,)) for _ in range(2)]
    assert [len(plan_buckets(shapes, cap_bytes=cap).buckets) for cap in (511, 512)] == [2, 1]

"""What travels together."""

import math
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine import fusion_buffer
from ringleader.engine.fusion_buffer import (
    MOST_ROUND_PLANS,
    FusionBuffer,
    FusionLimits,
    RoundPlans,
    plan_batches,
)
from ringleader.engine.operations import MASK, ReduceOp, Signature, Work, signature_digest
from ringleader.engine.reduction_kernels import ITEMSIZE

FUSING = FusionLimits(small_bytes=4096, most_bytes=8192)


def add(*shape, **more):
    return replace(Signature(kind="allreduce", dtype="float32", shape=shape), **more)


def members(*calls):
    return [tuple(batch.members) for batch in plan_batches(calls, FUSING)]


def test_what_is_alike_and_small_is_packed():
    assert members(add(3), add(2, 5), add()) == [(0, 1, 2)]
    (batch,) = plan_batches([add(3), add(2, 10), add()], FUSING)
    assert (batch.lengths, batch.signature, batch.packed) == ([12, 80, 4], add(24), True)
    call = add(2, 3)
    assert plan_batches([call], FUSING)[0].signature is call, "one alone"
    on_gpu = [add(3, device="cuda"), add(1 << 20, device="cuda"), add(0, device="cuda")]
    (batch,) = plan_batches(on_gpu, FUSING)
    assert batch.members == [0, 1, 2] and not batch.packed, "on devices all go together, and are not copied"


def test_what_differs_stays_apart():
    others = [
        add(3, dtype="float64"),
        add(3, op=ReduceOp.MAX),
        add(3, prescale=0.5),
        add(3, postscale=0.5),
        add(3, device="cuda"),
        add(3, note="x"),
    ]
    assert members(add(3), *others, add(3)) == [(0, 7), *((place,) for place in range(1, 7))]


def test_what_is_large_empty_or_no_plain_reduction_travels_alone():
    calls = [
        add(3),
        add(1024),
        add(1025),
        add(0),
        add(3, op=ReduceOp.ADASUM),
        add(3, op=ReduceOp.ADASUM),
        replace(add(3), kind="allgather"),
        replace(add(3), kind="allgather"),
        replace(add(3), kind="gradients"),
    ]
    assert members(*calls) == [(0, 1), *((place,) for place in range(2, 9))]


def test_a_full_batch_is_followed_by_another():
    assert members(*[add(1000)] * 5) == [(0, 1), (2, 3), (4,)]
    assert members(add(1000), add(1000, dtype="int32"), add(1000), add(1000)) == [(0, 2), (1,), (3,)]


CALLS = st.builds(
    Signature,
    kind=st.sampled_from(["allreduce", "allreduce", "broadcast"]),
    dtype=st.sampled_from(["float32", "float64", "uint8"]),
    shape=st.lists(st.integers(0, 40), max_size=2).map(tuple),
    op=st.sampled_from([ReduceOp.SUM, ReduceOp.ADASUM]),
)


@given(st.lists(CALLS, max_size=40))
def test_every_operation_has_one_place_of_its_own(calls):
    batches = plan_batches(calls, FUSING)
    assert sorted(place for batch in batches for place in batch.members) == list(range(len(calls)))
    assert [batch.members[0] for batch in batches] == sorted(batch.members[0] for batch in batches)
    for batch in batches:
        if len(batch.members) == 1:
            continue
        itemsize = ITEMSIZE[batch.signature.dtype]
        assert batch.lengths == [math.prod(calls[place].shape) * itemsize for place in batch.members]
        assert sum(batch.lengths) == batch.signature.shape[0] * itemsize <= FUSING.most_bytes


def test_plans_that_are_forgotten_let_go_of_their_copies(monkeypatch):
    monkeypatch.setattr(fusion_buffer, "MOST_PLANS", 2)
    copies = []

    def packed_copy(_address, _lengths):
        copies.append(mock.Mock())
        return copies[-1]

    kernels = SimpleNamespace(address=lambda memory: 0)
    transport = SimpleNamespace(register=lambda count, dtype: SimpleNamespace(mine=bytearray(count)))
    comm = SimpleNamespace(packed_copy=packed_copy)
    buffer = FusionBuffer(kernels, transport, comm, FUSING)
    works = [SimpleNamespace(signature=call) for call in (add(3), add(4), add(5))]
    assert buffer.batches(works[:2]) is buffer.batches(works[:2])
    buffer.batches(works[1:])
    assert [one.close.called for one in copies] == [False, False]
    buffer.batches(works[::2])
    assert [one.close.called for one in copies] == [True, True, False], "no more plans than are kept"
    buffer.close()
    assert all(one.close.called for one in copies)


def work(name, *, serial=0, count=3, op=ReduceOp.SUM, kind="allreduce"):
    signature = Signature(kind=kind, dtype="float32", shape=(count,), op=op)
    made = Work(signature, signature_digest(signature), name=name, serial=serial, array=None, out=None)
    made.repeated = True
    return made


def test_whatever_differs_has_a_plan_of_its_own():
    plans, (a, b, c) = RoundPlans(), [work(name) for name in "abc"]
    known = plans.of([a, b, c])
    for others in ([a, b], [a, c, b], [a, b, work("c")], [a, b, work("c", count=4)], [a, b, c, work("d")]):
        assert plans.of(others) is not known
        assert plans.of(others).pending == others
    assert plans.of([a, b]).digest != known.digest
    assert plans.of([a, b, work("c", op=ReduceOp.MAX)]).digest != known.digest
    assert plans.of([a, c, b]).digest == plans.of([a, b, c]).digest


def test_what_is_not_repeated_is_not_kept():
    plans, works = RoundPlans(), [work("a"), work("b")]
    works[1].repeated = False
    assert plans.of(works) is not plans.of(works)
    assert plans.of([works[0]]) is not plans.of([works[0]])  # one alone costs as much to look up


@given(st.permutations(range(12)), st.permutations(range(12)))
def test_ranks_that_have_the_same_works_do_them_in_one_order(one, other):
    def asked(order):
        named = [work(f"w{at}", count=at + 1) for at in range(8)]
        works = [*named, *(work(None, serial=at) for at in range(4))]
        return [works[at] for at in order]

    mine, theirs = RoundPlans().of(asked(one)), RoundPlans().of(asked(other))
    assert mine.digest == theirs.digest == sum(each.digest for each in mine.pending) & MASK
    assert [each.name for each in mine.in_order] == [each.name for each in theirs.in_order]


def test_plans_are_bounded():
    plans, first = RoundPlans(), [work("a"), work("b")]
    known = plans.of(first)
    for at in range(MOST_ROUND_PLANS):
        plans.of([work(f"{at}.a"), work(f"{at}.b")])
    assert plans.of(first) is not known


def test_joining_is_told():
    assert RoundPlans().of([work("a"), work(None, kind="join")]).joins
    assert not RoundPlans().of([work("join.noname"), work("b")]).joins

"""What travels together."""

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.engine import fusion_buffer
from ringleader.engine.fusion_buffer import FusionBuffer, FusionLimits, plan_batches
from ringleader.engine.operations import ReduceOp, Signature
from ringleader.engine.reduction_kernels import ITEMSIZE

FUSING = FusionLimits(small_bytes=4096, most_bytes=8192)


def add(*shape: int, **more: object) -> Signature:
    return replace(Signature(kind="allreduce", dtype="float32", shape=shape), **more)  # type: ignore[arg-type]


def members(*calls: Signature) -> list[tuple[int, ...]]:
    return [tuple(batch.members) for batch in plan_batches(calls, FUSING)]


def test_what_is_alike_and_small_is_packed() -> None:
    assert members(add(3), add(2, 5), add()) == [(0, 1, 2)]
    (batch,) = plan_batches([add(3), add(2, 10), add()], FUSING)
    assert batch.lengths == [12, 80, 4]
    assert batch.signature == add(24)


def test_what_differs_stays_apart() -> None:
    others = [
        add(3, dtype="float64"),
        add(3, op=ReduceOp.MAX),
        add(3, prescale=0.5),
        add(3, postscale=0.5),
        add(3, device="cuda"),
        add(3, note="x"),
    ]
    assert members(add(3), *others, add(3)) == [(0, 7), *((place,) for place in range(1, 7))]


def test_what_is_large_empty_or_no_plain_reduction_travels_alone() -> None:
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


def test_arrays_on_devices_go_together_whatever_their_size_and_are_not_copied() -> None:
    on_gpu = [add(3, device="cuda"), add(1 << 20, device="cuda"), add(0, device="cuda")]
    (batch,) = plan_batches(on_gpu, FUSING)
    assert batch.members == [0, 1, 2] and not batch.packed
    assert plan_batches([add(3), add(4)], FUSING)[0].packed


def test_a_full_batch_is_followed_by_another() -> None:
    assert members(*[add(1000)] * 5) == [(0, 1), (2, 3), (4,)]
    assert members(add(1000), add(1000, dtype="int32"), add(1000), add(1000)) == [(0, 2), (1,), (3,)]


def test_one_alone_keeps_its_call() -> None:
    call = add(2, 3)
    assert plan_batches([call], FUSING)[0].signature is call


CALLS = st.builds(
    Signature,
    kind=st.sampled_from(["allreduce", "allreduce", "broadcast"]),
    dtype=st.sampled_from(["float32", "float64", "uint8"]),
    shape=st.lists(st.integers(0, 40), max_size=2).map(tuple),
    op=st.sampled_from([ReduceOp.SUM, ReduceOp.ADASUM]),
)


@given(st.lists(CALLS, max_size=40))
def test_every_operation_has_one_place_of_its_own(calls: list[Signature]) -> None:
    batches = plan_batches(calls, FUSING)
    assert sorted(place for batch in batches for place in batch.members) == list(range(len(calls)))
    assert [batch.members[0] for batch in batches] == sorted(batch.members[0] for batch in batches)
    for batch in batches:
        if len(batch.members) == 1:
            continue
        itemsize = ITEMSIZE[batch.signature.dtype]
        assert batch.lengths == [math.prod(calls[place].shape) * itemsize for place in batch.members]
        assert sum(batch.lengths) == batch.signature.shape[0] * itemsize <= FUSING.most_bytes


class Copy:
    """Brings arrays into memory and out of it."""

    def __init__(self) -> None:
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_plans_that_are_forgotten_let_go_of_their_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion_buffer, "MOST_PLANS", 2)
    copies: list[Copy] = []

    def packed_copy(_address: int, _lengths: list[int]) -> Copy:
        copies.append(Copy())
        return copies[-1]

    kernels: Any = SimpleNamespace(address=lambda memory: 0)
    transport: Any = SimpleNamespace(register=lambda count, dtype: SimpleNamespace(mine=bytearray(count)))
    comm: Any = SimpleNamespace(packed_copy=packed_copy)
    buffer = FusionBuffer(kernels, transport, comm, FUSING)
    calls = [add(3), add(4), add(5)]
    works: list[Any] = [SimpleNamespace(signature=call) for call in calls]
    assert buffer.batches(works[:2]) is buffer.batches(works[:2])
    buffer.batches(works[1:])
    assert [one.is_closed for one in copies] == [False, False]
    buffer.batches(works[::2])
    assert [one.is_closed for one in copies] == [True, True, False], "no more plans than are kept"
    buffer.close()
    assert all(one.is_closed for one in copies)

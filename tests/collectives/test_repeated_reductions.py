"""Descriptions of reductions in place: used again for what they describe, and never with an old tensor."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ringleader.adapters.numpy_adapter import NumpyAdapter
from ringleader.adapters.numpy_arithmetic import dtype_named, silent_caller
from ringleader.engine.communicator import Segment
from ringleader.engine.group_engine import Engine
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.engine.reduction_kernels import ITEMSIZE
from ringleader.engine.registered_memory import RegisteredMemory
from ringleader.engine.traffic import GroupTraffic
from ringleader.engine.transports.pipeline import Pieces
from ringleader.engine.window.staged_reductions import STAGING_BYTES
from ringleader.engine.window.window_transport import WindowTransport
from ringleader.torch.repeated_reductions import CAPACITY, RepeatedReduction, can_be_repeated
from ringleader.torch.torch_kernels import TORCH_TYPES, TorchKernels, flat_at

pytestmark = [pytest.mark.torch]


def work_of(
    tensor: torch.Tensor, name: str | None = None, op: ReduceOp = ReduceOp.SUM, serial: int = 0
) -> Work:
    signature = Signature(kind="allreduce", dtype="float32", shape=tuple(tensor.shape), op=op)
    digest = signature_digest(signature)
    return Work(signature, digest, name=name, serial=serial, array=tensor, out=tensor)


class RecordingEngine:
    """Takes down what it is to do again; ``busy``: something else is under way."""

    has_reductions = True
    binds = 0

    def __init__(self) -> None:
        self.done: list[tuple[Any, ...]] = []
        self.busy = False

    def is_busy(self) -> bool:
        return self.busy

    def bind(self, signature: Signature, *memory: Any) -> Any:
        self.binds += 1
        return memory if self.has_reductions else None

    def run_again(
        self, kept: Work, serial: int, array: Any, out: Any, bound: Any, bind: Callable[..., Any] | None
    ) -> bool:
        if not self.busy:
            bound = bind(array, out) if bound is None and bind is not None else bound
            self.done.append((kept, serial, array, out, bound))
        return not self.busy


@pytest.fixture
def group() -> Any:
    return SimpleNamespace(reductions={}, engine=RecordingEngine())


def keep(group: Any, tensor: torch.Tensor, name: str | None = None) -> Work:
    work = work_of(tensor, name)
    RepeatedReduction(group.engine, work, tensor).keep(group)
    return work


def known_reduction(group: Any, tensor: Any, name: str | None) -> RepeatedReduction | None:
    return group.reductions.get((tensor.dtype, tensor.shape, name))


def again(group: Any, tensor: Any, op: ReduceOp = ReduceOp.SUM, scale: float = 1.0, serial: int = 1) -> bool:
    known = known_reduction(group, tensor, None)
    return known is not None and known.run(tensor, True, serial, op, 1.0, scale) is tensor


@pytest.mark.parametrize(
    "tensor", [torch.zeros(6, requires_grad=True), torch.zeros(6, device="meta")], ids=["grad", "device"]
)
def test_no_result_is_made_for_what_is_described_anew(
    group: Any, monkeypatch: pytest.MonkeyPatch, tensor: torch.Tensor
) -> None:
    made: list[torch.Tensor] = []
    monkeypatch.setattr(torch, "empty_like", made.append)
    keep(group, torch.zeros(6))
    known = known_reduction(group, tensor, None)
    assert known.run(tensor, False, 1, ReduceOp.SUM, 1.0, 1.0) is None
    assert made == []


def test_no_result_is_made_while_the_engine_is_busy(group: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    keep(group, torch.zeros(6))
    known = known_reduction(group, torch.zeros(6), None)
    made: list[torch.Tensor] = []
    known._like = lambda tensor: made.append(tensor) or torch.empty_like(tensor)
    for busy in (True, False):
        group.engine.busy = busy
        result = known.run(torch.zeros(6), False, 1, ReduceOp.SUM, 1.0, 1.0)
        assert (result is None, len(made)) == (busy, not busy)


def test_where_nothing_is_bound_that_is_asked_once(group: Any) -> None:
    group.engine.has_reductions = False
    keep(group, torch.zeros(6))
    assert all(again(group, torch.zeros(6), serial=serial) for serial in range(1, 4))
    assert [bound for *_, bound in group.engine.done] == [None] * 3
    assert group.engine.binds == 1


def engine_of(broken: str = "") -> tuple[Engine, list[BaseException]]:
    """An engine with which `run_again` comes as far as to bind; and what ended it, which peers are told."""
    engine, failed = Engine.__new__(Engine), list[BaseException]()
    queue = SimpleNamespace(works={}, broken="", observer=None)

    def acquire(_blocking: bool) -> bool:
        queue.broken = broken  # by another thread, while this one gets the lock
        return True

    queue.lock = SimpleNamespace(acquire=acquire, release=lambda: None)
    engine.queue = queue  # type: ignore[assignment]
    engine._released = SimpleNamespace(to_tell=False)  # type: ignore[assignment]
    engine._peer_wait = SimpleNamespace()  # type: ignore[assignment]
    engine._failed = lambda error: failed.append(error) or error  # type: ignore[method-assign,func-returns-value]
    return engine, failed


def test_an_error_while_memory_is_bound_is_told_to_the_peers() -> None:
    engine, failed = engine_of()
    error = MemoryError("no memory is left")
    work = work_of(torch.zeros(6))

    def bind(_array: Any, _out: Any) -> Any:
        raise error

    with pytest.raises(MemoryError):
        engine.run_again(work, 1, work.array, work.out, None, bind)
    assert failed == [error]


def test_nothing_is_bound_once_the_group_has_ended() -> None:
    engine, failed = engine_of(broken="shutdown")
    work = work_of(torch.zeros(6))
    assert not engine.run_again(work, 1, work.array, work.out, None, lambda *_: failed.append(KeyError()))
    assert failed == []


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("name", [None, "loss"])
def test_a_work_that_comes_again_is_what_a_new_one_would_be(
    group: Any, name: str | None, in_place: bool
) -> None:
    first, second = torch.zeros(6), torch.arange(6.0)
    described = keep(group, first, name)
    known = known_reduction(group, second, name)
    assert known.describes(described)
    assert not known.describes(work_of(second, name))
    for serial in (1, 2**40):
        result = known.run(second, in_place, serial, ReduceOp.SUM, 1.0, 1.0)
        kept, number, array, out, (source, target, address) = group.engine.done.pop()
        assert number == serial
        assert array is second
        assert out is result
        assert (result is second) == in_place
        fresh = work_of(second, name, serial=serial)
        assert kept.again(serial) == fresh.digest
        assert str(kept) == str(fresh)
        work = kept.with_arrays(array, out)
        assert (work.name, work.digest, work.order) == (fresh.name, fresh.digest, fresh.order)
        assert (work.array, work.out) == (second, result)
        assert address == (second.data_ptr() if in_place else 0)
        source[0], target[1] = 7.0, 8.0
        assert second[0] == 7.0
        assert result[1] == 8.0


def test_whatever_differs_is_described_anew(group: Any) -> None:
    square = torch.zeros(4, 4)
    keep(group, square)
    for tensor, op, scale in (
        (torch.zeros(16), ReduceOp.SUM, 1.0),
        (torch.zeros(4, 4, dtype=torch.int32), ReduceOp.SUM, 1.0),
        (square, ReduceOp.MAX, 1.0),
        (square, ReduceOp.SUM, 0.5),
        (square.t(), ReduceOp.SUM, 1.0),
        (torch._neg_view(square), ReduceOp.SUM, 1.0),
        (torch.zeros(4, 4).to_sparse(), ReduceOp.SUM, 1.0),
        (torch.zeros(4, 4).to_sparse_csr(), ReduceOp.SUM, 1.0),
        (torch.zeros(4, 4, requires_grad=True), ReduceOp.SUM, 1.0),
        (torch.empty(4, 4, device="meta"), ReduceOp.SUM, 1.0),
        (torch.nn.Parameter(torch.zeros(4, 4)), ReduceOp.SUM, 1.0),
    ):
        assert not again(group, tensor, op, scale), (tensor, op, scale)
    assert again(group, square)
    square.t_()  # the same object has become another tensor
    assert not again(group, square)
    square.t_()
    group.engine.busy = True
    assert not again(group, square)
    assert len(group.engine.done) == 1


def test_a_tensor_that_moved_is_found_where_it_is(group: Any) -> None:
    tensor, places = torch.zeros(8), [torch.full((8,), value) for value in (1.0, 2.0)]
    keep(group, tensor)
    for place in (0, 1, 0):
        tensor.data = places[place]
        assert again(group, tensor)
        assert group.engine.done[-1][4][0].tolist() == [place + 1.0] * 8
    first, second, third = (done[4][0] for done in group.engine.done)
    assert first is third is not second, "the array belongs to the memory"


class CountingMemory(RegisteredMemory):
    """Counts how often a slice is cut into views."""

    cuts = 0

    def cut(self, *arguments: Any) -> Any:
        self.cuts += 1
        return super().cut(*arguments)


class Memory(Segment):
    """One rank's."""

    def __init__(self, nbytes: int) -> None:
        self.parts = [memoryview(bytearray(nbytes))]


@pytest.mark.parametrize("hosts", [1, 2])
def test_regions_keep_their_views_whatever_happens_to_other_memory(hosts: int) -> None:
    kernels, nothing, calls = TorchKernels(), lambda *_: None, MpiCalls.__new__(MpiCalls)
    flags: Any = SimpleNamespace(barrier=nothing)
    registered = CountingMemory(kernels, me=0, slices=1, new_segment=Memory, free_segment=nothing)
    cross: Any = SimpleNamespace(
        mpi_calls=calls, pieces=Pieces(), fit=nothing, reduce_stream=lambda sums, dtype, op, factor: sums
    )
    transport = WindowTransport(
        kernels=kernels,
        flags=flags,
        staging=Memory(STAGING_BYTES),
        registered=registered,
        plain=SimpleNamespace(mpi_calls=calls),  # type: ignore[arg-type]
        traffic=GroupTraffic(),
        cross=None if hosts == 1 else cross,
    )
    regions = [transport.register(32, "float32") for _ in range(300)]
    gone = transport.register(32, "float32")
    for region in regions:
        transport.exchange(region, ReduceOp.SUM, 1.0)
    before = registered.cuts
    registered.give_back(gone.segment)
    for region in regions:
        transport.exchange(region, ReduceOp.SUM, 1.0)
    assert registered.cuts == before


def test_what_is_not_kept() -> None:
    tensor = torch.zeros(3)
    assert can_be_repeated(work_of(tensor), tensor)
    assert not can_be_repeated(work_of(tensor, op=ReduceOp.ADASUM), tensor)
    assert not can_be_repeated(work_of(torch.zeros(3)), tensor), "the engine worked on a copy"
    empty = torch.zeros(0)
    assert not can_be_repeated(work_of(empty), empty)


def test_not_too_many_are_kept(group: Any) -> None:
    tensor = torch.zeros(1)
    for number in range(CAPACITY + 1):
        keep(group, tensor, f"w{number}")
    assert len(group.reductions) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kernels", [NumpyAdapter(), TorchKernels()], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_flat_kernels_have_the_bits_of_the_frameworks(kernels: Any, dtype: str) -> None:
    flat, count = kernels.flat_kernels(dtype), 1001
    bits = [bytearray(np.random.default_rng(seed).integers(0, 2, count).astype(dtype_named(dtype)).tobytes())
            for seed in range(3)]  # fmt: skip
    for op in (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT):
        for factor in (1.0, 1 / 3, 0.25):
            for ranks in (2, 3):
                memories = [bytearray(one) for one in bits[:ranks]]
                parts = [kernels.over(memory, dtype, count) for memory in memories]
                want, target = kernels.empty((count,), dtype), bytearray(len(bits[0]))
                kernels.reduce(want, parts, op, factor)
                out = flat.over(target, dtype, count)
                flat.reducer(op, factor)(out, [flat.take(part) for part in parts])
                assert target == as_bytes(want), (op, factor, ranks)
                bound, arrays = (
                    flat.over(bytearray(len(target)), dtype, count),
                    [flat.take(part) for part in parts],
                )
                for call in flat.calls(bound, arrays, op, factor):
                    call()
                assert as_bytes(flat.give(bound)) == as_bytes(want), (op, factor, ranks)
                flat.reducer(op, factor)(flat.take(parts[1]), arrays)
                assert memories[1] == target, "the second part may be overwritten"
    other, target = flat.over(bytearray(bits[0]), dtype, count), bytearray(len(bits[0]))
    flat.copier(flat.over(target, dtype, count))(other)
    assert target == bits[0]
    flat.scale(other, 0.5)
    kernels.scale(scaled := kernels.over(bytearray(bits[0]), dtype, count), 0.5)
    assert as_bytes(flat.give(other)) == as_bytes(scaled)


def as_bytes(array: Any) -> bytes:
    return bytes(array.view(torch.uint8).numpy()) if isinstance(array, torch.Tensor) else array.tobytes()


@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_memory_at_an_address(dtype: str) -> None:
    tensor = torch.zeros(5, dtype=TORCH_TYPES[dtype])
    view = flat_at(tensor.data_ptr(), dtype, 5)
    if "float16" in dtype:
        assert view is None
    else:
        view[3] = 1
        assert tensor.tolist() == [0, 0, 0, 1, 0]


def test_no_warnings_and_no_other_state() -> None:
    call, big = silent_caller(), np.full(3, 3e38, "float32")
    before = np.geterr()
    with np.errstate(all="raise"):
        call(np.add, big, big, big)
        assert np.isinf(big).all()
        with pytest.raises(FloatingPointError):
            np.add(np.full(3, 3e38, "float32"), np.full(3, 3e38, "float32"))
    assert np.geterr() == before
    thread = threading.Thread(target=lambda: call(np.add, big, big, big))
    thread.start()
    thread.join()


@pytest.mark.mpi
@pytest.mark.parametrize("size", [1, 2, 3, pytest.param(4, marks=pytest.mark.long)])
def test_on_ranks(jobs: Any, size: int) -> None:
    jobs("repeated.py", ranks=size).passed(size)


@pytest.mark.long
@pytest.mark.mpi
def test_on_ranks_of_several_hosts(jobs: Any) -> None:
    jobs("repeated.py", ranks=4, RINGLEADER_RANKS_PER_HOST="2").passed(4)

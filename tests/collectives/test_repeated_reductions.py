"""Descriptions of reductions in place: used again for what they describe, and never with an old tensor."""

import threading
from contextlib import nullcontext
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
from ringleader.torch.repeated_reductions import CAPACITY, RepeatedReduction
from ringleader.torch.torch_kernels import TORCH_TYPES, TorchKernels, flat_at

pytestmark = [pytest.mark.torch]


def work_of(tensor: torch.Tensor) -> Work:
    signature = Signature(kind="allreduce", dtype="float32", shape=tuple(tensor.shape), op=ReduceOp.SUM)
    return Work(signature, signature_digest(signature), name=None, serial=0, array=tensor, out=tensor)


class RecordingEngine:
    """Takes down what it is to do again; ``busy``: something else is under way."""

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.binds, self.busy = 0, False

    def is_busy(self) -> bool:
        return self.busy

    def bind(self, signature: Signature, *memory: Any) -> None:
        self.binds += 1

    def run_again(self, kept: Work, serial: int, array: Any, out: Any, bound: Any, bind: Any) -> bool:
        if not self.busy:
            self.done.append(bind(array, out) if bound is None and bind is not None else bound)
        return not self.busy


def test_a_repeated_reduction_makes_no_result_in_vain_and_asks_once_what_is_bound() -> None:
    engine, made = RecordingEngine(), list[torch.Tensor]()
    group: Any = SimpleNamespace(reductions={}, engine=engine)
    tensor = torch.zeros(6)
    known = RepeatedReduction(engine, work_of(tensor), tensor)  # type: ignore[arg-type]
    known._like = lambda tensor: made.append(tensor) or torch.empty_like(tensor)
    for other in (torch.zeros(6, requires_grad=True), torch.zeros(6, device="meta")):
        assert known.run(other, False, 1, ReduceOp.SUM, 1.0, 1.0) is None
    for busy in (True, False):
        engine.busy = busy
        result = known.run(torch.zeros(6), False, 1, ReduceOp.SUM, 1.0, 1.0)
        assert (result is None, len(made)) == (busy, not busy)
    for serial in range(1, 4):
        assert known.run(tensor, True, serial, ReduceOp.SUM, 1.0, 1.0) is tensor
    assert (engine.done, engine.binds) == ([None] * 4, 1)
    for number in range(CAPACITY + 1):
        known._key = (torch.float32, tensor.shape, f"w{number}")
        known.keep(group)
    assert len(group.reductions) == 1


@pytest.mark.parametrize("broken", ["", "shutdown"])
def test_an_error_while_memory_is_bound_is_told_to_the_peers_unless_the_group_has_ended(broken: str) -> None:
    engine, failed = Engine.__new__(Engine), list[BaseException]()
    queue = SimpleNamespace(works={}, broken="", observer=None)
    work, error = work_of(torch.zeros(6)), MemoryError("no memory is left")

    def acquire(_blocking: bool) -> bool:
        queue.broken = broken  # by another thread, while this one gets the lock
        return True

    def bind(_array: Any, _out: Any) -> Any:
        raise error

    queue.lock = SimpleNamespace(acquire=acquire, release=lambda: None)
    engine.queue = queue  # type: ignore[assignment]
    engine._released = SimpleNamespace(to_tell=False)  # type: ignore[assignment]
    engine._peer_wait = SimpleNamespace()  # type: ignore[assignment]
    engine._failed = lambda error: failed.append(error) or error  # type: ignore[method-assign,func-returns-value]
    with nullcontext() if broken else pytest.raises(MemoryError):
        assert not engine.run_again(work, 1, work.array, work.out, None, bind)
    assert failed == ([] if broken else [error])


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


def as_bytes(array: Any) -> bytes:
    return bytes(array.view(torch.uint8).numpy()) if isinstance(array, torch.Tensor) else array.tobytes()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("kernels", [NumpyAdapter(), TorchKernels()], ids=["numpy", "torch"])
@pytest.mark.parametrize("dtype", ITEMSIZE)
def test_flat_kernels_have_the_bits_of_the_frameworks(kernels: Any, dtype: str) -> None:
    flat, count = kernels.flat_kernels(dtype), 1001
    bits = [bytearray(np.random.default_rng(seed).integers(0, 2, count).astype(dtype_named(dtype)).tobytes())
            for seed in range(3)]  # fmt: skip
    for op in (ReduceOp.SUM, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.PRODUCT):
        for factor, ranks in ((1.0, 2), (1 / 3, 3), (0.25, 2)):
            memories = [bytearray(one) for one in bits[:ranks]]
            parts = [kernels.over(memory, dtype, count) for memory in memories]
            want, target = kernels.empty((count,), dtype), bytearray(len(bits[0]))
            kernels.reduce(want, parts, op, factor)
            out, arrays = flat.over(target, dtype, count), [flat.take(part) for part in parts]
            flat.reducer(op, factor)(out, arrays)
            assert target == as_bytes(want), (op, factor, ranks)
            bound = flat.over(bytearray(len(target)), dtype, count)
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


def test_memory_at_an_address() -> None:
    for dtype in ITEMSIZE:
        tensor = torch.zeros(5, dtype=TORCH_TYPES[dtype])
        view = flat_at(tensor.data_ptr(), dtype, 5)
        assert (view is None) == ("float16" in dtype)
        if view is not None:
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

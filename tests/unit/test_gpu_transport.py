"""Two ranks of one process, in threads, on fake GPUs and a fake NCCL: what is launched on which GPU."""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.framework_adapter import TransportContext
from ringleader.engine.group_communicators import RankLayout
from ringleader.engine.launch_order import LaunchOrder
from ringleader.engine.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.engine.traffic import uncounted
from ringleader.torch.c10d.process_group import ProcessGroup
from ringleader.torch.cuda import own_gpu
from ringleader.torch.cuda.cuda_streams import CudaStreams, tensors_of
from ringleader.torch.cuda.gpu_transport import GpuFacts, GpuTransport

sys.path.insert(0, str(Path(__file__).parents[1] / "collectives" / "programs"))
import fake_cuda
import fake_nccl

sys.path.pop(0)

SIZE, SECONDS = 2, 20.0


class Meetings:
    """What the threads tell each other."""

    def __init__(self) -> None:
        self.barrier = threading.Barrier(SIZE, timeout=SECONDS)
        self.told: list[Any] = [None] * SIZE


class Calls:
    """What is used of `MpiCalls`."""

    size = SIZE

    def __init__(self, rank: int, meetings: Meetings) -> None:
        self.rank, self._meetings = rank, meetings

    def messages(self, mine: Any) -> list[Any]:
        self._meetings.told[self.rank] = mine
        self._meetings.barrier.wait()
        everybody = list(self._meetings.told)
        self._meetings.barrier.wait()
        return everybody

    integers = messages


class Wait:
    subject = "an operation"

    def until(self, ready: Callable[[], bool], missing: object) -> None:
        end = time.monotonic() + SECONDS
        while not ready():
            assert time.monotonic() < end
            time.sleep(0.001)

    def ended(self) -> dict[int, str]:
        return {}

    def why_broken(self) -> str:
        return ""


class Host:
    """The host's transport: sums in place."""

    name = "window"

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    def execute(self, work: Work, *, staged: int) -> None:
        everybody = self._calls.messages(work.array.clone())
        work.out = work.array.copy_(torch.stack(everybody).sum(0))


class Rank:
    """One rank: its GPUs, its transport, and its script's thread, which is the one that calls."""

    def __init__(self, rank, meetings, store, *, own, gpus, number=0):
        self.gpu = fake_cuda.Gpu(devices=2)
        self.said: list[str] = []
        calls: Any = Calls(rank, meetings)
        group: Any = type("Group", (fake_nccl.FakeProcessGroupNCCL,), {"gpu": self.gpu})
        context: Any = TransportContext(
            ranks=RankLayout(rank=rank, size=SIZE),
            peer_wait=Wait(),
            deadline_seconds=SECONDS,
            mpi_calls=calls,
            host=Host(calls),
            number=number,
            launch_order=LaunchOrder(),
        )

        def open_group(backend: str, _context: object, device: torch.device, _watch: object) -> ProcessGroup:
            options = group.Options()
            options._timeout = timedelta(seconds=SECONDS)
            raw = group(fake_nccl.NamedStore("set.0", store), rank, SIZE, options)
            raw.eager_connect_single_device(device)
            return ProcessGroup("nccl", raw, store, context.peer_wait, uncounted(SIZE))

        self.transport = GpuTransport(
            context,
            streams=CudaStreams(self.gpu, self.gpu.record_stream),
            kind="cpu",
            device_of=self.gpu.device_of,
            usual_device=lambda: torch.device("cpu", own),
            facts=lambda device: GpuFacts(gpu=gpus[rank], obstacle=""),
            open_nccl=open_group,
            say=self.said.append,
        )
        self.rank, self._own, self.context = rank, own, context

    def work(self, value: float, index: int, *, kind: str = "allreduce", **fields: Any) -> Work:
        array = self.gpu.place(torch.full((4,), value), index)
        signature = Signature(
            kind=kind, dtype="float32", shape=(4,), device="cuda", op=ReduceOp.SUM, **fields
        )
        digest = signature_digest(signature)
        return Work(signature, digest, name="x", serial=0, array=array, out=array)

    def carry_out(self, *works: Work) -> None:
        self.gpu.set_device(self._own)
        for one in works:
            self.gpu.owns(tensors_of(one))
            self.transport.submitted(one)
        self.in_engine(*works)
        for one in works:
            self.transport.delivered(one)

    def in_engine(self, *works: Work) -> None:
        with ThreadPoolExecutor(1) as engine:
            if len(works) > 1:
                engine.submit(self.transport.execute_together, works).result()
            else:
                engine.submit(self.transport.execute, works[0]).result()


def on_ranks(do, *, own=0, gpus=("GPU-0", "GPU-1")):
    meetings, store = Meetings(), torch.distributed.HashStore()
    ranks = [Rank(rank, meetings, store, own=own, gpus=gpus) for rank in range(SIZE)]
    with ThreadPoolExecutor(SIZE) as threads:
        for ended in [threads.submit(do, rank) for rank in ranks]:
            ended.result()
    return ranks


def check(work: Work, value: float) -> None:
    assert work.out.tolist() == [value] * 4, work.out


def test_works_of_several_gpus_are_exchanged_together_and_one_by_one() -> None:
    def do(rank: Rank) -> None:
        for turn in range(3):
            works = [rank.work(rank.rank + at + 1.0, at % 2) for at in range(4)]
            rank.carry_out(*works)
            for at, work in enumerate(works):
                check(work, 3.0 + 2 * at)
            for index in (1, 0):
                work = rank.work(rank.rank + turn, index)
                rank.carry_out(work)
                check(work, 1.0 + 2 * turn)

    for rank in on_ranks(do):
        lanes = {step for step in rank.gpu.steps if step.startswith("on ")}
        assert lanes == {"on lane1", "on lane2"}  # one stream for each GPU, whichever one's tensors travel
        assert rank.gpu.contexts == {0, 1}


def test_ranks_that_share_a_gpu_go_through_the_host_and_are_named_with_the_cure() -> None:
    def do(rank: Rank) -> None:
        work = rank.work(rank.rank + 1.0, 0)
        rank.carry_out(work)
        check(work, 3.0)

    first, second = on_ranks(do, gpus=("GPU-0", "GPU-0"))
    assert first.transport.name == "staged" and not second.said
    (said,) = first.said
    assert "ranks 0 and 1 use the same GPU" in said and "--own-gpu" in said and "set_device" in said


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (torch.AcceleratorError("CUDA error: GPU is lost"), torch.AcceleratorError),
        (torch.OutOfMemoryError("CUDA out of memory."), torch.OutOfMemoryError),
        (torch.distributed.DistBackendError("NCCL error: remote process exited"), HorovodInternalError),
    ],
)
def test_a_failure_in_the_middle_of_a_step_names_rank_gpu_and_operation(error, kind):
    def do(rank: Rank) -> None:
        rank.carry_out(rank.work(1.0, 0))
        if rank.rank == 0:  # the other one's GPU fails, and it does not come
            return
        rank.gpu.fails = error
        rank.transport._turn = lambda device, work: nullcontext(False)
        with pytest.raises(kind) as caught:
            rank.carry_out(rank.work(1.0, 0))
        assert "ringleader: rank 1, GPU 0, in allreduce 'allreduce.x'" in caught.value.__notes__

    try:
        on_ranks(do)
    finally:
        own_gpu._newest.clear()


def test_operations_during_backward_that_cost_overlap_are_reported_once() -> None:
    def do(rank: Rank) -> None:
        rank.carry_out(rank.work(0.0, 0))
        for _turn in range(5):
            permission = rank.work(0.0, 0, kind="launch")
            permission.array = True
            rank.in_engine(permission)
            work = rank.work(rank.rank + 1.0, 0)
            rank.carry_out(work)
            check(work, 3.0)
            rank.transport.end_sequence()

    first, second = on_ranks(do)
    assert not second.said
    (said,) = first.said
    assert "such as allreduce 'allreduce.x'" in said and "SyncBatchNorm" in said


def test_a_factor_on_bfloat16_is_applied_outside_of_nccl() -> None:
    on_ranks(a_factor_on_bfloat16)


def a_factor_on_bfloat16(rank: Rank) -> None:
    array = rank.gpu.place(torch.ones(4, dtype=torch.bfloat16), 0)
    signature = Signature(
        kind="allreduce", dtype="bfloat16", shape=(4,), device="cuda", op=ReduceOp.SUM, postscale=0.25
    )
    work = Work(signature, signature_digest(signature), name="x", serial=0, array=array, out=array)
    rank.carry_out(work)
    check(work, 0.5)


def launches_of_two_sets(patch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return what each of two ranks launches, where each is late with another of two process sets."""
    settle = LaunchOrder.settle

    def late(self: LaunchOrder, launch: Any, messages: Sequence[int]) -> bool:
        granted = settle(self, launch, messages)
        rank = next(number for number, one in orders.items() if one is self)
        time.sleep(0.1 if (launch.group == 0) == (rank == 0) else 0.0)
        return granted

    sets = []
    for number in (0, 1):
        meetings, store = Meetings(), torch.distributed.HashStore()
        sets.append(
            [Rank(rank, meetings, store, own=0, gpus=("GPU-0", "GPU-1"), number=number) for rank in (0, 1)]
        )
    orders = {rank: sets[0][rank].context.launch_order for rank in (0, 1)}
    for rank in (0, 1):
        object.__setattr__(sets[1][rank].context, "launch_order", orders[rank])
    with ThreadPoolExecutor(4) as threads:
        for turn in range(2):  # the first makes the communicators
            ended = [threads.submit(one.carry_out, one.work(1.0, 0)) for group in sets for one in group]
            for one in ended:
                one.result()
            if turn == 0:
                patch.setattr(LaunchOrder, "settle", late)
                launched: dict[int, list[str]] = {0: [], 1: []}
                for number, group in enumerate(sets):
                    for one in group:
                        note_launches(one, str(number), launched[one.rank])
    return [launched[0], launched[1]]


def note_launches(rank: Rank, name: str, launched: list[str]) -> None:
    transport: Any = rank.transport._transport
    real = transport.execute

    def execute(work: Work, *, staged: int) -> None:
        launched.append(name)
        real(work, staged=staged)

    transport.execute = execute


def test_two_process_sets_launch_in_one_order(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = launches_of_two_sets(monkeypatch)
    assert first == second and sorted(first) == ["0", "1"]
    monkeypatch.undo()
    monkeypatch.setattr(LaunchOrder, "is_next", lambda self, launch: True)
    first, second = launches_of_two_sets(monkeypatch)
    assert first != second, "what the test shows where there is no order"

"""The fake NCCL does what PyTorch's source says of the real one, and our group bears with it."""

import struct
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch

from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.operations import ReduceOp
from ringleader.engine.traffic import uncounted
from ringleader.torch.c10d.process_group import ProcessGroup

sys.path.insert(0, str(Path(__file__).parents[1] / "collectives" / "programs"))
import fake_cuda
import fake_nccl

sys.path.pop(0)


class Wait:
    subject = "allreduce 'x'"

    def ended(self) -> dict[int, str]:
        return {}


Make = Callable[..., tuple[fake_cuda.Gpu, Any]]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Make:
    """A GPU, and a group of one rank on its device 0."""

    def group(version: str = "2.13", devices: int = 2) -> tuple[fake_cuda.Gpu, Any]:
        gpu = fake_cuda.Gpu(devices)
        for module, name in (
            (torch.distributed, "ProcessGroupNCCL"),
            (torch.distributed, "is_nccl_available"),
            (torch.distributed, "PrefixStore"),
            (torch.cuda.nccl, "version"),
            (torch.cuda, "set_device"),
        ):
            monkeypatch.setattr(module, name, None, raising=False)
        fake_nccl.install(gpu, version)
        store = torch.distributed.PrefixStore("ringleader/generation.0/set.0", torch.distributed.HashStore())
        options = fake_nccl.FakeProcessGroupNCCL.Options()
        options._timeout = timedelta(seconds=20)
        raw = fake_nccl.FakeProcessGroupNCCL(store, 0, 1, options)
        raw.eager_connect_single_device(torch.device("cpu", 0))
        return gpu, raw

    return group


def allreduce(*, asynchronous: bool) -> Any:
    options = torch.distributed.AllreduceOptions()
    options.asyncOp = asynchronous
    return options


def test_factors_are_read_as_nccl_reads_them() -> None:
    for version, dtype, factor, read in (
        ((2, 8), torch.bfloat16, 0.5, 0.0),
        ((2, 13), torch.bfloat16, 0.25, 0.0),
        ((2, 14), torch.bfloat16, 0.25, 0.25),
        ((2, 8), torch.float16, 0.5, 0.5),
    ):
        assert fake_nccl.factor_as_read(factor, dtype, version) == read
    wrong = fake_nccl.factor_as_read(1 / 3, torch.bfloat16, (2, 8))
    assert struct.pack("<f", wrong)[2:] == struct.pack("<f", 1 / 3)[:2]


def test_memory_of_the_scripts_must_be_kept_for_the_stream(make: Make) -> None:
    gpu, raw = make()
    lane, values = gpu.Stream(torch.device("cpu", 0)), torch.ones(3)
    gpu.owns([values])
    for keeps in (True, False):
        with gpu.device(0), gpu.stream(lane):
            raw.allreduce([values], allreduce(asynchronous=False))
        gpu._recorded.clear()
        if keeps:
            gpu.record_stream(values, lane)
            gpu.current_stream().wait_event(lane.record_event())
    with pytest.raises(AssertionError, match="without record_stream"):
        gpu.current_stream().wait_event(lane.record_event())


@pytest.mark.parametrize("version", ["2.8", "2.13"])
def test_our_group_asks_for_every_operation_on_the_current_stream(make: Make, version: str) -> None:
    gpu, raw = make(version)
    group = ProcessGroup("nccl", raw, None, Wait(), uncounted(1))  # type: ignore[arg-type]
    flat = torch.arange(4.0)
    assert group.allreduce([flat], ReduceOp.SUM, 0.5) == 1.0
    assert group.allreduce([flat.bfloat16()], ReduceOp.SUM, 0.5) == 0.5
    assert group.allreduce([flat, torch.ones(2)], ReduceOp.MAX, 1.0) == 1.0
    out = torch.zeros(4)
    group.broadcast([(flat, 0)])
    group.allgather(out, flat)
    group.alltoall(out, flat, [4], [4])
    group.reduce_scatter(out, flat)
    gpu.finish()
    assert raw._own_stream.length == 0  # nothing went to PyTorch's own stream
    assert out.tolist() == [0.0, 0.5, 1.0, 1.5]
    group.refuse("rank 2 has ended")
    with pytest.raises(HorovodInternalError, match="rank 2 has ended"):
        group.allreduce([flat], ReduceOp.SUM)

"""Every operation in process sets and groups, sparse, with Adasum, with gradients; what ranks see to fail."""

from typing import Any

import pytest
import torch
from tests.fork_server import RANKS

from ringleader.engine.operations import ReduceOp, Signature, Work, row_counts
from ringleader.engine.transports.adasum import power_of_two, weights
from ringleader.engine.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.torch.torch_kernels import TorchKernels

real_ranks = pytest.mark.mpi
pytestmark = [pytest.mark.torch]
PROGRAM = "contract_operations.py"


@real_ranks
@pytest.mark.parametrize(
    "size", [pytest.param(2, marks=pytest.mark.long), 3, pytest.param(4, marks=pytest.mark.long)]
)
def test_shared_memory(jobs: Any, size: int) -> None:
    jobs(PROGRAM, "window", str(size), ranks=size).passed(size)


@real_ranks
@pytest.mark.parametrize(
    "size", [pytest.param(2, marks=pytest.mark.long), 3, pytest.param(4, marks=pytest.mark.long)]
)
def test_plain_mpi(jobs: Any, size: int) -> None:
    jobs(PROGRAM, "mpi", str(size), ranks=size, RINGLEADER_TRANSPORT="mpi").passed(size)


@real_ranks
@pytest.mark.parametrize(
    ("size", "per_host", "transport"),
    [
        pytest.param(4, 2, "hosts", marks=pytest.mark.long),
        pytest.param(2, 1, "mpi", marks=pytest.mark.long),
        (3, 2, "hosts"),
    ],
    ids=["2x2", "2x1", "unequal 2+1"],
)
def test_several_hosts(jobs: Any, size: int, per_host: int, transport: str) -> None:
    jobs(PROGRAM, transport, str(size), ranks=size, RINGLEADER_RANKS_PER_HOST=str(per_host)).passed(size)


@real_ranks
def test_one_rank(jobs: Any) -> None:
    jobs(PROGRAM, "loopback", ranks=1).passed(1)
    jobs.run(RANKS.command(str(jobs.programs / PROGRAM), "loopback")).passed(1)


@real_ranks
@pytest.mark.parametrize(
    ("size", "per_host"), [(1, ""), pytest.param(3, "", marks=pytest.mark.long), (2, "1")]
)
def test_an_adapter_of_nothing_but_numpy(jobs: Any, size: int, per_host: str) -> None:
    environ = {"RINGLEADER_RANKS_PER_HOST": per_host}
    jobs.fresh("without_framework.py", ranks=size, forked=False, **environ).passed(size)


@pytest.mark.long
@real_ranks
@pytest.mark.parametrize(
    ("size", "first"),
    [(2, "numpy"), (2, "torch"), (1, "numpy")],
)
def test_two_frameworks_in_one_process(jobs: Any, size: int, first: str) -> None:
    jobs.fresh("two_frameworks.py", first, ranks=size, forked=False).passed(size)


@real_ranks
@pytest.mark.parametrize("waits", ["patient", "inside MPI"])
@pytest.mark.parametrize("size", [1, 2, 3])
def test_arrays_larger_than_one_call_carries(jobs: Any, size: int, waits: str) -> None:
    jobs("pieces.py", waits, ranks=size).passed(size)


@pytest.mark.parametrize(
    ("rows", "size", "counts"),
    [(7, 3, [3, 2, 2]), (8, 3, [3, 3, 2]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0]), (6, 2, [3, 3])],
)
def test_the_first_ranks_get_one_row_more(rows: int, size: int, counts: list[int]) -> None:
    assert row_counts(rows, size) == counts


def test_adasum_weights() -> None:
    assert weights((0.0, 4.0, 9.0)) == (1.0, 1.0)
    assert weights((4.0, 4.0, 4.0)) == (0.5, 0.5)
    assert weights((0.0, 0.0, 9.0)) == (1.0, 1.0)
    assert weights((-2.0, 4.0, 1.0)) == (1.25, 2.0)
    assert [size for size in range(10) if power_of_two(size)] == [1, 2, 4, 8]


def _done(transport: LoopbackTransport, kind: str, array: torch.Tensor, **words: Any) -> Work:
    splits = words.pop("splits", None)
    shape = tuple(array.shape[1:] if kind in ("allgather", "alltoall") else array.shape)
    signature = Signature(kind=kind, dtype="float32", shape=shape, **words)
    work = Work(signature, 0, name=None, serial=0, array=array, out=torch.empty_like(array), splits=splits)
    transport.execute(work, staged=False)
    return work


def test_alone_everything_is_ones_own() -> None:
    transport, x = LoopbackTransport(TorchKernels()), torch.arange(6.0).view(3, 2)
    for kind in ("allgather", "alltoall", "reducescatter", "broadcast", "allreduce"):
        assert torch.equal(_done(transport, kind, x).out, x)
    assert _done(transport, "allgather", x).received == (3,)
    some = _done(transport, "alltoall", x, splits=(2,))
    assert torch.equal(some.out, x[:2])
    assert some.received == (2,)
    for kind in ("reducescatter", "allreduce"):
        assert torch.equal(_done(transport, kind, x, prescale=2.0, postscale=0.25).out, x / 2)


def test_uncoupled_ranks_stand_in_for_all() -> None:
    transport, x = UncoupledTransport(TorchKernels(), 3, 1), torch.arange(10.0).view(5, 2)
    gathered = _done(transport, "allgather", x)
    assert torch.equal(gathered.out, torch.cat([x, x, x]))
    assert gathered.received == (5, 5, 5)
    swapped = _done(transport, "alltoall", x, splits=(1, 2, 0))
    assert torch.equal(swapped.out, torch.cat([x[1:3]] * 3))
    assert swapped.received == (2, 2, 2)
    assert torch.equal(_done(transport, "reducescatter", x, op=ReduceOp.AVERAGE).out, x[2:4])
    assert torch.equal(_done(transport, "allreduce", x, op=ReduceOp.AVERAGE).out, x)

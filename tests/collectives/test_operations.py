"""Operations without PyTorch and beside it, in pieces, and the engine of a rank that is alone."""

from typing import Any

import pytest
import torch
from tests.collectives.layouts import CONTRACT, LAYOUTS, programs

from ringleader.engine.operations import ReduceOp, Signature, Work, row_counts
from ringleader.engine.transports.adasum import power_of_two, weights
from ringleader.engine.transports.loopback import LoopbackTransport, UncoupledTransport
from ringleader.torch.torch_kernels import TorchKernels

pytestmark = [pytest.mark.torch]


@pytest.mark.mpi
@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("2x1", [CONTRACT, "numpy"]),
        *(
            pytest.param(layout, words, marks=pytest.mark.long)
            for layout, words in (
                ("1", [CONTRACT, "numpy"]),
                ("3", [CONTRACT, "numpy"]),
                ("1", ["two_frameworks.py", "numpy"]),
                ("2", ["two_frameworks.py", "torch"]),
            )
        ),
        ("2", ["two_frameworks.py", "numpy"]),
    ],
    ids=lambda word: word if isinstance(word, str) else word[-1],
)
def test_numpys_arrays(jobs: Any, layout: str, words: list[str]) -> None:
    where = LAYOUTS[layout]
    jobs.fresh(*words, ranks=where.size, forked=False, **where.environ).passed(where.size)


@pytest.mark.mpi
@programs(("pieces.py patient", "1 2 3", ""), ("pieces.py inside-MPI", "2 3", ""))
def test_arrays_larger_than_one_call_carries(
    jobs: Any, program: str, layout: Any, environ: dict[str, str]
) -> None:
    jobs.pass_on(layout, program, **environ)


@pytest.mark.parametrize(
    ("rows", "size", "counts"), [(8, 3, [3, 3, 2]), (2, 4, [1, 1, 0, 0]), (0, 2, [0, 0]), (6, 2, [3, 3])]
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

"""Parts of `gpu.py` about operations: with one rank, and between ranks of one GPU.

What trains is in gpu_training.py.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

import ringleader.torch as hvd
from gpu_process import REHEARSAL, Report

BACKEND = "gloo" if REHEARSAL else "nccl"


def share_with_nccl() -> None:
    """Have Ringleader hand tensors to NCCL though ranks share a GPU: else they go through the host.

    Each rank has its own NCCL_HOSTID here, so NCCL takes them, at a speed that no training would want.
    """
    from ringleader.torch.cuda import gpu_transport

    decide = gpu_transport.obstacle_to_nccl
    if decide.__module__ == gpu_transport.__name__:

        def apart(ranks: Sequence[gpu_transport.GpuFacts]) -> str:
            return decide([replace(one, gpu=f"{one.gpu} of {rank}") for rank, one in enumerate(ranks)])

        gpu_transport.obstacle_to_nccl = apart


def device() -> torch.device:
    """Return this rank's device, made the current one: a rank that sees one GPU has the first one."""
    torch.set_num_threads(max(1, min(4, torch.get_num_threads())))
    share_with_nccl()
    if REHEARSAL:
        return torch.device("cpu")
    torch.cuda.set_device(hvd.local_rank() % torch.cuda.device_count())
    return torch.device("cuda", torch.cuda.current_device())


def idle() -> None:
    """Wait until the device has done everything; errors of its kernels come up here."""
    if not REHEARSAL:
        torch.cuda.synchronize()


def same(got: torch.Tensor, want: Any, what: str, *, rtol: float = 0.0, atol: float = 0.0) -> None:
    """Raise AssertionError where a result is on another device or has other values."""
    kind = "cpu" if REHEARSAL else "cuda"
    assert got.device.type == kind, f"{what}: the result is on {got.device}"
    expected = torch.as_tensor(want, dtype=torch.float64)
    found = got.detach().to("cpu", torch.float64)
    assert found.shape == expected.shape, f"{what}: shape {tuple(found.shape)}, not {tuple(expected.shape)}"
    close = torch.allclose(found, expected, rtol=rtol, atol=atol)
    assert close, f"{what}: {found.flatten()[:4].tolist()}, not {expected.flatten()[:4].tolist()}"


def same_everywhere(model: torch.nn.Module, what: str) -> None:
    """Raise AssertionError where two ranks have other parameters, bit for bit."""
    flat = torch.cat([one.detach().view(-1) for one in model.parameters()])
    rows = hvd.allgather(flat.view(1, -1))
    assert all(torch.equal(row, rows[0]) for row in rows), f"{what}: the ranks have other parameters"


# --- one process ------------------------------------------------------------------------------------------


def first(report: Report) -> str:
    """Make the first allreduce: by the public call, and over a communicator of this process alone."""
    report.stage("hvd.init")
    hvd.init()
    here = device()
    report.stage("hvd.allreduce")
    values = torch.arange(1000.0, device=here)
    same(hvd.allreduce(values, op=hvd.Sum), torch.arange(1000.0), "allreduce")
    same(hvd.synchronize(hvd.allreduce_async(values, name="later")), torch.arange(1000.0), "allreduce_async")
    report.stage(f"a communicator of one over {BACKEND}")
    with group_of_one(here) as group:
        report.stage(f"allreduce over {BACKEND}")
        again = values.clone()
        group.allreduce_together([work_of("allreduce", again, out=again, op=hvd.Sum)])
        idle()
        same(again, torch.arange(1000.0), f"allreduce over {BACKEND}")
    hvd.shutdown()
    return ""


@contextlib.contextmanager
def group_of_one(here: torch.device) -> Iterator[Any]:
    """Yield our transport over NCCL with this process as its only rank: a job of one rank makes none."""
    from mpi4py import MPI

    from ringleader.engine.framework_adapter import TransportContext
    from ringleader.engine.mpi_calls import MpiCalls
    from ringleader.engine.mpi_communicator import MpiCommunicator
    from ringleader.engine.peer_wait import PeerWait
    from ringleader.torch.basics import session
    from ringleader.torch.c10d.distributed_transport import DistributedTransport
    from ringleader.torch.torch_kernels import TorchKernels

    engine = session().engine
    peer_wait = PeerWait(rank=0, liveness_sources=[], warn_seconds=60.0, deadline_seconds=30.0)
    mpi_calls = MpiCalls(MpiCommunicator(MPI, MPI.COMM_SELF), peer_wait, polling=True)
    context = TransportContext(
        ranks=engine.ranks,
        peer_wait=peer_wait,
        deadline_seconds=30.0,
        mpi_calls=mpi_calls,
        host=engine.transport,
    )
    kernels = TorchKernels(here)
    transport = DistributedTransport(BACKEND, context, kernels, adasum=engine.transport)
    transport.open()
    yield transport
    transport.close(together=True)


def work_of(kind: str, array: torch.Tensor, **more: Any) -> Any:
    """Return what the engine hands to a transport."""
    from ringleader.engine.operations import Signature, Work, signature_digest

    given = {"out": None} | {name: more.pop(name) for name in ("out", "splits") if name in more}
    shape = tuple(array.shape[1:] if kind in ("allgather", "alltoall") else array.shape)
    dtype = str(array.dtype).removeprefix("torch.")
    signature = Signature(kind=kind, dtype=dtype, shape=shape, **more)
    return Work(signature, signature_digest(signature), name=None, serial=1, array=array, **given)


def contract(report: Report) -> str:
    """Try all operations in a job of one rank, then those of the transport over a communicator of one."""
    hvd.init()
    here = device()
    operations(report, here)
    report.stage(f"a communicator of one over {BACKEND}")
    with group_of_one(here) as group:
        for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.int16):
            report.stage(f"{BACKEND} {dtype}")
            rows = torch.arange(12, device=here).reshape(4, 3).to(dtype)
            want = rows.tolist()
            for op, factor in ((hvd.Sum, 1.0), (hvd.Sum, 2.0), (hvd.Max, 1.0), (hvd.Min, 1.0)):
                work = work_of("allreduce", rows, out=torch.empty_like(rows), op=op, postscale=factor)
                group.execute(work, staged=0)
                idle()
                same(work.out, (torch.tensor(want) * factor).tolist(), f"allreduce {dtype} {op} × {factor}")
            for kind, more in (
                ("allgather", {}),
                ("alltoall", {"splits": (4,)}),
                ("broadcast", {"out": torch.zeros_like(rows), "root": 0}),
                ("reducescatter", {"op": hvd.Sum}),
            ):
                work = work_of(kind, rows, **more)
                group.execute(work, staged=0)
                idle()
                same(work.out, want, f"{kind} {dtype} over {BACKEND}")
        report.stage("bfloat16 and a factor that is a power of two")
        half = torch.ones(8, dtype=torch.bfloat16, device=here)
        work = work_of("allreduce", half, out=torch.empty_like(half), op=hvd.Sum, postscale=0.5)
        group.execute(work, staged=0)
        idle()
        same(work.out, [0.5] * 8, "bfloat16 × 0.5")
    report.stage("again, after the first was closed")
    with group_of_one(here) as group:
        values = torch.ones(8, device=here)
        group.allreduce_together([work_of("allreduce", values, out=values, op=hvd.Sum)])
        idle()
        same(values, [1.0] * 8, "allreduce over a second communicator")
    hvd.shutdown()
    return ""


# --- several ranks ----------------------------------------------------------------------------------------


def raw(report: Report) -> str:
    """Try PyTorch's own group between ranks of one GPU, without Ringleader: whether NCCL does it at all."""
    import torch.distributed as dist

    hvd.init()  # for the rank's number on this host
    here, rank, size = device(), hvd.rank(), hvd.size()
    report.stage(f"init_process_group({BACKEND})")
    dist.init_process_group(BACKEND, rank=rank, world_size=size)
    seconds = {}
    for count in (2, 1 << 10, 1 << 18):
        report.stage(f"all_reduce of {4 * count} bytes")
        times = []
        for _ in range(4):
            values = torch.full((count,), rank + 1.0, device=here)
            idle()
            start = time.perf_counter()
            dist.all_reduce(values)
            idle()
            times.append(time.perf_counter() - start)
        same(values, [size * (size + 1) / 2] * count, "all_reduce")
        seconds[4 * count] = min(times)
    report.stage("facts of this PyTorch")
    options: Any = dist.AllreduceOptions()
    if hasattr(options, "asyncOp"):
        options.asyncOp = False
        work = dist.distributed_c10d._get_default_group().allreduce([torch.ones(2, device=here)], options)
        report.details["a collective with asyncOp=False returns"] = type(work).__name__
    idle()
    report.details["all_reduce, bytes: seconds"] = seconds
    dist.destroy_process_group()
    hvd.shutdown()
    return f"all_reduce of 1 MiB in {seconds[1 << 20] * 1e3:.1f} ms"


def operations(report: Report, here: torch.device) -> None:
    """Try every public operation, with all ranks."""
    rank, size = hvd.rank(), hvd.size()
    total = size * (size + 1) // 2
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int16, torch.int64):
        report.stage(f"operations on {dtype}")
        mine = torch.full((5,), rank + 1, device=here).to(dtype)
        same(hvd.allreduce(mine, op=hvd.Sum), [total] * 5, f"allreduce {dtype}")
        same(hvd.allreduce_(mine.clone(), op=hvd.Max), [size] * 5, f"allreduce_ {dtype}")
        same(hvd.allreduce(mine, op=hvd.Min), [1] * 5, f"allreduce Min {dtype}")
        same(hvd.broadcast(mine, size - 1), [size] * 5, f"broadcast {dtype}")
        gathered = [one for number in range(size) for one in [number] * (number + 1)]
        same(
            hvd.allgather(torch.full((rank + 1,), rank, device=here).to(dtype)),
            gathered,
            f"allgather {dtype}",
        )
        sent = torch.arange(2 * size, device=here).to(dtype)
        out, _ = hvd.alltoall(sent, splits=torch.tensor([2] * size, dtype=torch.int32))
        same(out, [2 * rank, 2 * rank + 1] * size, f"alltoall {dtype}")
        even = torch.ones(2 * size, device=here).to(dtype)
        same(hvd.reducescatter(even, op=hvd.Sum), [size] * 2, f"reducescatter {dtype}")
    report.stage("factors")
    ones = torch.full((7,), rank + 1.0, device=here)
    same(hvd.allreduce(ones), [total / size] * 7, "average", rtol=1e-6)
    scaled = hvd.allreduce(ones, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    same(scaled, [total * 1.5] * 7, "factors before and after", rtol=1e-6)
    report.stage("many at once")
    many = [torch.full((number + 1,), rank + 1.0 + number, device=here) for number in range(20)]
    results = hvd.grouped_allreduce(many, op=hvd.Sum)
    handles = [
        hvd.allreduce_async(one, name=f"n{at}", op=hvd.Sum) for at, one in reversed(list(enumerate(many)))
    ]
    for at, result in enumerate(results):
        same(result, [total + size * at] * (at + 1), "grouped_allreduce")
    for at, handle in zip(reversed(range(20)), handles, strict=True):
        same(hvd.synchronize(handle), [total + size * at] * (at + 1), "allreduce_async")
    report.stage("a stream of the script's")
    side = contextlib.nullcontext() if REHEARSAL else torch.cuda.stream(torch.cuda.Stream())
    with side:
        for turn in range(10):
            values = torch.zeros(1 << 18, device=here)
            for _ in range(8):
                values.add_(rank + turn)
            hvd.synchronize(hvd.allreduce_async_(values, name="on a stream", op=hvd.Sum))
            want = 8.0 * (sum(range(size)) + size * turn)
            assert values.min().item() == values.max().item() == want, f"on a stream, round {turn}"
    report.stage("objects and a barrier")
    assert hvd.broadcast_object({"rank": rank}, 0) == {"rank": 0}
    hvd.barrier()
    idle()


def nccl(report: Report) -> str:
    """Try every public operation between ranks of one GPU."""
    report.stage("hvd.init")
    hvd.init()
    here = device()
    report.stage("the first operation")
    start = time.perf_counter()
    hvd.allreduce(torch.ones(8, device=here), op=hvd.Sum)
    idle()
    report.details["seconds of the first allreduce"] = time.perf_counter() - start
    operations(report, here)
    report.stage("a mismatch is an error on all ranks")
    shape = (3,) if hvd.rank() else (4,)
    try:
        hvd.allreduce(torch.ones(shape, device=here), name="mismatch")
    except hvd.HorovodInternalError as error:
        report.details["error of a mismatch"] = str(error)
    else:
        raise AssertionError("two shapes under one name were reduced")
    same(hvd.allreduce(torch.ones(2, device=here), op=hvd.Sum), [hvd.size()] * 2, "after a mismatch")
    hvd.shutdown()
    return ""

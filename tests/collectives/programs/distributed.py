"""The parts of `ringleader.torch` that rest on torch.distributed, on CPU tensors. argv: what to try."""

import os
import signal
import sys

import numpy as np
import torch
from fake_cuda import Gpu

import ringleader.torch as hvd
from ringleader.engine.exceptions import HorovodInternalError
from ringleader.engine.framework_adapter import TransportContext
from ringleader.engine.mpi_calls import MpiCalls
from ringleader.engine.operations import ReduceOp, Signature, Work, signature_digest
from ringleader.engine.peer_wait import PeerWait
from ringleader.torch.basics import session
from ringleader.torch.c10d.connect import open_process_group
from ringleader.torch.c10d.group_watch import GroupWatch
from ringleader.torch.cuda.cuda_streams import CudaStreams
from ringleader.torch.cuda.gpu_transport import GpuTransport

CPU = torch.device("cpu")
TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int16, torch.int32, torch.uint64, torch.bool]


def rows_of(rank, rows, width, dtype):
    """What a rank brings: small integers that tell ranks, rows and columns from each other."""
    values = torch.arange(rows * width).reshape(rows, width) % 5 + rank % 3
    return values.to(dtype)


def work_of(kind, array, *, out=None, splits=None, serial=0, **fields):
    names = {torch.bool: "bool"}
    dtype = names.get(array.dtype, str(array.dtype).removeprefix("torch."))
    shape = tuple(array.shape[1:] if kind in ("allgather", "alltoall") else array.shape)
    signature = Signature(kind=kind, dtype=dtype, shape=shape, **fields)
    return Work(
        signature,
        signature_digest(signature),
        name=None,
        serial=10_000 + serial,
        array=array,
        out=out,
        splits=splits,
    )


def same(got, want, *what):
    assert got.shape == want.shape and got.dtype == want.dtype, (what, got.shape, want.shape, got.dtype)
    assert torch.equal(got, want), (what, got, want)


def exchanges(do):
    """Alltoall and reducescatter; `do` carries a work out. Rows differ, some are none."""
    for dtype in TYPES:
        for width in (3, 0):
            # Rank r gives r + p rows to rank p, and keeps two more that go nowhere.
            given = [[giver + taker for taker in range(SIZE)] for giver in range(SIZE)]
            brought = [rows_of(rank, sum(given[rank]) + 2, width, dtype) for rank in range(SIZE)]
            work = work_of("alltoall", brought[RANK], splits=tuple(given[RANK]))
            do(work)
            starts = [sum(given[giver][:RANK]) for giver in range(SIZE)]
            parts = [brought[giver][start : start + given[giver][RANK]] for giver, start in enumerate(starts)]
            same(work.out, torch.cat(parts), "alltoall", dtype, width)
            assert work.received == tuple(given[giver][RANK] for giver in range(SIZE))
        nothing = work_of("alltoall", torch.zeros(0, 2, dtype=dtype), splits=(0,) * SIZE)
        do(nothing)
        assert nothing.out.shape == (0, 2) and nothing.received == (0,) * SIZE
        if dtype is not torch.bool:
            scattered(do, dtype)


def scattered(do, dtype):
    for rows in (2 * SIZE, 2 * SIZE + 1, 1, 0):
        brought = [rows_of(rank, rows, 3, dtype) for rank in range(SIZE)]
        kept = brought[RANK].clone()
        counts = [rows // SIZE + (rank < rows % SIZE) for rank in range(SIZE)]
        start = sum(counts[:RANK])
        total = torch.from_numpy(np.sum([one.double().numpy() for one in brought], axis=0))
        for op, factor, prescale in (
            (ReduceOp.SUM, 1.0, 1.0),
            (ReduceOp.SUM, 1.0, 2.0),
            (ReduceOp.AVERAGE, SIZE, 1.0),
        ):
            work = work_of("reducescatter", brought[RANK], op=op, prescale=prescale, postscale=float(factor))
            do(work)
            want = (total * prescale)[start : start + counts[RANK]].to(dtype)
            same(work.out, want, "reducescatter", dtype, rows, op)
            same(brought[RANK], kept, "input untouched")


def gather_and_others(do):
    for dtype in TYPES:
        brought = [rows_of(rank, rank + 1, 2, dtype) for rank in range(SIZE)]
        work = work_of("allgather", brought[RANK])
        do(work)
        same(work.out, torch.cat(brought), "allgather", dtype)
        brought = [rows_of(rank, 40, 2, dtype) for rank in range(SIZE)]
        work = work_of("broadcast", brought[RANK], out=torch.zeros_like(brought[RANK]), root=SIZE - 1)
        do(work)
        same(work.out, brought[-1], "broadcast", dtype)
        inplace = brought[RANK].clone()
        work = work_of("allreduce", inplace, out=inplace, op=ReduceOp.MAX)
        do(work)
        want = torch.from_numpy(np.max([one.double().numpy() for one in brought], axis=0)).to(dtype)
        same(inplace, want, "allreduce", dtype)


def gradients(register, exchange):
    """A region is reduced where it lies, again and again, and so is a part of it."""
    region = register(1000, "float32")
    address = region.mine.data_ptr()
    for step in range(3):
        region.mine.copy_(torch.arange(1000) % 50 + RANK + step)
        exchange(region, ReduceOp.SUM, 1 / SIZE)
        want = torch.arange(1000) % 50 + step + (SIZE - 1) / 2
        assert torch.allclose(region.mine, want.float()) and region.mine.data_ptr() == address


def beside_the_scripts_own_group():
    """The engine's group is not the default one, which stays free for the script."""
    dist = torch.distributed
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [SIZE, SIZE]
    assert not dist.is_initialized()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if RANK == 0 else None
    port = hvd.broadcast_object(store.port if store else None, 0)
    store = store or dist.TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=SIZE)
    for round_ in range(5):
        theirs, ours = torch.full((3,), float(RANK)), torch.full((4,), float(round_))
        handle = hvd.allreduce_async_(ours, name="ours", op=hvd.Sum)
        dist.all_reduce(theirs)
        hvd.synchronize(handle)
        assert theirs.tolist() == [sum(range(SIZE))] * 3 and ours.tolist() == [round_ * SIZE] * 4
    dist.destroy_process_group()
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [SIZE, SIZE]


def context_of(*, deadline=60.0, **more):
    engine = session().engine
    peer_wait = PeerWait(
        rank=RANK, liveness_sources=[session().end_messages], warn_seconds=60.0, deadline_seconds=deadline
    )
    mpi_calls = MpiCalls(session().base, peer_wait, polling=True)
    return TransportContext(
        ranks=engine.ranks,
        peer_wait=peer_wait,
        deadline_seconds=deadline,
        mpi_calls=mpi_calls,
        host=engine.transport,
        **more,
    )


def through_the_host():
    """Where NCCL does not exist, tensors of a device go through the host; one word is said about it."""
    said = []
    devices = GpuTransport(context_of(), usual_device=lambda: CPU, say=said.append)
    exchanges(devices.execute)
    gather_and_others(devices.execute)
    region = devices.register(100, "float64", "cpu")

    def exchange(region, op, factor):
        signature = Signature(
            kind="gradients", dtype=region.dtype, shape=(region.count,), op=op, postscale=factor
        )
        devices.execute(
            Work(signature, signature_digest(signature), name=None, serial=0, array=region, out=region)
        )

    gradients(lambda count, dtype: devices.register(count, dtype, "cpu"), exchange)
    part = devices.cut(region, 64, 8)
    region.mine.fill_(RANK + 1.0)
    exchange(part, ReduceOp.SUM, 1.0)
    total = sum(range(1, SIZE + 1))
    assert region.mine[64:72].tolist() == [total] * 8 and region.mine[72:].eq(RANK + 1.0).all()
    assert devices.name == "staged"
    assert len(said) == (RANK == 0) and all("built without NCCL (rank 0)" in text for text in said), said
    devices.close(together=True)


def through_the_engine():
    """Works on devices in the engine: beside the host's, in any order, and in the order of the streams."""
    engine, gpu = session().engine, Gpu()
    usual = engine.queue.devices
    engine.queue.devices = GpuTransport(
        context_of(), streams=CudaStreams(gpu), kind="cpu", usual_device=lambda: CPU, say=lambda text: None
    )
    works = []
    for at in np.random.default_rng(RANK).permutation(6):
        array = torch.full((at + 1,), float(RANK + at))
        where = "cuda" if at % 2 else "cpu"
        signature = Signature(kind="allreduce", dtype="float32", shape=(int(at) + 1,), device=where)
        works.append(
            Work(signature, signature_digest(signature), name=f"t{at}", serial=0, array=array, out=array)
        )
        engine.submit(works[-1])
    for work in works:
        engine.wait(work)
        at = work.array.numel() - 1
        assert work.out.tolist() == [sum(range(SIZE)) + SIZE * at] * (at + 1), work
    # Each input is awaited on the lane before what is done there, and the script's stream waits for the lane.
    # Those that are ready in one round go together.
    awaits, steps = "lane1 waits for script", ["on lane1", "off lane1", "lane1 records"]
    lane = [step for step in gpu.steps if step in (awaits, *steps)]
    assert lane.count(awaits) == 3, gpu.steps
    times = lane.count("on lane1")
    assert [step for step in lane if step != awaits] == steps * times, gpu.steps
    assert all(lane[at - 1] == awaits for at, step in enumerate(lane) if step == "on lane1"), gpu.steps
    assert gpu.steps.count("script records") == 3
    assert gpu.steps.count("script waits for lane1") == 3
    where = "cuda" if RANK == 0 else "cpu"
    signature = Signature(kind="allreduce", dtype="float32", shape=(2,), device=where)
    array = torch.ones(2)
    try:
        engine.run(
            Work(signature, signature_digest(signature), name="mixed", serial=0, array=array, out=array)
        )
    except HorovodInternalError as error:
        assert "Mismatched devices" in str(error), error
    else:
        raise AssertionError("different devices under one name went through")
    assert hvd.allreduce(torch.ones(2), op=hvd.Sum).tolist() == [SIZE, SIZE]
    engine.queue.devices.close(together=True)
    engine.queue.devices = usual


def a_peer_dies():
    """A rank that ends in the middle of an operation is an error on the others, and soon."""
    context = context_of(deadline=20.0)
    process_group = open_process_group("gloo", context, CPU, GroupWatch())
    flat = torch.ones(1 << 20)
    process_group.allreduce([flat], ReduceOp.SUM)
    assert flat[0].item() == SIZE
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        process_group.allreduce([flat], ReduceOp.SUM)
    except HorovodInternalError as error:
        print(f"rank {RANK} got: {error}", flush=True)
    os._exit(7)


hvd.init()
RANK, SIZE = hvd.rank(), hvd.size()
torch.set_num_threads(1)
what = sys.argv[1]
if what == "ipv6":
    from ringleader.torch.c10d import connect

    real, connect.addresses = connect.addresses, lambda environ, there: ["::1"]
    try:
        gather_and_others(lambda work: session().engine.transport.execute(work, staged=0))
    finally:
        connect.addresses = real
elif what == "operations":
    assert session().engine.transport.name == "distributed"
    serials = iter(range(1_000_000))

    def do(work):
        work.serial = next(serials)
        session().engine.transport.execute(work, staged=False)

    exchanges(do)
    gather_and_others(do)
    gradients(session().engine.transport.register, session().engine.transport.exchange)
    beside_the_scripts_own_group()
elif what == "host":
    through_the_host()
    through_the_engine()
else:
    a_peer_dies()
hvd.shutdown()
print("rank done", flush=True)

"""The parts of `ringleader.torch` that rest on torch.distributed, on CPU tensors. argv: what to try."""

import os
import signal
import sys

import numpy as np
import torch
from fake_cuda import Gpu
from refusals import refused

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


def work_of(kind, array, *, out=None, name=None, **fields):
    """Return a work for a transport; what the contract checks of operations is not repeated here."""
    splits = fields.pop("splits", None)
    dtype = str(array.dtype).removeprefix("torch.")
    shape = tuple(array.shape[1:] if kind in ("allgather", "alltoall") else array.shape)
    signature = Signature(kind=kind, dtype=dtype, shape=shape, **fields)
    digest = signature_digest(signature)
    return Work(signature, digest, name=name, serial=10_000, array=array, out=out, splits=splits)


def exchanges(do):
    """One operation of each kind; `do` carries a work out."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        brought = [(torch.arange(10).view(5, 2) % 5 + rank).to(dtype) for rank in range(SIZE)]
        mine, total = brought[RANK], sum(brought[1:], brought[0])
        work = work_of("alltoall", mine, splits=(1,) * SIZE)
        do(work)
        assert torch.equal(work.out, torch.stack([one[RANK] for one in brought]))
        assert work.received == (1,) * SIZE
        work = work_of("reducescatter", mine, op=ReduceOp.SUM, prescale=2.0)
        do(work)
        assert torch.equal(work.out, torch.tensor_split(2 * total, SIZE)[RANK])
        work = work_of("allgather", mine[: RANK + 1])
        do(work)
        assert torch.equal(work.out, torch.cat([one[: rank + 1] for rank, one in enumerate(brought)]))
        work = work_of("broadcast", mine, out=torch.zeros_like(mine), root=SIZE - 1)
        do(work)
        assert torch.equal(work.out, brought[-1])
        assert torch.equal(mine, (torch.arange(10).view(5, 2) % 5 + RANK).to(dtype)), "input untouched"
        do(work_of("allreduce", mine, out=mine, op=ReduceOp.MAX))
        assert torch.equal(mine, brought[-1])


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
    region = devices.register(100, "float64", "cpu")

    def exchange(region, op, factor):
        fields = {"dtype": region.dtype, "shape": (region.count,), "op": op, "postscale": factor}
        signature = Signature(kind="gradients", **fields)
        digest = signature_digest(signature)
        devices.execute(Work(signature, digest, name=None, serial=0, array=region, out=region))

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
        works.append(work_of("allreduce", array, out=array, name=f"t{at}", device=where))
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
    where, array = "cuda" if RANK == 0 else "cpu", torch.ones(2)
    mixed = work_of("allreduce", array, out=array, name="mixed", device=where)
    refused(HorovodInternalError, lambda: engine.run(mixed), "Mismatched devices")
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
        exchanges(lambda work: session().engine.transport.execute(work, staged=0))
    finally:
        connect.addresses = real
elif what == "operations":
    assert session().engine.transport.name == "distributed"
    gradients(session().engine.transport.register, session().engine.transport.exchange)
    beside_the_scripts_own_group()
elif what == "host":
    through_the_host()
    through_the_engine()
else:
    a_peer_dies()
hvd.shutdown()
print("rank done", flush=True)

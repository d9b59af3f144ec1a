"""Mistakes in the code for GPUs, made on purpose: the fakes must notice each. argv: the mistake.

A rank that notices one prints what, and the others end with it.
"""

import os
import sys

import torch
from fake_cuda import Gpu
from fake_gpu import on_gpu, use_fake_gpu

import ringleader.torch as hvd
from ringleader.collectives.launch_order import LaunchOrder
from ringleader.collectives.operations import ReduceOp
from ringleader.torch.basics import session
from ringleader.torch.c10d import process_group
from ringleader.torch.cuda.cuda_streams import CudaStreams
from ringleader.torch.cuda.gpu_transport import GpuTransport


def reduce(name, index=0, value=1.0, dtype=torch.float32, **fields):
    array = GPU.place(torch.full((5,), value, dtype=dtype), index)
    ENGINE.run(on_gpu(array, name, op=ReduceOp.SUM, **fields))
    return array


def waiting_on_none():
    process_group.ProcessGroup._finish = lambda self, works: [work.wait() for work in works]
    reduce("one")


def no_record_stream():
    CudaStreams._keep = lambda self, work, stream: None
    reduce("one")


def wrong_device():
    GpuTransport._staged_from = lambda self, device: self._transport
    reduce("first", 0)
    reduce("second", 1)


def factor_on_bfloat16():
    real = process_group.inner_reduction

    def premultiplied(op, factor, dtype, **more):
        return real(op, factor, torch.float32 if dtype == torch.bfloat16 else dtype, **more)

    process_group.inner_reduction = premultiplied
    array = reduce("bf16", dtype=torch.bfloat16, postscale=0.25)
    assert array.tolist() == [SIZE / 4] * 5, f"the factor was read wrong: {array.tolist()}"


def wrong_order():
    """Without an order over process sets, each rank launches what it has come to first."""
    LaunchOrder.is_next = lambda self, launch: True
    pair = hvd.add_process_set([0, 1])
    group = session().registry.group(pair.process_set_id)
    use_fake_gpu(group, number=pair.process_set_id, gpu=GPU)
    engines = [ENGINE, group.engine]
    for turn in range(3):  # communicators are made
        for at, engine in enumerate(engines):
            engine.run(on_gpu(torch.ones(1000), f"first {turn}.{at}", op=ReduceOp.SUM))
    del GPU.steps[:]
    for turn in range(5):
        works = [
            on_gpu(torch.ones(100 * (at + 1) + turn), f"{at}.{turn}", op=ReduceOp.SUM) for at in range(2)
        ]
        for at in (0, 1) if RANK == 0 else (1, 0):
            DELAYED[at] = 0.0 if at == RANK else 0.2
            engines[at].submit(works[at])
        for at, engine in enumerate(engines):
            engine.wait(works[at])
    mine = [step for step in GPU.steps if step.startswith("nccl allreduce")]
    everybody = hvd.allgather_object(mine)
    assert everybody[0] == everybody[1], f"launched in different orders: {everybody}"


DELAYED = {}
hvd.init()
RANK, SIZE, ENGINE = hvd.rank(), hvd.size(), session().engine
torch.set_num_threads(1)
GPU, DEVICES = use_fake_gpu(gpu=Gpu(2))
if sys.argv[1] == "wrong_order":
    import time

    settle = LaunchOrder.settle

    def late(self, launch, messages):
        """Each rank is slow with the group whose launch the other one is quick with."""
        granted = settle(self, launch, messages)
        time.sleep(0.2 if (launch.group == 0) == (RANK == 0) else 0.0)
        return granted

    LaunchOrder.settle = late
try:
    globals()[sys.argv[1]]()
except Exception as error:
    print(f"noticed: {type(error).__name__}: {error}", flush=True)
else:
    print("not noticed", flush=True)
os._exit(7)

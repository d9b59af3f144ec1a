"""Ranks that use two GPUs each, or another than the first, on the fake GPU. argv: what to try."""

import sys

import torch
from fake_cuda import Gpu
from fake_gpu import on_gpu, use_fake_gpu

import ringleader.torch as hvd
from ringleader.engine.operations import ReduceOp
from ringleader.torch.basics import session
from ringleader.torch.cuda.gpu_transport import GpuTransport

TOTAL = {}


class EveryOther(GpuTransport):
    """Every other bucket of the gradients is on the second GPU."""

    buckets: dict = {}  # noqa: RUF012  (one of this kind in a process)

    def _mark(self, work):
        address = work.array.mine.data_ptr() if work.signature.kind == "gradients" else None
        if address is not None and address not in self.buckets:
            self.buckets[address] = GPU.place(work.array.mine, len(self.buckets) % 2)

    def submitted(self, work):
        self._mark(work)
        super().submitted(work)

    def written(self, work):
        self._mark(work)
        super().written(work)

    def launch(self, work):
        self._mark(work)
        super().launch(work)


def together():
    """Works of both GPUs that are ready in one round, and one by one."""
    for turn in range(3):
        arrays = [GPU.place(torch.full((5 + at,), RANK + 1.0 + at), at % 2) for at in range(4)]
        works = [on_gpu(array, f"both {turn}.{at}", op=ReduceOp.SUM) for at, array in enumerate(arrays)]
        ENGINE.submit_all(works)
        for work in works:
            ENGINE.wait(work)
        for at, array in enumerate(arrays):
            assert array.tolist() == [sum(range(1, SIZE + 1)) + SIZE * at] * (5 + at), (turn, at, array)
        for index in (0, 1):
            array = GPU.place(torch.full((7,), RANK + 1.0), index)
            ENGINE.run(on_gpu(array, f"one {turn} {index}", op=ReduceOp.SUM))
            assert array.tolist() == [sum(range(1, SIZE + 1))] * 7, (turn, index, array)
    # Each GPU has one stream for operations, whichever GPU's tensors travel.
    assert {step for step in GPU.steps if step.startswith("on ")} == {"on lane1", "on lane2"}
    assert GPU.contexts == {0, 1}


def optimizer():
    """The optimizer steps after the exchange of every GPU's buckets, not only of the last one's."""
    torch.manual_seed(0)
    layers = [torch.nn.Linear(64, 64) for _ in range(4)]
    net = torch.nn.Sequential(*layers)
    inner = torch.optim.SGD(net.parameters(), lr=0.1)
    opt = hvd.DistributedOptimizer(inner, net.named_parameters(), bucket_cap_mb=0.02)
    for turn in range(4):
        opt.zero_grad()
        torch.manual_seed(100 * turn + RANK)
        net(torch.randn(8, 64)).square().mean().backward()
        opt.step()
        flat = torch.cat([one.detach().view(-1) for one in net.parameters()])
        everybody = hvd.allgather(flat.view(1, -1))
        assert all(torch.equal(row, everybody[0]) for row in everybody), f"ranks differ after step {turn}"
    waits = [step for step in GPU.steps if step.startswith("script") and "waits" in step]
    assert any(step.startswith("script1") for step in waits), waits
    assert opt._exchanger._sequence is not None


def second_alone():
    """A rank on the second GPU makes no context on the first, and stays there when it has joined."""
    for turn in range(3):
        array = GPU.place(torch.full((5,), RANK + 1.0), 1)
        ENGINE.run(on_gpu(array, f"second {turn}", op=ReduceOp.SUM))
        assert array.tolist() == [sum(range(1, SIZE + 1))] * 5
    if RANK == 0:
        array = GPU.place(torch.full((5,), 3.0), 1)
        ENGINE.run(on_gpu(array, "others have joined", op=ReduceOp.SUM))
        assert array.tolist() == [3.0] * 5
    hvd.join()
    assert GPU.contexts == {1}, GPU.contexts


def joined_first():
    """A rank that has joined before it used a GPU takes part from its own, not from the first."""
    if RANK == 0:
        array = GPU.place(torch.full((5,), 3.0), 1)
        ENGINE.run(on_gpu(array, "others have joined", op=ReduceOp.SUM))
        assert array.tolist() == [3.0] * 5
    hvd.join()
    assert GPU.contexts == {1}, GPU.contexts


hvd.init()
RANK, SIZE, ENGINE = hvd.rank(), hvd.size(), session().engine
torch.set_num_threads(1)
what = sys.argv[1]
second = what in ("second", "joined")
GPU, DEVICES = use_fake_gpu(
    gpu=Gpu(2), kind=EveryOther if what == "optimizer" else GpuTransport, own=int(second)
)
{"together": together, "optimizer": optimizer, "second": second_alone, "joined": joined_first}[what]()
hvd.shutdown()
print("rank done", flush=True)

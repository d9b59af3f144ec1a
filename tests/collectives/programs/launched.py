"""Gradients on a GPU and what else is launched there, with a fake GPU and a fake NCCL. argv: what to try."""

import random
import sys
import time

import torch
from fake_gpu import on_gpu, use_fake_gpu
from refusals import refused

import ringleader.torch as hvd
from ringleader.engine.operations import ReduceOp
from ringleader.torch.basics import session
from ringleader.torch.cuda.gpu_transport import GpuTransport

BUCKET = 0.02  # MiB: a bucket for each of the large layers
SECONDS = 30.0


class Net(torch.nn.Module):
    """Layers in a row and two heads, of which one is used at a time."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
        self.heads = torch.nn.ModuleList(torch.nn.Linear(64, 3) for _ in range(2))
        self.words = torch.nn.Embedding(24, 1, sparse=True)
        self.reads = False

    def forward(self, x, head=0):
        if self.reads:
            x = x + self.words(torch.arange(len(x)) * (RANK + 1))
        return self.heads[head](torch.relu(self.layers(x)))


class Training:
    """A net under our optimizer, and what it must become: the same with averages made by hand."""

    def __init__(self, *, frozen_head=False, backend=""):
        torch.manual_seed(0)
        self.net, self.twin = Net(), Net()
        self.twin.load_state_dict(self.net.state_dict())
        self.net.heads[1].weight.requires_grad_(not frozen_head)
        inner = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.optimizer = hvd.DistributedOptimizer(inner, self.net.named_parameters(), bucket_cap_mb=BUCKET)
        self.run = torch.compile(self.net, backend=backend) if backend else self.net
        self.turn = 0

    @property
    def sequence(self):
        return self.optimizer._exchanger._sequence

    def backward(self, net, head):
        torch.manual_seed(1000 * self.turn + RANK)
        net(torch.randn(8, 64), head).square().mean().backward()

    def step(self, head=0, after_backward=lambda: None):
        """Make a step; return how often the ranks synchronized, and what happened on the GPU."""
        self.optimizer.zero_grad()
        before, at = ENGINE.meetings, len(GPU.steps)
        self.backward(self.run, head)
        GPU.steps.append("backward ended")
        after_backward()
        self.optimizer.synchronize()
        met, steps = ENGINE.meetings - before, GPU.steps[at:]
        with self.optimizer.skip_synchronize():
            self.optimizer.step()
        return met, steps

    def check(self, head=0):
        self.twin.zero_grad(set_to_none=True)
        self.backward(self.twin, head)
        for name, one in self.twin.named_parameters():
            grad = torch.zeros_like(one) if one.grad is None else one.grad.to_dense()
            mean = hvd.allreduce(grad, name=f"twin.{name}", op=hvd.Average)
            one.data.add_(mean, alpha=-0.1)
        self.turn += 1
        for one, two in zip(self.net.parameters(), self.twin.parameters(), strict=True):
            assert torch.allclose(one, two, atol=1e-6), (self.turn, (one - two).abs().max())


def launches(steps):
    return [step for step in steps if step.startswith("nccl") and not step.startswith("nccl opens")]


def await_permission(training):
    """Have backward wait in the middle until the ranks have agreed on the step."""

    def wait(_grad):
        sequence, end = training.sequence, time.monotonic() + SECONDS
        while sequence and sequence._asked and not sequence._asked.done and time.monotonic() < end:
            time.sleep(0.0005)

    training.net.layers[2].weight.register_hook(wait)


def straight_from_the_hooks():
    """One agreement a step; buckets in the plan's order while backward continues; no factor after them."""
    training = Training()
    await_permission(training)
    training.step()
    training.check()
    for _ in range(3):
        met, steps = training.step()
        training.check()
        buckets = training.optimizer._exchanger.buckets
        assert len(buckets) >= 4
        assert met == 1, met
        assert launches(steps) == [f"nccl allreduce AVG {b.values.numel()}" for b in buckets], steps
        assert "scale" not in steps
        ended = steps.index("backward ended")
        assert len(launches(steps[:ended])) >= 2, steps
        # Each follows its own gradients alone, and the script's stream waits once, for the last.
        each = ["script records", "lane1 waits for script", "on lane1", "nccl", "off lane1", "lane1 records"]
        found = ["nccl" if step.startswith("nccl") else step for step in steps]
        del found[ended]
        assert found == each * len(buckets) + ["script waits for lane1"], steps


def compiled():
    """Hooks fire under a compiled model too, and gradients are launched as ever."""
    training = Training(backend="aot_eager")
    for turn in range(3):
        met, steps = training.step()
        training.check()
        assert turn == 0 or (met == 1 and len(launches(steps)) == len(list(training.sequence))), (turn, met)


def other_parameters_every_step():
    """Ranks that use other parameters than the rest launch the same, after one agreement too."""
    training = Training()
    for turn in range(6):
        head = (RANK + turn // 2) % 2
        met, steps = training.step(head)
        training.check(head)
        everybody = hvd.allgather_object(launches(steps))
        assert all(one == everybody[0] for one in everybody), everybody
        assert turn == 0 or met == 1, (turn, met)


def something_to_agree_on():
    """A rank with something to tell makes the step one of agreements; the next goes straight."""
    training = Training(frozen_head=True)
    for turn in range(5):
        if turn == 2 and RANK == 0:
            training.net.heads[1].weight.requires_grad_(True)
        met, _steps = training.step()
        training.check()
        assert turn not in (1, 4) or met == 1, (turn, met)
    # What turns sparse after the agreement goes as it is, and the ranks agree on it in the next step.
    for turn in range(4):
        training.net.reads = training.twin.reads = RANK == SIZE - 1
        training.step()
        training.check()
        assert bool(training.optimizer._exchanger.sparse) == (turn > 0), turn
        assert training.net.words.weight.grad.is_sparse == (turn > 0)
    # A plan of its own on one rank is found before anything is launched.
    sequence = training.sequence
    if RANK == 0:
        words = {"name": sequence._permission.local_name, "note": "plan of another kind"}
        training.optimizer._exchanger._sequence = sequence.__class__(ENGINE, sequence._works, **words)
    _met, steps = training.step()
    training.check()
    assert launches(steps)
    training.optimizer._exchanger._sequence = sequence
    late = torch.nn.Parameter(torch.zeros(3))
    late.grad = torch.ones(3)

    def add_late():
        training.optimizer.add_param_group({"params": [late]})

    refused(RuntimeError, lambda: training.step(after_backward=add_late), "before backward")


def operations_in_the_middle():
    """Work on devices that comes during a sequence goes through the host; no rank holds another's device."""
    training = Training()
    training.step()
    training.check()
    await_permission(training)
    for turn in range(6):
        total = torch.full((5,), RANK + 1.0)
        work = on_gpu(total, f"beside {turn}")

        def run(_grad=None, work=work):
            ENGINE.run(work)

        if RANK == 0:
            # Blocks in the middle of backward, as a layer that normalizes over all ranks does.
            hook = training.net.layers[0].weight.register_hook(run)
            _met, steps = training.step()
            hook.remove()
        else:
            _met, steps = training.step(after_backward=run)
        assert total.tolist() == [sum(range(1, SIZE + 1))] * 5, total
        training.check()
        beside = [step for step in steps if step.endswith("SUM 5")]
        # After some such steps there are agreements instead.
        assert bool(beside) == (turn >= 3), (turn, steps)


def ranks_that_have_joined():
    """A step that only some ranks make is agreed on bucket by bucket."""
    training = Training()
    training.step()
    training.check()
    assert training.step()[0] == 1
    training.check()
    if RANK == 0:
        training.step()
        training.twin.zero_grad()
        training.backward(training.twin, 0)
        for one, two in zip(training.net.parameters(), training.twin.parameters(), strict=True):
            mine = torch.zeros_like(one) if two.grad is None else two.grad
            assert torch.allclose(one.grad, mine / SIZE, atol=1e-6)
    hvd.join()


def many_at_once():
    """Operations that are ready together are one call of NCCL; factors go into it where they can."""
    for op, postscale, call in (
        (ReduceOp.AVERAGE, 1.0, "AVG"),
        (ReduceOp.SUM, 1.0, "SUM"),
        (ReduceOp.SUM, 0.25, "PREMUL_SUM" if SIZE != 4 else "AVG"),
        (ReduceOp.MAX, 1.0, "MAX"),
    ):
        # Of floats NCCL's maximum may drop a NaN, so they do not go in one call.
        dtype = torch.int32 if op is ReduceOp.MAX else torch.float32
        arrays = [torch.full((count,), RANK + 1, dtype=dtype) for count in (3, 1, 1000)]
        works = [
            on_gpu(array, f"{call}.{op}.{at}", op=op, postscale=postscale) for at, array in enumerate(arrays)
        ]
        at = len(GPU.steps)
        ENGINE.submit_all(works)
        for work in works:
            ENGINE.wait(work)
        steps = GPU.steps[at:]
        (launch,) = launches(steps)
        kind, name, counts = launch.split()[1:]
        assert (kind, name) == ("allreduce_coalesced", call), launch
        assert sorted(counts.split("+")) == ["1", "1000", "3"], launch
        assert "scale" not in steps and steps.count("on lane1") == 1, steps
        total = sum(range(1, SIZE + 1))
        want = {"AVG": total / SIZE, "SUM": total, "PREMUL_SUM": total / 4, "MAX": SIZE}[call]
        assert all((array - want).abs().max() < 1e-5 for array in arrays), (call, arrays)
    whole = torch.full((4,), RANK + 1, dtype=torch.int32)
    at = len(GPU.steps)
    ENGINE.run(on_gpu(whole, "whole", op=ReduceOp.AVERAGE))
    assert whole.tolist() == [sum(range(1, SIZE + 1)) // SIZE] * 4 and "scale" in GPU.steps[at:]


class Mixed(GpuTransport):
    """Every other bucket counts as one of the CPU."""

    calls = 0

    def kind_of(self, place):
        self.calls += 1
        return "cuda" if self.calls % 2 else "cpu"


def mixed_devices():
    """Parameters on the CPU beside those on a GPU, in one optimizer."""
    training = Training()
    assert len(training.optimizer._exchanger.buckets) % 2 == 0
    for turn in range(3):
        _met, steps = training.step()
        training.check()
        assert turn == 0 or len(launches(steps)) == len(list(training.sequence)) >= 2, steps


def captured():
    """While a graph is captured nothing is exchanged; what its replays leave in the buckets is."""
    training = Training()
    training.step()
    training.check()
    training.optimizer.zero_grad()
    at = len(GPU.steps)
    GPU.captures = True
    training.backward(training.net, 0)
    for act in (training.optimizer.synchronize, lambda: ENGINE.run(on_gpu(torch.ones(2), "captured"))):
        refused(RuntimeError, act, "CUDA graph", "after the replay")
    GPU.captures = False
    assert not launches(GPU.steps[at:])
    training.optimizer.step()
    training.check()
    buckets = training.optimizer._exchanger.buckets
    assert len(launches(GPU.steps[at:])) == len(buckets)
    for bucket in buckets:
        bucket.values.fill_(RANK + 1.0)  # a replay
    training.optimizer.step()
    mean = sum(range(1, SIZE + 1)) / SIZE
    assert all(bool((p.grad == mean).all()) for p in training.net.layers.parameters())


def several_process_sets():
    """Operations of sets that share ranks are launched in one order, whatever the order of the script."""
    sets = [hvd.add_process_set(ranks) for ranks in ([0, 1], [1, 2], [0, 2])]
    engines = {0: ENGINE}
    for one in sets:
        if one.included():
            number = one.process_set_id
            group = session().registry.group(number)
            use_fake_gpu(group, number=number, gpu=GPU)
            engines[number] = group.engine
    chooser = random.Random(RANK)
    for turn in range(8):
        # The number of elements tells the operations apart.
        works = [
            (number, on_gpu(torch.ones(100 * number + turn + 1), f"{number}.{turn}")) for number in engines
        ]
        chooser.shuffle(works)
        for number, work in works:
            engines[number].submit(work)
        chooser.shuffle(works)
        for number, work in works:
            engines[number].wait(work)
            assert work.out[0].item() == engines[number].ranks.size
    mine = [step for step in launches(GPU.steps) if "SUM" in step]
    everybody = hvd.allgather_object(mine)
    for one in everybody:
        for other in everybody:
            both = set(one) & set(other)
            assert len(both) >= 8
            assert [at for at in one if at in both] == [at for at in other if at in both], everybody


def a_peer_that_dies():
    """A rank that is gone without a word is noticed by the others in their next agreement."""
    import os
    import signal

    training = Training()
    training.step()
    training.check()
    if RANK == SIZE - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        for _ in range(3):
            training.step()
    except hvd.HorovodInternalError as error:
        print(f"rank {RANK} got: {error}", flush=True)
    os._exit(7)


hvd.init()
RANK, SIZE, ENGINE = hvd.rank(), hvd.size(), session().engine
torch.set_num_threads(1)
what = sys.argv[1]
GPU, DEVICES = use_fake_gpu(kind=Mixed if what == "mixed" else GpuTransport)
{
    "straight": straight_from_the_hooks,
    "others": other_parameters_every_step,
    "agree": something_to_agree_on,
    "middle": operations_in_the_middle,
    "joined": ranks_that_have_joined,
    "many": many_at_once,
    "mixed": mixed_devices,
    "compiled": compiled,
    "sets": several_process_sets,
    "captured": captured,
    "dies": a_peer_that_dies,
}[what]()
hvd.shutdown()
print("rank done", flush=True)

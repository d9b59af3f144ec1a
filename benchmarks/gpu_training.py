"""Parts of `gpu.py` that train: each optimizer and precision, process sets, elastic, DDP, and timed steps.

What only exchanges is in gpu_operations.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import torch

import ringleader.torch as hvd
from gpu_operations import BACKEND, device, idle, same, same_everywhere
from gpu_process import PLACE, REHEARSAL, Report

STEPS = 6
Batch = tuple[torch.Tensor, torch.Tensor]


def network(here: torch.device, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    """Return the same small model on every rank."""
    torch.manual_seed(0)
    layers = (torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64), torch.nn.ReLU())
    return torch.nn.Sequential(*layers, torch.nn.Linear(64, 4)).to(here, dtype)


def batch(step: int, rank: int, here: torch.device, dtype: torch.dtype = torch.float32) -> Batch:
    """Return what a rank trains on in a step: any rank can make that of any other."""
    made = torch.Generator().manual_seed(1000 * step + rank)
    inputs, targets = torch.randn(16, 32, generator=made), torch.randn(16, 4, generator=made)
    return inputs.to(here, dtype), targets.to(here, dtype)


def loss_of(model: Any, data: Batch) -> torch.Tensor:
    """Return the mean squared error, in float32."""
    return torch.nn.functional.mse_loss(model(data[0]).float(), data[1].float())


def sgd(model: torch.nn.Module, rate: float = 0.1) -> torch.optim.Optimizer:
    """Return the optimizer of all these trainings."""
    return torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)


def reference(here: torch.device, ranks: range, passes: int = 1) -> torch.nn.Module:
    """Return a model that one process has trained on the batches of all ranks, without any exchange."""
    model = network(here)
    optimizer = sgd(model)
    for step in range(STEPS):
        optimizer.zero_grad()
        for rank in ranks:
            for number in range(passes):
                (loss_of(model, batch(step * passes + number, rank, here)) / len(ranks)).backward()
        optimizer.step()
    return model


def compared(model: torch.nn.Module, other: torch.nn.Module, what: str, tolerance: float = 1e-4) -> None:
    """Raise AssertionError where parameters differ by more than rounding."""
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        off = (one.detach().float() - two.detach().float()).abs().max().item()
        limit = tolerance * max(1.0, two.detach().float().abs().max().item())
        assert off <= limit, f"{what}: {name} is off by {off:.2e} (at most {limit:.2e})"


def optimizer(report: Report) -> str:
    """Train on all ranks as one process on all batches; also with two passes a step, and clipped."""
    hvd.init()
    here, rank, size = device(), hvd.rank(), hvd.size()
    for passes in (1, 2):
        report.stage(f"{passes} backward passes in a step")
        model = network(here)
        ours = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), backward_passes_per_step=passes)
        hvd.broadcast_parameters(model.state_dict(), 0)
        hvd.broadcast_optimizer_state(ours, 0)
        for step in range(STEPS):
            ours.zero_grad()
            for number in range(passes):
                loss_of(model, batch(step * passes + number, rank, here)).backward()
            if step % 2:
                ours.synchronize()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1e6)
                with ours.skip_synchronize():
                    ours.step()
            else:
                ours.step()
        idle()
        same_everywhere(model, f"{passes} passes")
        compared(model, reference(here, range(size), passes), f"{passes} passes against one process")
    hvd.shutdown()
    return ""


def sharding(report: Report) -> str:
    """Train with the optimizer's state on every rank, and with a part of it on each: `cuda_memory.py`."""
    import cuda_memory

    hvd.init()
    here, size = device(), hvd.size()
    report.stage("the state on every rank")
    whole, whole_bytes, whole_most = cuda_memory.train(here, shard=False)
    report.stage("shard=True")
    parts, part_bytes, part_most = cuda_memory.train(here, shard=True)
    for one, two in zip(whole, parts, strict=True):
        assert torch.allclose(one, two, rtol=1e-4, atol=1e-5), "the parameters differ with shard=True"
    report.details.update(state_bytes=[whole_bytes, part_bytes], most_memory=[whole_most, part_most])
    reached = part_bytes / whole_bytes
    assert reached <= 1.1 / size, f"a rank keeps {reached:.3f} of the state, and its part is {1 / size:.3f}"
    hvd.shutdown()
    return f"a rank of {size} keeps {reached:.3f} of the state"


def half(report: Report) -> str:
    """Reduce and train in bfloat16 and float16, with factors before and after the sum."""
    hvd.init()
    here, rank, size = device(), hvd.rank(), hvd.size()
    total = size * (size + 1) / 2
    wrong = []
    for dtype in (torch.bfloat16, torch.float16):
        for factors in ({"prescale_factor": 0.5}, {"prescale_factor": 0.25}, {"postscale_factor": 2.0}, {}):
            report.stage(f"{dtype} {factors}")
            result = hvd.allreduce(torch.full((8,), rank + 1.0, device=here).to(dtype), op=hvd.Sum, **factors)
            idle()
            want = total * float(next(iter(factors.values()), 1.0))
            if result.tolist() != [want] * 8:
                wrong.append(f"allreduce {dtype} {factors}: {result[0].item()}, not {want}")
        for predivide in (1.0, 2.0, 3.0):
            report.stage(f"training in {dtype}, predivide {predivide}")
            model = network(here, dtype)
            ours = hvd.DistributedOptimizer(
                sgd(model, 0.0), model.named_parameters(), gradient_predivide_factor=predivide
            )
            for step in range(2):
                ours.zero_grad()
                loss_of(model, batch(step, rank, here, dtype)).backward()
                ours.step()
                idle()
                alone = network(here, dtype)
                sums = [torch.zeros(one.shape, device=here) for one in alone.parameters()]
                for number in range(size):
                    alone.zero_grad()
                    loss_of(alone, batch(step, number, here, dtype)).backward()
                    for into, one in zip(sums, alone.parameters(), strict=True):
                        assert one.grad is not None
                        into += one.grad.float() / size
                for (name, one), want_gradient in zip(model.named_parameters(), sums, strict=True):
                    assert one.grad is not None
                    off = (one.grad.float() - want_gradient).abs().max().item()
                    if off > 0.02 * want_gradient.abs().max().item():
                        wrong.append(
                            f"{dtype}, predivide {predivide}, step {step}: {name} is off by {off:.2e}"
                        )
    assert not wrong, f"{len(wrong)} wrong: " + "; ".join(wrong[:3])
    hvd.shutdown()
    return ""


def graphs(report: Report) -> str:
    """Capture forward and backward in a CUDA graph, and exchange after each replay."""
    hvd.init()
    here, rank, size = device(), hvd.rank(), hvd.size()
    model = network(here)
    ours = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    inputs, targets = (one.clone() for one in batch(0, rank, here))

    def train(step: int, forward_and_backward: Callable[[], None]) -> None:
        for into, one in zip((inputs, targets), batch(step, rank, here), strict=True):
            into.copy_(one)
        forward_and_backward()
        ours.step()

    def plainly() -> None:
        ours.zero_grad()
        loss_of(model, (inputs, targets)).backward()

    def captured() -> Callable[[], None]:
        ours.zero_grad()
        if REHEARSAL:
            return plainly
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss_of(model, (inputs, targets)).backward()
        return graph.replay

    report.stage("steps before the capture")
    idle()  # the model is there before another stream reads it
    side = None if REHEARSAL else torch.cuda.Stream()
    with contextlib.nullcontext() if side is None else torch.cuda.stream(side):
        for step in range(3):
            train(step, plainly)
    idle()
    report.stage("capture")
    replay = captured()
    for step in range(3, STEPS):
        report.stage(f"replay {step}")
        train(step, replay)
        idle()
    same_everywhere(model, "after replays")
    # zero_grad before the capture makes backward write the gradients: a replay adds to no older ones.
    compared(model, reference(here, range(size)), "replays against one process")
    if not REHEARSAL:
        report.stage("an operation inside of a capture")
        refused = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(refused):
                hvd.allreduce(torch.ones(2, device=here))
        except RuntimeError as error:
            report.details["an operation inside of a capture"] = str(error)
        else:
            raise AssertionError("an allreduce was captured")
    hvd.shutdown()
    return "a rehearsal captures nothing" if REHEARSAL else ""


def compiled(report: Report) -> str:
    """Train a compiled model; where this machine cannot compile kernels, with the graph alone compiled."""
    hvd.init()
    here, rank, size = device(), hvd.rank(), hvd.size()
    backend = "aot_eager" if REHEARSAL else "inductor"
    report.stage(f"torch.compile({backend}) without Ringleader")
    try:
        loss_of(torch.compile(network(here), backend=backend), batch(0, rank, here)).backward()
        idle()
        ready = 1.0
    except Exception as error:
        report.details["inductor"] = str(error)[-600:]
        ready = 0.0
    if hvd.allreduce(torch.tensor([ready]), op=hvd.Min, name="ready").item() == 0.0:
        backend = "aot_eager"
    torch.compiler.reset()
    report.stage(f"training, {backend}")
    model = network(here)
    run = torch.compile(model, backend=backend)
    ours = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    for step in range(STEPS):
        ours.zero_grad()
        loss_of(run, batch(step, rank, here)).backward()
        ours.step()
    idle()
    same_everywhere(model, "compiled")
    compared(model, reference(here, range(size)), "compiled against one process")
    hvd.shutdown()
    return f"backend {backend}"


def steps(report: Report) -> str:
    """Time steps against plain PyTorch in alternating rounds; `cuda_step.py` says how."""
    import cuda_step

    hvd.init()
    here = device()
    plan = {"mlp": (2, 1)} if REHEARSAL else {"mlp": (30, 20), "gpt": (20, 10), "resnet50": (10, 4)}
    said, over = [], []
    for model, (rounds, count) in plan.items():
        report.stage(model)
        try:
            result = cuda_step.compare(model, here, Namespace(rounds=rounds, steps=count, compile=False))
        except SystemExit as wrong:  # the other models are worth their time all the same
            over.append(f"{model}: {wrong}")
            continue
        low, middle, high = result["quartiles"]
        report.details[model] = result
        said.append(f"{model} {middle:.4f} ({low:.4f}-{high:.4f})")
        if middle > cuda_step.REQUIRED and not REHEARSAL:
            over.append(f"{model} is over {cuda_step.REQUIRED}")
    hvd.shutdown()
    words = "ours over plain, median (quartiles): " + ", ".join(said)
    assert not over, f"{'; '.join(over)}. {words}"
    return words


def sets(report: Report) -> str:
    """Use process sets that share ranks, begun in other orders on each rank; one is added and removed."""
    report.stage("hvd.init")
    halves = [[0, 1], [2, 3], [0, 2]]
    made = [hvd.ProcessSet(one) for one in halves]
    os.environ["HOROVOD_DYNAMIC_PROCESS_SETS"] = "1"
    hvd.init(process_sets=made)
    here, rank = device(), hvd.rank()
    mine = [one for one in made if one.included()]
    for turn in range(5):
        report.stage(f"round {turn}")
        handles = [
            (
                one,
                hvd.allreduce_async(
                    torch.full((64,), rank + turn, device=here), name="x", op=hvd.Sum, process_set=one
                ),
            )
            for one in (mine if (rank + turn) % 2 else mine[::-1])
        ]
        everybody = hvd.allreduce(torch.full((64,), float(rank), device=here), name="all", op=hvd.Sum)
        same(everybody, [float(sum(range(hvd.size())))] * 64, "all ranks")
        for one, handle in handles:
            ranks = halves[made.index(one)]
            same(hvd.synchronize(handle), [sum(ranks) + turn * len(ranks)] * 64, f"process set {ranks}")
    report.stage("training in a process set")
    halfway = mine[0]
    model = network(here)
    ours = hvd.DistributedOptimizer(sgd(model), model.named_parameters(), process_set=halfway)
    for step in range(STEPS):
        ours.zero_grad()
        loss_of(model, batch(step, rank % 2, here)).backward()
        ours.step()
    idle()
    compared(model, reference(here, range(2)), "training in a process set")
    report.stage("a set that is added and removed")
    added = hvd.add_process_set([1, 2, 3])
    if added.included():
        same(hvd.allreduce(torch.ones(4, device=here), op=hvd.Sum, process_set=added), [3.0] * 4, "added set")
    hvd.remove_process_set(added)
    hvd.barrier()
    hvd.shutdown()
    return ""


def elastic(report: Report) -> str:
    """Kill a rank in a training: the other aborts its communicator, and makes the next with a replacement."""
    report.stage("hvd.init")
    hvd.init()
    here = device()
    model = network(here)
    ours = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    state = hvd.elastic.TorchState(model, ours, step=0)
    killed = PLACE / "killed"
    last = 12

    def die() -> None:
        if hvd.rank() == 1 and state.step == 4 and not killed.exists():
            killed.touch()
            report.write("ended on purpose", "")
            os.kill(os.getpid(), signal.SIGKILL)

    @hvd.elastic.run
    def train(state: Any) -> None:
        report.details.setdefault("sizes", []).append(hvd.size())
        while state.step < last:
            report.stage(f"step {state.step} with {hvd.size()} ranks")
            die()
            ours.zero_grad()
            loss_of(model, batch(state.step, hvd.rank(), here)).backward()
            ours.step()
            total = hvd.allreduce(torch.full((256,), hvd.rank() + 1.0, device=here), name="total", op=hvd.Sum)
            state.step += 1
            # What an aborted communicator leaves on the device means nothing: the commit is the error then.
            state.commit()
            same(total, [hvd.size() * (hvd.size() + 1) / 2] * 256, f"the sum of step {state.step}")

    train(state)
    report.stage("the end")
    idle()
    assert killed.exists(), "no rank was killed"
    same_everywhere(model, "after a rank was replaced")
    hvd.shutdown()
    return f"ranks in each generation here: {report.details['sizes']}"


def ddp(report: Report) -> str:
    """Train with DistributedDataParallel beside ours, in turns, in the same processes."""
    import torch.distributed as dist

    hvd.init()
    here, rank, size = device(), hvd.rank(), hvd.size()
    report.stage(f"init_process_group({BACKEND})")
    dist.init_process_group(BACKEND, rank=rank, world_size=size)
    theirs = network(here)
    parallel = torch.nn.parallel.DistributedDataParallel(
        theirs, device_ids=None if REHEARSAL else [here.index]
    )
    model, plain = network(here), sgd(theirs)
    ours = hvd.DistributedOptimizer(sgd(model), model.named_parameters())
    for step in range(STEPS):
        report.stage(f"step {step}")
        data = batch(step, rank, here)
        plain.zero_grad()
        loss_of(parallel, data).backward()
        plain.step()
        idle()  # two communicators on one device: theirs has ended before ours begins
        ours.zero_grad()
        loss_of(model, data).backward()
        ours.step()
        idle()
    compared(model, theirs, "ours against DDP")
    same_everywhere(model, "beside DDP")
    dist.destroy_process_group()
    hvd.shutdown()
    return ""

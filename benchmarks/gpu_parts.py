"""What one process of a part of `gpu.py` does, a function for each part. gpu.py starts and judges them.

    python benchmarks/gpu_parts.py PART

`gpu.py` names in the environment where the result goes (GPU_PART_DIR), the device (GPU_PART_DEVICE) and
the deadline in seconds (GPU_PART_SECONDS). A process writes ``result-PID.json`` at each stage, so that the
last one is known wherever it is stopped. With the device ``cpu`` the same code rehearses, over Gloo.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "src"), str(HERE)]
# NCCL refuses two ranks on one GPU of a host. With a host id for each rank it takes them for ranks of several
# hosts. The first communicator reads the variable, once.
os.environ["NCCL_HOSTID"] = f"rank-in-process-{os.getpid()}"

import torch  # noqa: E402

import ringleader.torch as hvd  # noqa: E402
from gpu_facts import differences_from_nvidia_smi, nvidia_smi  # noqa: E402

REHEARSAL = os.environ.get("GPU_PART_DEVICE", "cuda") == "cpu"
PLACE = Path(os.environ.get("GPU_PART_DIR", "."))
SECONDS = float(os.environ.get("GPU_PART_SECONDS", "60"))
BACKEND = "gloo" if REHEARSAL else "nccl"
STEPS = 6
Batch = tuple[torch.Tensor, torch.Tensor]


class NotRunError(Exception):
    """What this machine lacks for the part."""


class Report:
    """The result of this process, rewritten at each stage."""

    def __init__(self) -> None:
        """Begin."""
        self.details: dict[str, Any] = {}
        self.at = "start"

    def stage(self, name: str) -> None:
        """Say what comes next."""
        self.at = name
        self.write("unfinished", "")

    def write(self, result: str, note: str, trace: list[str] | None = None) -> None:
        """Put the result where `gpu.py` reads it, all of it or nothing."""
        rank = os.environ.get("RANK", "0")
        value = {"result": result, "rank": int(rank), "stage": self.at, "note": note, "details": self.details}
        path = PLACE / f"result-{os.getpid()}.json"
        path.with_suffix(".new").write_text(json.dumps({**value, "trace": trace or []}))
        path.with_suffix(".new").replace(path)


def device() -> torch.device:
    """Return this rank's device, made the current one: a rank that sees one GPU has the first one."""
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

    from ringleader.collectives.framework_adapter import TransportContext
    from ringleader.collectives.mpi_calls import MpiCalls
    from ringleader.collectives.peer_wait import PeerWait
    from ringleader.torch.basics import session
    from ringleader.torch.c10d.distributed_transport import DistributedTransport
    from ringleader.torch.kernels import TorchKernels

    engine = session().engine
    peer_wait = PeerWait(rank=0, liveness_sources=[], warn_seconds=60.0, deadline_seconds=30.0)
    mpi_calls = MpiCalls(MPI, MPI.COMM_SELF, peer_wait, polling=True)
    context = TransportContext(
        ranks=engine.ranks,
        peer_wait=peer_wait,
        deadline_seconds=30.0,
        mpi_calls=mpi_calls,
        host=engine.transport,
    )
    kernels = TorchKernels(here)
    transport = DistributedTransport(BACKEND, context, mpi_calls, kernels, adasum=engine.transport)
    transport.open()
    yield transport
    transport.close(together=True)


def work_of(kind: str, array: torch.Tensor, **more: Any) -> Any:
    """Return what the engine hands to a transport."""
    from ringleader.collectives.operations import Signature, Work, signature_digest

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
        report.stage("the same bits from a factor of a power of two")
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


def steps(report: Report) -> str:
    """Time steps against plain PyTorch in alternating rounds; `cuda_step.py` says how."""
    import cuda_step

    hvd.init()
    here = device()
    plan = {"mlp": (2, 1)} if REHEARSAL else {"mlp": (30, 20), "gpt": (20, 10), "resnet50": (10, 4)}
    said, over = [], []
    for model, (rounds, count) in plan.items():
        report.stage(model)
        result = cuda_step.compare(model, here, Namespace(rounds=rounds, steps=count, compile=False))
        low, middle, high = result["quartiles"]
        report.details[model] = result
        said.append(f"{model} {middle:.4f} ({low:.4f}-{high:.4f})")
        over += [model] if middle > cuda_step.REQUIRED else []
    hvd.shutdown()
    words = "ours over plain, median (quartiles): " + ", ".join(said)
    assert not over or REHEARSAL, f"over {cuda_step.REQUIRED}: {words}"
    return words


def doctor(report: Report) -> str:
    """Compare what doctor reads from NVML and sysfs with what nvidia-smi prints."""
    report.stage("ringleader doctor --facts")
    command = [sys.executable, "-m", "ringleader", "doctor", "--facts"]
    environ = {**os.environ, "PYTHONPATH": f"{HERE.parent / 'src'}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        command,
        env=environ,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-300:]}"
    facts = json.loads(done.stdout)
    report.details.update(gpus=facts["gpus"], nvidia=facts["nvidia"])
    report.stage("nvidia-smi")
    printed = nvidia_smi(min(SECONDS, 20.0))
    if not printed:
        if REHEARSAL:
            return "there is no nvidia-smi here; doctor's facts were read"
        raise NotRunError("there is no nvidia-smi to compare with")
    report.details["nvidia-smi"] = printed
    found = differences_from_nvidia_smi(facts, printed)
    assert not found, "; ".join(found)
    return (
        f"{len(facts['gpus'])} GPU: name, UUID, PCI address, memory, driver, ECC, NVLinks and topology agree"
    )


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


def contract_of_ranks(report: Report) -> str:
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
    torch._dynamo.reset()
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
            same(total, [hvd.size() * (hvd.size() + 1) / 2] * 256, f"the sum of step {state.step}")
            state.step += 1
            state.commit()

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


def jax_arrays(report: Report) -> str:
    """Reduce JAX's arrays on the GPU, eagerly and inside of jit; they go through the host."""
    report.stage("import jax")
    try:
        import jax
        import jax.numpy as jnp
    except ImportError as error:
        raise NotRunError(f"JAX cannot be imported: {error}") from None

    import ringleader.jax as hvd_jax

    hvd_jax.init()
    report.stage("jax.devices")
    here = jax.devices()[0]
    if here.platform not in ("gpu", "cuda") and not REHEARSAL:
        raise NotRunError(f"JAX {jax.__version__} has no GPU here: its device is {here}")
    rank, size = hvd_jax.rank(), hvd_jax.size()
    mine = jax.device_put(jnp.full((1024,), rank + 1.0), here)

    def check(result: Any, want: float, what: str) -> None:
        assert result.devices() == {here}, f"{what}: on {result.devices()}"
        assert bool((result == want).all()), f"{what}: {result[:3]}, not {want}"

    total = size * (size + 1) / 2
    report.stage("allreduce")
    check(hvd_jax.allreduce(mine, op=hvd_jax.Sum), total, "allreduce")
    report.stage("allreduce inside of jit")
    twice = jax.jit(lambda one: 2 * hvd_jax.allreduce(one, op=hvd_jax.Sum))
    for _ in range(3):
        check(twice(mine), 2 * total, "allreduce inside of jit")
    report.stage("allgather and broadcast")
    assert hvd_jax.allgather(mine).shape == (1024 * size,)
    check(hvd_jax.broadcast(mine, size - 1), float(size), "broadcast")
    report.stage("a gradient through it")
    gradient = jax.grad(lambda one: hvd_jax.allreduce(one, op=hvd_jax.Sum).sum())(mine)
    check(gradient, float(size), "the gradient of allreduce")
    hvd_jax.shutdown()
    return f"JAX {jax.__version__} on {here.platform}"


PARTS: dict[str, Callable[[Report], str]] = {
    "first": first,
    "contract": contract,
    "raw": raw,
    "nccl-2": contract_of_ranks,
    "nccl-4": contract_of_ranks,
    "optimizer": optimizer,
    "sharding": sharding,
    "half": half,
    "graphs": graphs,
    "compile": compiled,
    "sets": sets,
    "elastic": elastic,
    "ddp": ddp,
    "steps": steps,
    "doctor": doctor,
    "jax": jax_arrays,
}


def main() -> None:
    """Run one part; the result is in its file, and the exit code is 1 where it failed."""
    # A rank that stands still says where, and ends by itself before the part is stopped from outside.
    faulthandler.dump_traceback_later(max(5.0, SECONDS - 6.0), exit=True)
    torch.set_num_threads(max(1, min(4, torch.get_num_threads())))
    report = Report()
    try:
        note = PARTS[sys.argv[1]](report)
    except NotRunError as error:
        report.write("not run", str(error))
        return
    except BaseException as error:
        lines = "".join(traceback.format_exception(error)).splitlines()
        said = (str(error).strip().splitlines() or [""])[0]
        report.write("failed", f"{type(error).__name__}: {said}"[:500], lines[-25:])
        traceback.print_exc()
        sys.exit(1)
    report.at = "the end"
    report.write("passed", note)


if __name__ == "__main__":
    main()

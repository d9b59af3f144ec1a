"""Time of a training step on two ranks: against barrier-only ranks, independent ranks, and DDP on Gloo.

    python benchmarks/step.py [--rounds 20] [--ranks 2]
    python benchmarks/step.py --recording [--rounds 5] [--seconds 20]

Barrier-only ranks exchange nothing, and meet at one barrier of the engine in each step: what being in step
costs on a machine is not the exchange's. Independent ranks do not even meet. All arms run in the same
processes in turns, so that a busy machine is busy for all of them. Before, the weights after three steps of
ours and of DDP's are compared. Printed are medians per step and the median of the ratios within rounds.

``--recording``: CPU time of the launcher, the agents and two ranks of 100 steps per second that compute
nothing, in pairs of jobs with and without a record (`ringleader run --report`), as a part of one core.
"""

from __future__ import annotations

import os
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

import ringleader.torch as hvd
from _pairs import context, in_turns, keep, part, ratio, ready, verdict, words
from ringleader.confidence_interval import interval_of_mean
from ringleader.launch.job_record import JobRecord
from ringleader.launch.launch_job import launch
from ringleader.launch.rank_answer import JobListener
from ringleader.plan.job import Job
from rows import required


def mnist_net() -> nn.Module:
    """Return the convolutional net of Horovod's MNIST example."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(10, 20, 5), nn.MaxPool2d(2), nn.ReLU(),
        nn.Flatten(), nn.Linear(320, 50), nn.ReLU(), nn.Linear(50, 10),
    )  # fmt: skip


def mlp() -> nn.Module:
    """Return seven layers, 1024 wide: 25 MB of gradients."""
    layers: list[nn.Module] = []
    for _ in range(6):
        layers += [nn.Linear(1024, 1024), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(1024, 10))


CASES = {
    "step, MNIST CNN": (mnist_net, (100, 1, 28, 28), 20, 1.15),
    "step, MLP 25 MB": (mlp, (64, 1024), 5, 1.5),
}
"""Row → net, shape of its input, steps of a block, and how many times faster than DDP."""


def stepper(
    model: nn.Module, shape: tuple[int, ...], wrap: Callable, *, ddp: bool = False, meet: bool = False
) -> Callable[[], None]:
    """Return one training step."""
    optimizer = wrap(torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.5), model)
    forward = nn.parallel.DistributedDataParallel(model) if ddp else model
    batch, target = torch.randn(shape), torch.randint(0, 10, (shape[0],))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(forward(batch), target).backward()
        if meet:
            hvd.barrier()
        optimizer.step()

    return step


def arms_for(build: Callable[[], nn.Module], shape: tuple[int, ...]) -> dict[str, Callable[[], None]]:
    """Return the arms of one net; ours and DDP's have made three checked steps."""
    nets: dict[str, nn.Module] = {}
    arms: dict[str, Callable[[], None]] = {}
    for name in ("ringleader", "in step", "uncoupled", "DDP on Gloo"):
        torch.manual_seed(0)  # the same weights everywhere
        net = nets[name] = build()
        torch.manual_seed(1 + hvd.rank())  # and on each rank its own batch
        wrap = hvd.DistributedOptimizer if name == "ringleader" else lambda optimizer, _named: optimizer
        arms[name] = stepper(
            net,
            shape,
            lambda optimizer, model, wrap=wrap: wrap(optimizer, model.named_parameters()),
            ddp=name == "DDP on Gloo",
            meet=name == "in step",
        )
    for name in ("ringleader", "DDP on Gloo"):
        for _ in range(3):
            arms[name]()
    pairs = zip(nets["ringleader"].parameters(), nets["DDP on Gloo"].parameters(), strict=True)
    for mine, other in pairs:
        assert torch.allclose(mine, other, atol=1e-6, rtol=1e-4), "the weights differ from DDP's"
    return arms


PACED = """
import sys, time, ringleader
until = time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    time.sleep(0.01)
    ringleader.progress(samples=1)
"""


def cpu_seconds(seconds: float, record: JobRecord | None) -> float:
    """Return the CPU time of one job, of all its processes."""

    def spent() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(one.ru_utime + one.ru_stime for one in both)

    before = spent()
    job = Job(command=(sys.executable, "-c", PACED, str(seconds)), np=2, oversubscribe=True)
    if record is not None:
        job = replace(job, report=str(record.path.parent), sample_seconds=1.0)
    outcome = launch(job, environ=dict(os.environ), listener=JobListener(), record=record)
    assert outcome.exit_code == 0, outcome.reason
    return spent() - before


def recording(rounds: int, seconds: float) -> None:
    """Measure what a record costs, and print it."""
    costs = []
    for turn in range(rounds):
        found = {}
        for is_recorded in (False, True) if turn % 2 else (True, False):
            with tempfile.TemporaryDirectory() as directory:
                record = JobRecord(directory, warn=print) if is_recorded else None
                found[is_recorded] = cpu_seconds(seconds, record)
                if record is not None:
                    record.close()
        costs.append((found[True] - found[False]) / seconds)
    interval = interval_of_mean(costs)
    between = f", 95% interval {interval.low:.4f} to {interval.high:.4f}" if interval else ""
    print(f"recording: mean {statistics.fmean(costs):.4f} of a core{between}; {costs}")
    print(verdict("recording, part of a core", statistics.median(costs), 0.005, at_most=True))
    keep("recording", {"cores": costs, "seconds": seconds})


def main() -> None:
    """Run and print."""
    if "--recording" in sys.argv:
        parser = words(__doc__, rounds=5)
        parser.add_argument("--recording", action="store_true")
        parser.add_argument("--seconds", type=float, default=20.0)
        args = parser.parse_args()
        return recording(args.rounds, args.seconds)
    args = ready(__doc__, __file__, rounds=20)
    if args is None:
        return
    result = {}
    for name, (build, shape, block, least) in CASES.items():
        times = in_turns(arms_for(build, shape), meet=hvd.barrier, rounds=args.rounds, block=block)
        medians = {arm: statistics.median(values) for arm, values in times.items()}
        ratios = {arm: ratio(times["ringleader"], times[arm]) for arm in times if arm != "ringleader"}
        ratios["in step over uncoupled"] = ratio(times["in step"], times["uncoupled"])
        result[name] = {"seconds": medians, "ours over": ratios, "rounds": args.rounds, "block": block}
        if hvd.rank() == 0:
            print(
                f"{name}, {hvd.size()} ranks: "
                + ", ".join(f"{arm} {t * 1e3:.2f} ms" for arm, t in medians.items())
            )
            print(f"    in step over uncoupled: {ratios['in step over uncoupled']:.3f}")
            print(f"    ours over uncoupled: {ratios['uncoupled']:.3f}")
            print(required(name, ratios["in step"]))
            print(verdict(f"{name}, DDP over ours", 1 / ratios["DDP on Gloo"], least))
    if hvd.rank() == 0:
        print(f"    {context()}")
        keep("step", result)
    part()


if __name__ == "__main__":
    main()

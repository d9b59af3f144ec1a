"""Runs to be rendered, with numbers that can be checked by hand."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from ringleader.cli.main import main
from ringleader.measurements.collective import CollectiveResult, CollectiveRun, CollectiveSeries, Timing
from ringleader.measurements.point_to_point import Place, PointToPointRun, Transfer
from ringleader.measurements.training import Arm, LayerTime, StepSplit, TrainingRun
from ringleader.metrics import Sample
from ringleader.scaling import Context, HostContext, Point, Run


def samples(
    *rates: float, ranks: int = 1, step: float | None = None, **parts: float | None
) -> tuple[Sample, ...]:
    """``parts``: seconds of ``exchange`` and ``waiting``."""
    one = Sample(
        rate=1.0,
        step_seconds=step,
        exchange_seconds=parts.get("exchange"),
        waiting_seconds=parts.get("waiting"),
        source="progress",
        heard=ranks,
        seconds=4.0,
        tail=("[0] step 50, loss 0.2",),
    )
    slowest = [rate / ranks * 0.99 if ranks > 1 else None for rate in rates]
    return tuple(replace(one, rate=r, slowest_rate=s) for r, s in zip(rates, slowest, strict=True))


def point(hosts: int, slots: int, rates: tuple[float, ...], alone: tuple[float, ...], *parts: float) -> Point:
    """``parts``: seconds of a step, of its exchange and its waiting, and of an uncoupled step."""
    ranks = hosts * slots
    step, exchange, waiting, free = parts
    coupled = samples(*rates, ranks=ranks, step=step, exchange=exchange, waiting=waiting)
    return Point(hosts=hosts, slots=slots, samples=coupled, uncoupled=samples(*alone, ranks=ranks, step=free))


@pytest.fixture
def run() -> Run:
    """Four sizes in a lab, three repetitions, an engine that tells its exchange."""
    about = {"lab": True, "torch": "2.13.0", "transport": "shared window, TCP", "threads": 1}
    command = ("python", "examples/mnist.py", "--epochs", "2")
    around = context("h1", "h2", "h3", "h4", command=command, cpu="Example CPU 2.0 GHz", **about)
    points = (
        Point(hosts=1, slots=1, samples=samples(100, 101, 99, step=0.1)),
        point(1, 2, (190, 192, 188), (196, 198, 195), 0.105, 0.003, 0.001, 0.102),
        point(2, 2, (352, 356, 350), (372, 375, 370), 0.113, 0.006, 0.002, 0.107),
        point(4, 2, (592, 596, 588), (616, 621, 613), 0.135, 0.004, 0.002, 0.13),
    )
    return Run(name="mnist-lab", context=around, points=points, repeats=3, warmup=0.2)


def context(*hosts: str, cpu: str = "Example CPU", **values: object) -> Context:
    """What all kinds have in common: hosts with cores, versions, one command."""
    known: dict[str, object] = {
        "command": ("ringleader", "bench", "p2p", "-H", ",".join(hosts)),
        "date": "2026-01-02T03:04:05+00:00",
        "hosts": tuple(HostContext(name=h, hostname=h, cpu=cpu, cores=8) for h in hosts),
        "python": "3.11.7",
        "mpi": "openmpi5 5.0.11",
        "ringleader": "0.1.0",
        "binding": "auto",
    }
    return Context(**(known | values))  # type: ignore[arg-type]


def pairs_of(
    count: int, *, slow: tuple[int, int] | None = None, sizes: tuple[int, ...] = (8, 1 << 20)
) -> PointToPointRun:
    """``count`` hosts, every ordered pair: 2 µs and 10 GB/s, the slow one 6 µs and 4 GB/s; line 12.5 GB/s."""
    names = [f"h{n + 1}" for n in range(count)]

    def transfer(source: int, target: int, size: int) -> Transfer:
        worse = (source, target) == slow
        rate = (4e9 if worse else 10e9) * size / (size + 4096)
        latencies = [one + size / 1e10 for one in ((6e-6, 5e-6, 9e-6) if worse else (2e-6, 1.9e-6, 2.5e-6))]
        return Transfer(
            source=source, target=target, size=size,
            latency=latencies[0], latency_low=latencies[1], latency_p99=latencies[2],
            rate=rate, rate_low=rate * 0.98, rate_high=rate * 1.01, both_ways_rate=rate * 1.8,
        )  # fmt: skip

    both = [(a, b) for a in range(count) for b in range(count) if a != b]
    transfers = [transfer(a, b, size) for a, b in both for size in sizes]
    return PointToPointRun(
        name=f"pairs-{count}",
        context=context(*names),
        places=tuple(Place(rank=n, host=name) for n, name in enumerate(names)),
        transfers=tuple(transfers),
        line_rate=12.5e9,
    )


@pytest.fixture
def pairs() -> PointToPointRun:
    """Four hosts, one direction of one pair slow."""
    return pairs_of(4, slow=(1, 3))


def timing(seconds: float, wrong: int | None = 0) -> Timing:
    return Timing(seconds=seconds, low=seconds * 0.97, high=seconds * 1.05, wrong=wrong)


def series_of(name: str, rate: float, start: float, sizes: tuple[int, ...]) -> CollectiveSeries:
    """Each size takes ``start`` and what ``rate`` bytes per second need."""

    def result(size: int) -> CollectiveResult:
        out, inside = (timing(start + factor * size / rate) for factor in (1.0, 1.02))
        return CollectiveResult(size=size, count=size // 4, out_of_place=out, in_place=inside)

    return CollectiveSeries(implementation=name, results=tuple(map(result, sizes)))


@pytest.fixture
def collective() -> CollectiveRun:
    """allreduce on 4 hosts with one rank each, two implementations and one that is missing."""
    sizes = tuple(1 << n for n in range(10, 27, 2))
    return CollectiveRun(
        name="allreduce-4x1",
        context=context("h1", "h2", "h3", "h4", command=("ringleader", "bench", "allreduce")),
        operation="allreduce",
        ranks=4,
        per_host=1,
        dtype="float32",
        redop="sum",
        series=(
            series_of("ringleader", 6e9, 20e-6, sizes),
            series_of("mpi", 3e9, 30e-6, sizes),
            CollectiveSeries(implementation="nccl", results=(), note="there is no GPU"),
        ),
        line_rate=12.5e9,
    )  # fmt: skip


@pytest.fixture
def training() -> TrainingRun:
    """Five arms on 4 ranks, three repetitions; uncoupled 400 images/s."""
    split = StepSplit(
        input=0.001, forward=0.03, backward=0.05, exchange=0.006, waiting=0.004, optimizer=0.003, other=0.001
    )
    return TrainingRun(
        name="resnet-2x2",
        context=context("h1", "h2", command=("ringleader", "bench", "train"), lab=True),
        model="resnet-50",
        parameters=25_557_032,
        gradient_bytes=102_228_128,
        batch=8,
        unit="images",
        precision="float32",
        optimizer="sgd",
        data="synthetic",
        ranks=4,
        per_host=2,
        arms=(
            Arm(name="ringleader", rates=(336.0, 338.0, 337.0), step_seconds=(0.095, 0.095), split=split),
            Arm(name="ddp-gloo", rates=(300.0, 302.0, 296.0), step_seconds=(0.107, 0.106, 0.108)),
            Arm(name="ddp-nccl", rates=(), note="there is no GPU"),
            Arm(name="uncoupled", rates=(400.0, 401.0, 399.0), step_seconds=(0.08, 0.08, 0.08)),
            Arm(name="in step", rates=(380.0, 383.0, 379.0), step_seconds=(0.084, 0.084, 0.085)),
        ),
        layers=(
            LayerTime(name="conv1", parameters=9408, bytes=37632, backward_seconds=0.002),
            LayerTime(name="fc", parameters=2_049_000, bytes=8_196_000, backward_seconds=0.004),
        ),
    )  # fmt: skip


Call = Callable[..., tuple[int, str, str]]
"""Exit code, standard output, standard error of ``ringleader`` with these words, in an empty directory."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    monkeypatch.chdir(tmp_path)

    def called(line: str, *more: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*line.split(), *more])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return called

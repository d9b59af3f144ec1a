"""Runs to be rendered, with numbers that can be checked by hand."""

from __future__ import annotations

import pytest

from ringleader.metrics import Sample
from ringleader.scaling import Context, HostContext, Point, Run


def samples(
    *rates: float,
    ranks: int = 1,
    step: float | None = None,
    exchange: float | None = None,
    waiting: float | None = None,
    source: str = "progress",
) -> tuple[Sample, ...]:
    return tuple(
        Sample(
            rate=rate,
            step_seconds=step,
            exchange_seconds=exchange,
            waiting_seconds=waiting,
            slowest_rate=rate / ranks * 0.99 if ranks > 1 else None,
            source=source,
            heard=ranks,
            seconds=4.0 if source == "progress" else 0.0,
            tail=("[0] step 50, loss 0.2",),
        )
        for rate in rates
    )


@pytest.fixture
def run() -> Run:
    """Four sizes in a lab, three repetitions, an engine that tells its exchange."""
    hosts = tuple(
        HostContext(name=f"h{n}", hostname=f"h{n}", cpu="Example CPU 2.0 GHz", cores=8) for n in (1, 2, 3, 4)
    )
    return Run(
        name="mnist-lab",
        context=Context(
            command=("python", "examples/mnist.py", "--epochs", "2"),
            date="2026-01-02T03:04:05+00:00",
            hosts=hosts,
            lab=True,
            python="3.11.7",
            torch="2.13.0",
            mpi="openmpi5 5.0.11",
            ringleader="0.1.0",
            transport="shared window, TCP",
            binding="auto",
            threads=1,
        ),
        points=(
            Point(hosts=1, slots=1, samples=samples(100, 101, 99, step=0.1)),
            Point(
                hosts=1,
                slots=2,
                samples=samples(190, 192, 188, ranks=2, step=0.105, exchange=0.003, waiting=0.001),
                uncoupled=samples(196, 198, 195, ranks=2, step=0.102),
            ),
            Point(
                hosts=2,
                slots=2,
                samples=samples(352, 356, 350, ranks=4, step=0.113, exchange=0.006, waiting=0.002),
                uncoupled=samples(372, 375, 370, ranks=4, step=0.107),
            ),
            Point(
                hosts=4,
                slots=2,
                samples=samples(592, 596, 588, ranks=8, step=0.135, exchange=0.004, waiting=0.002),
                uncoupled=samples(616, 621, 613, ranks=8, step=0.13),
            ),
        ),
        repeats=3,
        warmup=0.2,
    )

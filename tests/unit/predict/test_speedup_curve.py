"""The curve that a report draws beside measured speed-ups."""

from dataclasses import replace

import pytest

from ringleader.metrics import Sample
from ringleader.predict.speedup_curve import speedup_curve
from ringleader.scaling import Context, Point, Run


def run(*sizes: tuple[int, int, float], lab: bool = False) -> Run:
    points = tuple(
        Point(hosts=h, slots=s, samples=(Sample(rate=100 * h * s * e, step_seconds=0.1 / e),))
        for h, s, e in sizes
    )
    return Run(
        name="r", context=Context(command=("python", "t.py"), lab=lab), points=points, repeats=1, warmup=0.2
    )


def test_measured_sizes_come_back_and_it_reaches_four_times_as_far() -> None:
    found = speedup_curve(run((1, 1, 1.0), (1, 4, 0.95), (2, 4, 0.9), (4, 4, 0.86)))
    assert not found.reason
    assert [(s.hosts, s.ranks, s.measured) for s in found.sizes] == [
        (1, 4, True), (2, 8, True), (4, 16, True), (8, 32, False), (16, 64, False),
    ]  # fmt: skip
    assert [s.speedup for s in found.sizes[:3]] == pytest.approx([3.8, 7.2, 13.76], rel=0.03)
    assert all(s.low <= s.speedup <= s.high for s in found.sizes)
    assert found.sizes[2].speedup < found.sizes[3].speedup < 32


def test_what_nothing_was_measured_for_is_not_drawn() -> None:
    one = (1, 1, 1.0)
    for sizes, lab, drawn, why in (
        ((one, (1, 4, 0.95)), False, 0, "larger sizes"),
        ((one, (1, 2, 0.97), (1, 4, 0.95)), False, 2, "between hosts"),
        ((one, (1, 2, 0.9), (2, 2, 0.5)), True, 2, "one machine"),
        (((1, 2, 1.0), (1, 4, 0.95), (2, 4, 0.9)), False, 0, "one rank"),
    ):
        found = speedup_curve(run(*sizes, lab=lab))
        assert why in found.reason and len(found.sizes) == drawn
    measured = run((1, 1, 100.0), (1, 2, 190.0), (2, 2, 360.0))
    assert speedup_curve(measured).sizes
    assert "strong scaling" in speedup_curve(replace(measured, strong=True)).reason
    assert "another baseline" in speedup_curve(replace(measured, baseline="1x2")).reason

"""Predictions compared with published tables: fit odd points, predict even ones (``make bench-predict``).

Nothing is tuned per row: each fit starts from the stated network and uses the odd points only. Rows that
were measured on one machine are fitted together. Where a source does not say how gradients were summed, the
ways that it may have been are fitted, and each counts as much as it makes the odd points likely. A row with
one odd point has nothing to fit beyond its baseline: it is predicted from specifications. Tables that are not
scored are shown behind the others, with the reason.
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringleader.predict.fitting import Fit, Series, efficiencies, expectation, fit_together
from ringleader.predict.measured_job import Observation
from ringleader.predict.models import model
from ringleader.predict.networks import BETWEEN, WITHIN, Network
from ringleader.predict.profile import profile_of_model
from ringleader.predict.step_model import Setup, predict

TABLES = Path(__file__).parent / "published_scaling" / "tables.toml"
APART = (
    "TensorFlow's site, Google Compute Engine, 8 x K80",
    "TensorFlow's site, AWS p2.8xlarge, 8 x K80, one host",
)
"""Two tables of one host each with 28 of the points between them: the error is also told without them."""
REACH = 1.96
"""Standard deviations of a 95% interval."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One held-out point."""

    table: str
    row: str
    ranks: int
    published: float
    """Efficiency against the row's first point."""
    predicted: float
    deviation: float
    """Standard deviation of the prediction."""
    fitted: int
    """Points behind the baseline that the fit had."""
    hosts: bool
    """True where the ranks are on several hosts."""

    @property
    def error(self) -> float:
        """Points of efficiency."""
        return 100 * (self.predicted - self.published)

    @property
    def is_inside(self) -> bool:
        """Tell whether the published point is in the prediction's 95% interval."""
        return abs(self.predicted - self.published) <= REACH * self.deviation


def comparisons(only: str = "") -> Iterator[Comparison]:
    """Predict every held-out point of the tables that count, in their order; ``only``: of this table."""
    rows = [
        {**table, "key": table.get("machine", table["name"]), **row}
        for table in _tables()
        if table.get("scored", True) and only in ("", table["name"])
        for row in table["rows"]
    ]
    ways: dict[str, list[list[tuple[Fit, float]]]] = {}
    for key in dict.fromkeys(row["key"] for row in rows):
        ways[key] = _weighed([row for row in rows if row["key"] == key])
    for row in rows:
        yield from _held_out(row, ways[row["key"]].pop(0))


def _tables() -> list[dict[str, Any]]:
    return list(tomllib.loads(TABLES.read_text(encoding="utf-8"))["table"])


def not_scored() -> Iterator[str]:
    """Say of each table that does not count where it is from and why, and what is predicted of its points."""
    for table in _tables():
        if table.get("scored", True):
            continue
        yield f"  {table['name']}"
        yield f"    source: {table['source']}"
        yield f"    not scored: {table['why']}"
        if "assumed" in table and table["rows"]:
            yield f"    assumed: {table['assumed']}"
        for row in ({**table, **row} for row in table["rows"]):
            first, *rest = _points(row)
            for point in rest:
                published = point.rate / point.ranks / (first.rate / first.ranks)
                predicted = predict(_profile(row), _setup(row), point.ranks).efficiency
                yield _line(_label(row), point.ranks, published, predicted) + "         specifications"


def _weighed(rows: list[dict[str, Any]]) -> list[list[tuple[Fit, float]]]:
    """Return for each row of a machine its fits, one for each way of summing, and how much each counts."""
    tables = list(dict.fromkeys(row["name"] for row in rows))
    firsts = [next(row for row in rows if row["name"] == table) for table in tables]
    tries = []
    for chosen in itertools.product(*(_ways(row) for row in firsts)):
        ways = dict(zip(tables, chosen, strict=True))
        series = [
            Series(
                profile=_profile(row),
                setup=_setup({**row, **ways[row["name"]]}),
                points=tuple(_points(row)[::2]),
            )
            for row in rows
        ]
        tries.append(fit_together(series))
    most = max(one[0].evidence for one in tries)
    weights = [math.exp(one[0].evidence - most) for one in tries]
    return [
        [(fits[i], weight / sum(weights)) for fits, weight in zip(tries, weights, strict=True)]
        for i in range(len(rows))
    ]


def _ways(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ways in which a table's gradients may have been summed."""
    return [
        {"algorithm": algorithm, "overlap": overlap}
        for algorithm in row.get("algorithms") or [row["algorithm"]]
        for overlap in row.get("overlaps") or [row.get("overlap", True)]
    ]


def _profile(row: dict[str, Any]) -> Any:
    first = _points(row)[0]
    return profile_of_model(model(row["model"]), rate=first.rate / first.ranks, batch=row["batch"])


def _label(row: dict[str, Any]) -> str:
    return f"{row['model']}, {row['label']}" if "label" in row else f"{row['model']}, batch {row['batch']}"


def _held_out(row: dict[str, Any], ways: Sequence[tuple[Fit, float]]) -> Iterator[Comparison]:
    points, profile = _points(row), _profile(row)
    per_rank = points[0].rate / points[0].ranks
    for point in points[1::2]:

        def value(setup: Setup, at: Observation = point) -> float:
            return efficiencies(profile, setup, (points[0], at))[1]

        expected = [(expectation(fitted, value), weight) for fitted, weight in ways]
        predicted = sum(weight * one.mean for one, weight in expected)
        variance = sum(weight * (one.variance + (one.mean - predicted) ** 2) for one, weight in expected)
        yield Comparison(
            table=row["name"],
            row=_label(row),
            ranks=point.ranks,
            published=point.rate / point.ranks / per_rank,
            predicted=predicted,
            deviation=math.sqrt(variance),
            fitted=(len(points) + 1) // 2 - 1,
            hosts=point.ranks > row["per_host"],
        )


def _points(made: dict[str, Any]) -> list[Observation]:
    ranks = made["ranks"]
    rates = made.get("rates") or [
        made["one_rank"] * e * n for e, n in zip(made["efficiencies"], ranks, strict=True)
    ]
    micro_steps, servers = made.get("micro_steps", [1] * len(ranks)), made.get("servers", [0] * len(ranks))
    return [
        Observation(ranks=n, rate=rate, micro_steps=steps, servers=count)
        for n, rate, steps, count in zip(ranks, rates, micro_steps, servers, strict=True)
    ]


def _setup(made: dict[str, Any]) -> Setup:
    between = BETWEEN[made["between"]]
    if "gigabits" in made:
        between = replace(between, bandwidth=made["gigabits"] * 1e9 / 8)
    network = Network(
        name=made["between"], between=between, within=WITHIN[made["within"]], ports=made.get("ports", 1)
    )
    return Setup(
        network=network,
        per_host=made["per_host"],
        algorithm=made["algorithm"],
        wire=made.get("wire", "fp32"),
        overlap=made.get("overlap", True),
    )


def root_mean_square(found: Sequence[Comparison]) -> float:
    """Points of efficiency."""
    return math.sqrt(sum(one.error**2 for one in found) / len(found))


def _line(row: str, ranks: int, published: float, predicted: float) -> str:
    error = 100 * (predicted - published)
    return f"  {row:38} {ranks:5} {100 * published:8.1f}% {100 * predicted:8.1f}% {error:+6.1f}"


def printed(found: Sequence[Comparison]) -> Iterator[str]:
    """Return the lines of every held-out point, of what is not scored, and of the error over all points."""
    table = ""
    yield f"{'row':40} {'ranks':>5} {'published':>9} {'predicted':>9} {'error':>6}   95%  from"
    for one in found:
        if one.table != table:
            table = one.table
            yield table
        basis = "fit" if one.fitted else "specifications"
        line = _line(one.row, one.ranks, one.published, one.predicted)
        yield f"{line}  ±{100 * REACH * one.deviation:4.1f}  {basis}"
    yield "shown, not scored"
    yield from not_scored()
    fitted = [one for one in found if one.fitted]
    stated = [one for one in found if not one.fitted]
    apart = [one for one in found if one.table in APART]
    others = [one for one in found if one.table not in APART]
    yield f"root mean square, {len(found)} held-out points: {root_mean_square(found):.1f} points"
    without = "without Google Compute Engine and AWS on one host"
    yield f"  of {len(others)} {without}: {root_mean_square(others):.1f}"
    yield f"  of {len(apart)} of these tables alone: {root_mean_square(apart):.1f}"
    yield f"  of {len(fitted)} after a fit: {root_mean_square(fitted):.1f}"
    for words, several in (("several hosts", True), ("one host", False)):
        some = [one for one in fitted if one.hosts is several]
        yield f"    of {len(some)} on {words}: {root_mean_square(some):.1f}"
    yield f"  of {len(stated)} from specifications alone: {root_mean_square(stated):.1f}"
    yield f"inside their 95% intervals: {sum(one.is_inside for one in found)} of {len(found)}"


def main() -> None:
    """Print all of it."""
    print("\n".join(printed(list(comparisons()))))


if __name__ == "__main__":
    main()

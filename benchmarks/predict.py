"""Predictions held against published tables: fit odd points, predict even ones (``make bench-predict``).

Nothing is tuned per row: each fit starts from the stated network and uses the odd points only. A row with
one odd point has nothing to fit beyond its baseline: what is predicted there comes from specifications.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringleader.predict.fitting import Fit, Observation, efficiencies, fit, interval
from ringleader.predict.models import model
from ringleader.predict.networks import BETWEEN, WITHIN, Network
from ringleader.predict.profile import Profile, profile_of_model
from ringleader.predict.step_model import Setup, predict

TABLES = Path(__file__).parent / "published_scaling" / "tables.toml"


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One held-out point."""

    table: str
    row: str
    ranks: int
    published: float
    """Efficiency against the row's first point."""
    predicted: float
    low: float
    """95 % interval of the prediction."""
    high: float
    fitted: int
    """Points behind the baseline that the fit had."""
    hosts: bool
    """True where the ranks are on several hosts."""

    @property
    def error(self) -> float:
        """Points of efficiency."""
        return 100 * (self.predicted - self.published)


def comparisons() -> Iterator[Comparison]:
    """Predict every held-out point of the tables that count."""
    for table in tomllib.loads(TABLES.read_text(encoding="utf-8"))["table"]:
        if table.get("scored", True):
            algorithms = table.get("algorithms") or [table["algorithm"]]
            tries = [_fits(table, algorithm) for algorithm in algorithms]
            rows, fits = min(tries, key=lambda one: sum(fitted.cost for fitted in one[1]))
            for row, fitted in zip(rows, fits, strict=True):
                yield from _held_out(table["name"], row, fitted)


def _fits(table: dict[str, Any], algorithm: str) -> tuple[list[dict[str, Any]], list[Fit]]:
    rows = [{**table, **row, "algorithm": algorithm} for row in table["rows"]]
    return rows, [fit(_profile(row), _setup(row), _points(row)[::2]) for row in rows]


def _profile(row: dict[str, Any]) -> Profile:
    first = _points(row)[0]
    return profile_of_model(model(row["model"]), rate=first.rate / first.ranks, batch=row["batch"])


def _held_out(table: str, row: dict[str, Any], fitted: Fit) -> Iterator[Comparison]:
    points = _points(row)
    per_rank = points[0].rate / points[0].ranks
    profile = _profile(row)
    modelled = efficiencies(profile, fitted.setup, points)
    label = f"{row['model']}, {row['label']}" if "label" in row else f"{row['model']}, batch {row['batch']}"
    for point, predicted in list(zip(points, modelled, strict=True))[1::2]:
        # Intervals are against one rank; the row's first point may be a host.
        there = replace(fitted.setup, micro_steps=point.micro_steps)
        scale = predicted / predict(profile, there, point.ranks).efficiency
        low, high = interval(profile, fitted, point.ranks, point.micro_steps)
        yield Comparison(
            table=table,
            row=label,
            ranks=point.ranks,
            published=point.rate / point.ranks / per_rank,
            predicted=predicted,
            low=scale * low,
            high=scale * high,
            fitted=(len(points) + 1) // 2 - 1,
            hosts=point.ranks > row["per_host"],
        )


def _points(made: dict[str, Any]) -> list[Observation]:
    rates = made.get("rates") or [
        made["one_rank"] * e * n for e, n in zip(made["efficiencies"], made["ranks"], strict=True)
    ]
    update = made.get("update")
    return [
        Observation(ranks=n, rate=r, micro_steps=max(1, round(update / made["batch"] / n)) if update else 1)
        for n, r in zip(made["ranks"], rates, strict=True)
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


def root_mean_square(found: list[Comparison]) -> float:
    """Points of efficiency."""
    return math.sqrt(sum(one.error**2 for one in found) / len(found))


def main() -> None:
    """Print every held-out point and the error over all of them."""
    found = list(comparisons())
    table = ""
    print(f"{'row':40} {'ranks':>5} {'published':>9} {'predicted':>9} {'error':>6}  from")
    for one in found:
        if one.table != table:
            table = one.table
            print(table)
        basis = "fit" if one.fitted else "specifications"
        print(
            f"  {one.row:38} {one.ranks:5} {100 * one.published:8.1f}% {100 * one.predicted:8.1f}% "
            f"{one.error:+6.1f}  {basis}"
        )
    fitted = [one for one in found if one.fitted]
    stated = [one for one in found if not one.fitted]
    print(f"root mean square, {len(found)} held-out points: {root_mean_square(found):.1f} points")
    print(f"  of {len(fitted)} after a fit: {root_mean_square(fitted):.1f}")
    for words, several in (("several hosts", True), ("one host", False)):
        some = [one for one in fitted if one.hosts is several]
        print(f"    of {len(some)} on {words}: {root_mean_square(some):.1f}")
    inside = sum(one.low <= one.published <= one.high for one in fitted)
    print(f"    inside their 95 % intervals: {inside} of {len(fitted)}")
    print(f"  of {len(stated)} from specifications alone: {root_mean_square(stated):.1f}")


if __name__ == "__main__":
    main()

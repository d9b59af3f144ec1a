"""Predictions compared with published tables: fitted to one half, blind for the other (`make bench-predict`).

    python benchmarks/predict.py [--fit] [--rows]

Three files of ``published_scaling/``, each row with its source: bus bandwidths of all-reduces
(``collectives``), what transformers reach of a GPU's peak (``training``), and efficiencies of jobs on several
sizes (``tables``). The hash of a point's name decides which half it is in. The constants of ``gpus.toml``
that are called fitted are those of the first half; ``--fit`` computes them again. Points of ``tables`` are
fitted as ``ringleader predict`` fits measured points: each row starts from the stated network. Where a source
does not say how gradients were summed, the ways that it may have been are fitted, and each counts as much as
it makes the table's fitted points likely; a row without a fitted point is predicted from specifications.

An error is in points: of MFU, of efficiency, or percent of the bus bandwidth that large all-reduces reach.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import math
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ringleader.predict.exchange_cost import Shape, all_reduce_seconds
from ringleader.predict.fitting import Fit, efficiencies, expectation, fit
from ringleader.predict.gpus import Gpu, gpus
from ringleader.predict.measured_job import Observation, OnGpu
from ringleader.predict.models import model
from ringleader.predict.networks import BETWEEN, WITHIN, Network
from ringleader.predict.profile import profile_of_model
from ringleader.predict.step_model import Setup, predict
from ringleader.predict.transformers import TRANSFORMERS, Transformer

FOLDER = Path(__file__).parent / "published_scaling"
FILES = ("collectives", "training", "tables")
REACH = 1.96
"""Standard deviations of a 95% interval."""
WORST = 12
"""Rows that are named because their error is largest."""
FITTED = {
    "fill": ("a100", "h100"),
    "attention": ("a100", "h100"),
    "traffic": ("a100", "h100"),
    "contention": ("a100", "h100"),
}
"""Constant → GPUs for which it is fitted; others have theirs."""


def held_out(*words: object) -> bool:
    """Tell whether a point of this name is in the half that nothing is fitted to."""
    return hashlib.sha256(" ".join(map(str, words)).encode()).digest()[0] % 2 == 1


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """One point."""

    file: str
    table: str
    row: str
    published: float
    predicted: float
    """Both in points."""
    blind: bool
    deviation: float = math.inf
    """Standard deviation of the prediction, where it has one."""

    @property
    def error(self) -> float:
        """Points."""
        return self.predicted - self.published

    @property
    def is_inside(self) -> bool:
        """Tell whether the published point is in the prediction's 95% interval."""
        return abs(self.error) <= REACH * self.deviation


def tables(name: str) -> dict[str, Any]:
    """Return a file of published tables."""
    return tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))


# --- All-reduces ---


def collectives(known: Mapping[str, Gpu], scored: bool = True) -> Iterator[Comparison]:
    """Yield all published all-reduces that count, or those that do not."""
    for table in tables("collectives")["table"]:
        if table.get("scored", True) is not scored:
            continue
        gpu = known[table["gpu"]]
        network = network_of(gpu, table)
        shape = Shape(hosts=table["hosts"], per_host=table["per_host"])
        full = max(gpu.ring, gpu.switch) * 1e-9
        for size, busbw in table["busbw"]:
            seconds = all_reduce_seconds(table.get("algorithm", "nccl"), size, shape, network)
            predicted = 2 * (shape.ranks - 1) / shape.ranks * size / seconds * 1e-9
            given = size in table.get("given", ())
            yield Comparison(
                file="collectives",
                table=table["name"],
                row=f"{size / 2**20:,.0f} MiB on {shape.ranks}: {busbw:.0f} and {predicted:.0f} GB/s",
                published=100 * busbw / full,
                predicted=100 * predicted / full,
                blind=not given and held_out(table["name"], size, shape.ranks),
            )


def network_of(gpu: Gpu, table: Mapping[str, Any]) -> Network:
    """Return the network of a table: the usual one of its GPUs, but for what it states."""
    between = gpu.between() or BETWEEN["ndr-infiniband"]
    if "gigabits" in table:
        between = replace(between, bandwidth=table["gigabits"] * 1e9 / 8)
    return gpu.network(between, table.get("ports", gpu.ports))


# --- Utilization ---


def training(known: Mapping[str, Gpu], scored: bool = True) -> Iterator[Comparison]:
    """Yield all published utilizations that count, or those that do not."""
    document = tables("training")
    for table in document["table"]:
        if table.get("scored", True) is not scored:
            continue
        gpu = known[table["gpu"]]
        network = network_of(gpu, table)
        for values in table["rows"]:
            row = dict(zip(table["columns"], values, strict=True))
            job = OnGpu(model=transformer(row, document["shapes"]), gpu=gpu)
            setup = Setup(
                network=network,
                per_host=min(8, row["ranks"]),
                algorithm="nccl",
                contention=gpu.contention,
                batch=row["batch"],
                **{name: row[name] for name in SETUP if name in row},
            )
            rate = predict(job.profile(setup, row["ranks"]), setup, row["ranks"]).rate / row["ranks"]
            part = job.model.flops / gpu.peak * 100
            shown = [
                row["model"],
                f"{row['sequence']} tokens",
                f"{row['ranks']} GPUs",
                f"batch {row['batch']}",
            ]
            yield Comparison(
                file="training",
                table=table["name"],
                row=", ".join(shown + ["recomputed"] * row["recompute"]),
                published=row.get("mfu") or row["tokens"] * part,
                predicted=rate * part,
                blind=held_out(table["name"], *values[:7]),
            )


SETUP = ("micro_steps", "strategy", "recompute", "wire", "shard_ranks", "tensor", "pipeline")


def transformer(row: Mapping[str, Any], shapes: Mapping[str, Sequence[int]]) -> Transformer:
    """Return the model of a row: by its name, or GPT's layers of this shape."""
    name = row["model"]
    if name in TRANSFORMERS:
        return replace(TRANSFORMERS[name], sequence=row["sequence"])
    layers, hidden, vocabulary = shapes[name]
    layer = 12.0 * hidden**2 + 13 * hidden
    return Transformer(
        name=name, layers=layers, hidden=hidden, layer=layer, used=layer, vocabulary=vocabulary,
        sequence=row["sequence"],
    )  # fmt: skip


# --- Fits of constants ---


def fitted_constants(known: Mapping[str, Gpu]) -> dict[str, Gpu]:
    """Return GPUs with the constants that fit the first half best."""
    for file, compare, names in (
        ("collectives", collectives, ("fill",)),
        ("training", training, ("attention", "traffic", "contention")),
    ):
        del file
        for gpu in FITTED[names[0]]:
            known = _fitted(known, gpu, names, compare)
    return dict(known)


def _fitted(
    known: Mapping[str, Gpu], name: str, fields: Sequence[str], compare: Callable[..., Iterator[Comparison]]
) -> dict[str, Gpu]:
    """Return GPUs of which one, and those like it, has constants that fit (Levenberg, on logarithms)."""
    like = [other for other, gpu in known.items() if other == name or other in LIKE.get(name, ())]
    start = np.log([getattr(known[name], field) for field in fields])

    def changed(place: Any) -> dict[str, Gpu]:
        values = dict(zip(fields, map(float, np.exp(np.clip(place, -20, 20))), strict=True))
        return {other: replace(gpu, **values) if other in like else gpu for other, gpu in known.items()}

    def errors(place: Any) -> Any:
        gpu_of = {
            table["name"]: table["gpu"]
            for file in ("collectives", "training")
            for table in tables(file)["table"]
        }
        return np.array(
            [one.error for one in compare(changed(place)) if not one.blind and gpu_of[one.table] in like]
        )

    place, damping = start, 1e-2
    now = errors(place)
    for _ in range(25):
        slopes = np.array([(errors(place + 1e-4 * unit) - now) / 1e-4 for unit in np.eye(len(fields))]).T
        normal = slopes.T @ slopes
        there = place - np.linalg.solve(normal + damping * np.diag(np.diag(normal) + 1e-6), slopes.T @ now)
        then = errors(there)
        if then @ then < now @ now:
            gain = now @ now - then @ then
            place, now, damping = there, then, damping / 5
            if gain < 1e-4 * (now @ now):
                break
        else:
            damping *= 10
    return changed(place)


LIKE = {"h100": ("h200",)}


# --- Jobs on several sizes ---


def scaling(only: str = "") -> Iterator[Comparison]:
    """Yield the points of jobs on several sizes that are held out; ``only``: of this table."""
    for table in tables("tables")["table"]:
        if not table.get("scored", True) or only not in ("", table["name"]):
            continue
        rows = [{**table, **row} for row in table["rows"]]
        tries = []
        for way in _ways(table):
            fits = [
                fit(
                    _profile(row),
                    _setup({**row, **way}),
                    [point for point in _points(row) if not _is_blind(row, point)],
                )
                for row in rows
            ]
            tries.append((sum(one.evidence for one in fits), fits))
        most = max(evidence for evidence, _ in tries)
        weights = [math.exp(evidence - most) for evidence, _ in tries]
        for at, row in enumerate(rows):
            ways = [
                (fits[at], weight / sum(weights)) for (_, fits), weight in zip(tries, weights, strict=True)
            ]
            yield from _held_out(row, ways)


def _ways(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the ways in which a table's gradients may have been summed."""
    return [
        {"algorithm": algorithm, "overlap": overlap}
        for algorithm in row.get("algorithms") or [row["algorithm"]]
        for overlap in row.get("overlaps") or [row.get("overlap", True)]
    ]


def _is_blind(row: dict[str, Any], point: Observation) -> bool:
    """Of each row the first point is the baseline."""
    is_first = point.ranks == row["ranks"][0]
    return not is_first and held_out(row["name"], _label(row), point.ranks)


def _profile(row: dict[str, Any]) -> Any:
    first = _points(row)[0]
    return profile_of_model(model(row["model"]), rate=first.rate / first.ranks, batch=row["batch"])


def _label(row: dict[str, Any]) -> str:
    return f"{row['model']}, {row['label']}" if "label" in row else f"{row['model']}, batch {row['batch']}"


def _held_out(row: dict[str, Any], ways: Sequence[tuple[Fit, float]]) -> Iterator[Comparison]:
    points, profile = _points(row), _profile(row)
    per_rank = points[0].rate / points[0].ranks
    for point in points:
        if not _is_blind(row, point):
            continue

        def value(setup: Setup, at: Observation = point) -> float:
            return efficiencies(profile, setup, (points[0], at))[1]

        expected = [(expectation(fitted, value), weight) for fitted, weight in ways]
        predicted = sum(weight * one.mean for one, weight in expected)
        variance = sum(weight * (one.variance + (one.mean - predicted) ** 2) for one, weight in expected)
        yield Comparison(
            file="tables",
            table=row["name"],
            row=f"{_label(row)}, {point.ranks} ranks",
            published=100 * point.rate / point.ranks / per_rank,
            predicted=100 * predicted,
            blind=True,
            deviation=100 * math.sqrt(variance),
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


def not_scored() -> Iterator[str]:
    """Say of each table that does not count where it is from and why, and what is predicted of its points."""
    apart = [*collectives(gpus(), scored=False), *training(gpus(), scored=False)]
    for table in [table for file in FILES for table in tables(file)["table"]]:
        if table.get("scored", True):
            continue
        yield f"  {table['name']}"
        yield f"    source: {table['source']}"
        yield f"    not scored: {table['why']}"
        if "assumed" in table and table["rows"]:
            yield f"    assumed: {table['assumed']}"
        some = [one for one in apart if one.table == table["name"]]
        yield from (_line(one.row, one.published, one.predicted) for one in some)
        for row in ({**table, **row} for row in table.get("rows", ()) if not some):
            first, *rest = _points(row)
            for point in rest:
                published = 100 * point.rate / point.ranks / (first.rate / first.ranks)
                predicted = 100 * predict(_profile(row), _setup(row), point.ranks).efficiency
                yield _line(f"{_label(row)}, {point.ranks} ranks", published, predicted)


# --- Text ---


def root_mean_square(found: Sequence[Comparison]) -> float:
    """Points."""
    return math.sqrt(sum(one.error**2 for one in found) / len(found)) if found else 0.0


def _line(row: str, published: float, predicted: float) -> str:
    return f"  {row:58} {published:8.1f} {predicted:8.1f} {predicted - published:+6.1f}"


def everything(known: Mapping[str, Gpu]) -> list[Comparison]:
    """Return all points of all files."""
    return [*collectives(known), *training(known), *scaling()]


def printed(found: Sequence[Comparison], rows: bool = False) -> Iterator[str]:
    """Return the lines of tables, worst rows and the error over all; ``rows``: of each blind point, too."""
    yield f"{'root mean square of the errors, in points':62} fitted        blind"
    for (file, table), group in itertools.groupby(found, key=lambda one: (one.file, one.table)):
        del file
        points = list(group)
        first, second = [one for one in points if not one.blind], [one for one in points if one.blind]
        shown = [
            f"{root_mean_square(half):5.1f} of {len(half):<3}" if half else " " * 12
            for half in (first, second)
        ]
        yield f"  {table:60} {shown[0]} {shown[1]}".rstrip()
        if rows:
            yield from (f"  {_line(one.row, one.published, one.predicted)}" for one in second)
    blind = [one for one in found if one.blind]
    yield "the largest errors of the blind half"
    for one in sorted(blind, key=lambda one: -abs(one.error))[:WORST]:
        yield f"  {one.table}"
        yield f"  {_line(one.row, one.published, one.predicted)}"
    yield "shown, not scored"
    yield from not_scored()
    names = {
        "collectives": "of all-reduces",
        "training": "of utilizations",
        "tables": "of scaling",
    }
    yield f"root mean square, {len(blind)} points of the blind half: {root_mean_square(blind):.1f} points"
    for file, words in names.items():
        some = [one for one in blind if one.file == file]
        yield f"  {len(some)} {words}: {root_mean_square(some):.1f}"
    spans = [one for one in blind if one.deviation < math.inf]
    yield f"inside their 95% intervals: {sum(one.is_inside for one in spans)} of {len(spans)}"


def main() -> None:
    """Print all of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--fit", action="store_true", help="fit the constants of gpus.toml again, and print them"
    )
    parser.add_argument("--rows", action="store_true", help="print each point of the blind half")
    args = parser.parse_args()
    known = gpus()
    if args.fit:
        known = fitted_constants(known)
        for field, names in FITTED.items():
            print(field, {name: float(f"{getattr(known[name], field):.3g}") for name in names})
    print("\n".join(printed(everything(known), args.rows)))


if __name__ == "__main__":
    main()

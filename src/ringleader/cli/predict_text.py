"""A forecast as text and as JSON: tables, what does not fit, what is not measured. ``predict`` makes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from ringleader.cli.output import table
from ringleader.fabric.byte_size import byte_size
from ringleader.number_format import percent, plural, seconds, span, thousands, times
from ringleader.predict.fitting import Fit
from ringleader.predict.forecast import Forecast, Row
from ringleader.predict.step_model import Setup

SCHEMA = 1
"""Version of the JSON."""


def as_text(found: Forecast, form: str = "simple") -> str:
    """Return tables and sentences; ``form``: tabulate's name of a format."""
    setup, profile = found.setup, found.profile
    network = setup.network
    measured = setup.all_reduce
    across = measured is not None and measured.ranks > measured.per_host
    between = measured.link if measured is not None and across else network.between
    within = measured.link if measured is not None and not across else network.within
    reference = found.reference
    step = profile.step_seconds if reference is None else reference.step
    alone = "one rank" if reference is None or reference.ranks == 1 else plural(reference.ranks, "rank")
    ports = f"{plural(network.ports, 'port')} of " if between is network.between and not between.curve else ""
    head = (
        f"{profile.name}: {seconds(step)} per step on {alone}, {byte_size(profile.size)} of "
        f"gradients; {ports}{between.name} between hosts, {within.name} within, "
        f"{plural(setup.per_host, 'rank')} per host; "
        f"{_divided(setup)}{setup.algorithm}, {setup.wire} on the wire"
    )
    blocks = [head, _sizes(found, form), *_notes(found), found.limit]
    if found.below is not None:
        bound, basis = f"{100 * found.below.bound:g}%", f"({found.below.basis})"
        stays = f"Efficiency stays at {bound} or above at all sizes tried {basis}."
        falls = f"Efficiency falls below {bound} at {found.below.ranks or 0:,} ranks {basis}."
        blocks.append(stays if found.below.ranks is None else falls)
    if found.tried:
        blocks.append(_tried(found, form))
    if found.fit is not None:
        blocks.append(_fitted(found.fit, form))
    blocks.append(
        "\n".join(
            "\n  ".join(
                (
                    f"{link.name}: {link.rate / 1e9:.2f} GB/s, {seconds(link.latency)}",
                    *filter(None, link.source.split("; ")),
                )
            )
            for link in (between, within)
        )
    )
    return "\n\n".join(blocks) + "\n"


def _tried(found: Forecast, form: str) -> str:
    """A change of how work is divided shows in the rate: it changes how long a rank computes, too."""
    now = found.rows[-1].prediction
    rows = []
    for one in found.tried:
        at = one.prediction
        if found.setup.batch:
            rows.append((one.change, thousands(at.rate), f"{100 * (at.rate / now.rate - 1):+.1f}%"))
        else:
            rows.append((one.change, f"{100 * at.efficiency:.1f}%", f"{100 * one.gain:+.1f}"))
    header = (f"with … at {now.ranks:,} ranks", "efficiency", "points")
    if found.setup.batch:
        header = (header[0], f"{found.profile.unit}/s", "gain")
    return table(rows, header, form=form, align="lrr")


def _divided(setup: Setup) -> str:
    """Say how work and state are divided, where they are."""
    words = [] if setup.strategy == "ddp" else [setup.strategy]
    words += [
        f"{name} {value}"
        for name, value in (("tensor", setup.tensor), ("pipeline", setup.pipeline))
        if value > 1
    ]
    words += [f"sharded over {setup.shard_ranks} ranks"] if setup.shard_ranks else []
    words += ["activations recomputed"] if setup.recompute else []
    return "".join(f"{word}, " for word in words)


def _notes(found: Forecast) -> list[str]:
    """Say which sizes do not fit into memory, and what is not measured."""
    rows, notes = found.rows, []
    large = [row for row in rows if row.memory is not None and row.memory > found.capacity]
    if large:
        *most, last = (f"{row.prediction.ranks:,}" for row in large)
        sizes = f"{', '.join(most)} or {last}" if most else last
        needed = " to ".join(dict.fromkeys(byte_size(int(row.memory or 0)) for row in (large[-1], large[0])))
        has = byte_size(int(found.capacity))
        notes.append(f"Does not fit on {sizes} ranks: each needs {needed}, a GPU has {has}.")
    if (reference := found.reference) is not None:
        one = "one rank" if reference.ranks == 1 else f"one rank of {reference.ranks}"
        if not reference.fits:
            notes.append(
                f"Nothing fits, so speed-up and efficiency are relative to {one} with enough memory."
            )
        elif reference.ranks > 1:
            notes.append(f"Speed-up and efficiency are relative to {one}, the fewest that fit.")
    if "(assumed)" in found.setup.network.name or "(assumed)" in found.setup.network.between.name:
        notes.append(
            "The network is an assumption, and most of what follows depends on it: name yours "
            "(--gpu, --network, --within, --facts or --curve)."
        )
    if found.fit is None and found.setup.straggler == 0:
        notes.append(
            "Ranks are assumed equally fast: the spread of their step times (σ) isn't measured; "
            "--straggler sets it."
        )
    return notes


def _least(found: Forecast) -> int:
    """Return the smallest size that has an efficiency."""
    return 1 if found.reference is None else found.reference.ranks


_Column = tuple[str, Callable[[Row], str]]


def _sizes(found: Forecast, form: str) -> str:
    first = found.rows[0].prediction
    alone, least = first.rate / first.ranks / first.efficiency, _least(found)

    def relative(row: Row, text: str) -> str:
        """Groups smaller than the one that all is relative to do not fit."""
        return text if row.prediction.ranks >= least else "–"

    columns: list[_Column] = [
        ("ranks", lambda row: f"{row.prediction.ranks:,}"),
        ("hosts", lambda row: f"{row.prediction.hosts:,}"),
        (f"{found.profile.unit}/s", lambda row: thousands(row.prediction.rate)),
        ("speed-up", lambda row: relative(row, times(row.prediction.rate / alone))),
        ("efficiency", lambda row: relative(row, f"{100 * row.prediction.efficiency:.1f}%")),
    ]
    if found.fit is not None:
        columns.append(("95%", lambda row: span(row.low, row.high, lambda part: f"{100 * part:.1f}")))
    columns += [
        ("step", lambda row: seconds(row.prediction.step)),
        ("exposed", lambda row: seconds(row.prediction.exposed)),
    ]
    if any(row.prediction.waiting for row in found.rows):
        columns.append(("waiting", lambda row: seconds(row.prediction.waiting)))
    if any(row.prediction.idle for row in found.rows):
        columns.append(("idle", lambda row: seconds(row.prediction.idle)))
    if found.capacity:
        columns.append(("MFU", lambda row: percent(row.mfu or 0.0)))
        columns.append(("memory", lambda row: byte_size(int(row.memory or 0))))
    if any(row.failures for row in found.rows):
        columns += [
            ("failure every", lambda row: _long(row.failures.between) if row.failures else ""),
            ("commit every", lambda row: _long(row.failures.interval) if row.failures else ""),
            ("goodput", lambda row: percent(row.failures.goodput) if row.failures else ""),
        ]
    columns.append(
        (
            "from",
            lambda row: row.basis if row.measured is None else f"{row.basis}: {100 * row.measured:.1f}%",
        )
    )
    rows = [[text(row) for _, text in columns] for row in found.rows]
    return table(rows, [name for name, _ in columns], form=form, align="r" * (len(columns) - 1) + "l")


def _long(value: float) -> str:
    """Return a duration of up to years."""
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return seconds(value)


_UNITS: Mapping[str, Callable[[float], str]] = {
    "straggler": lambda value: f"{100 * value:.2f}%",
    "slowdown": lambda value: f"{value:.2f}×",
}
"""How the value of a fitted parameter is written."""


def _fitted(fitted: Fit, form: str) -> str:
    rows = [
        (
            one.name,
            (shown := _UNITS[one.name])(one.value),
            f"{shown(one.low)} – {shown(one.high)}",
            shown(one.stated),
            "fitted" if one.fitted else "as stated: the points don't determine it",
        )
        for one in fitted.parameters
    ]
    parameters = table(rows, ("parameter", "value", "95%", "stated", ""), form=form)
    residual = f"{100 * fitted.residual:.1f} points (root mean square)"
    return f"{parameters}\nResiduals of the measured points: {residual}."


def as_document(found: Forecast) -> dict[str, Any]:
    """Return the forecast for programs."""
    setup, least = asdict(found.setup), _least(found)
    return {
        "schema": SCHEMA,
        "name": found.profile.name,
        "unit": found.profile.unit,
        "step_seconds": found.profile.step_seconds if found.reference is None else found.reference.step,
        "reference": None if found.reference is None else asdict(found.reference),
        "gradient_bytes": found.profile.size,
        "setup": setup,
        "sizes": [
            {**asdict(row.prediction),
             "efficiency": row.prediction.efficiency if row.prediction.ranks >= least else None,
             "from": row.basis, "low": row.low, "high": row.high,
             "measured": row.measured, "mfu": row.mfu, "memory": row.memory,
             "failures": None if row.failures is None else asdict(row.failures)}
            for row in found.rows
        ],
        "limit": found.limit,
        "memory": found.capacity or None,
        "what_if": [
            {"change": one.change, "efficiency": one.prediction.efficiency, "gain": one.gain}
            for one in found.tried
        ],
        "below": None if found.below is None else asdict(found.below),
        "fit": None if found.fit is None else {
            "parameters": [asdict(p) for p in found.fit.parameters],
            "residual": found.fit.residual,
            "largest": found.fit.largest,
        },
    }  # fmt: skip

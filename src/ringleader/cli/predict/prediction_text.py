"""A forecast as a table, as Markdown, and as JSON. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tabulate import tabulate

from ringleader.fabric.byte_size import byte_size
from ringleader.predict.fitting import Parameter
from ringleader.predict.forecast import Forecast, Row
from ringleader.predict.networks import Link
from ringleader.report.number_format import plural, seconds, thousands, times

NONE = "–"
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
    head = (
        f"{profile.name}: {seconds(profile.step_seconds)} a step on one rank, {byte_size(profile.size)} of "
        f"gradients; {between.name} between hosts, {within.name} within, "
        f"{plural(setup.per_host, 'rank')} on each; {setup.algorithm}, {setup.wire} on the wire"
    )
    blocks = [head, _sizes(found, form), found.limit]
    if found.below is not None:
        blocks.append(_below(found))
    if found.tried:
        blocks.append(_tried(found, form))
    if found.fit is not None:
        blocks.append(_fitted(found, form))
    blocks.append("\n".join(_source(link) for link in (between, within)))
    return "\n\n".join(blocks) + "\n"


def _sizes(found: Forecast, form: str) -> str:
    one = found.rows[0].prediction
    alone = one.rate / one.ranks / one.efficiency
    rate = f"{found.profile.unit}/s"
    header = ("ranks", "hosts", rate, "speed-up", "efficiency", "95 %", "step", "exposed", "waiting", "from")
    rows = [_cells(row, alone) for row in found.rows]
    align = ("right",) * 9 + ("left",)
    return str(tabulate(rows, header, tablefmt=form, disable_numparse=True, colalign=align))


def _cells(row: Row, alone: float) -> tuple[str, ...]:
    one = row.prediction
    reach = NONE if row.low is None or row.high is None else f"{100 * row.low:.1f}–{100 * row.high:.1f}"
    basis = row.basis if row.measured is None else f"{row.basis}: {100 * row.measured:.1f} %"
    return (
        f"{one.ranks:,}",
        f"{one.hosts:,}",
        thousands(one.rate),
        times(one.rate / alone),
        f"{100 * one.efficiency:.1f} %",
        reach,
        seconds(one.step),
        seconds(one.exposed),
        seconds(one.waiting),
        basis,
    )


def _below(found: Forecast) -> str:
    below = found.below
    assert below is not None
    if below.ranks is None:
        return f"Efficiency stays at {100 * below.bound:g} % or above at all sizes tried ({below.basis})."
    return f"Efficiency falls under {100 * below.bound:g} % at {below.ranks:,} ranks ({below.basis})."


def _tried(found: Forecast, form: str) -> str:
    rows = [
        (one.change, f"{100 * one.prediction.efficiency:.1f} %", f"{100 * one.gain:+.1f}")
        for one in found.tried
    ]
    header = (f"with … at {found.rows[-1].prediction.ranks:,} ranks", "efficiency", "points")
    align = ("left", "right", "right")
    return str(tabulate(rows, header, tablefmt=form, disable_numparse=True, colalign=align))


def _fitted(found: Forecast, form: str) -> str:
    fitted = found.fit
    assert fitted is not None
    rows = [
        (p.name, _value(p, p.value), f"{_value(p, p.low)} – {_value(p, p.high)}", _value(p, p.stated),
         "fitted" if p.fitted else "as stated: the points hardly tell it")
        for p in fitted.parameters
    ]  # fmt: skip
    table = tabulate(rows, ("parameter", "value", "95 %", "stated", ""), tablefmt=form, disable_numparse=True)
    return (
        f"{table}\nResiduals of the measured points: {100 * fitted.residual:.1f} points (root mean square)."
    )


def _value(parameter: Parameter, value: float) -> str:
    if parameter.name.startswith("bandwidth"):
        return f"{value / 1e9:.2f} GB/s"
    if parameter.name == "slowdown":
        return f"{value:.2f}×"
    return seconds(value) if parameter.name == "fixed" else f"{100 * value:.2f} %"


def _source(link: Link) -> str:
    rate = f"{link.rate / 1e9:.2f} GB/s, {seconds(link.latency)}"
    return f"{link.name}: {rate} ({link.source})"


def as_document(found: Forecast) -> dict[str, Any]:
    """Return the forecast for programs."""
    setup = asdict(found.setup)
    return {
        "schema": SCHEMA,
        "name": found.profile.name,
        "unit": found.profile.unit,
        "step_seconds": found.profile.step_seconds,
        "gradient_bytes": found.profile.size,
        "setup": setup,
        "sizes": [
            {**asdict(row.prediction), "from": row.basis, "low": row.low, "high": row.high,
             "measured": row.measured}
            for row in found.rows
        ],
        "limit": found.limit,
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

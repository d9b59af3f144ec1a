"""A scaling run, or two side by side, as one HTML page that needs nothing else: no network, no script.

Needs jinja2 and matplotlib: the extra ``ringleader[report]``.
"""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from typing import Any

from ringleader import __version__
from ringleader.errors import RefusedError
from ringleader.fabric.topology.drawing import machine_drawing
from ringleader.metrics import Spread
from ringleader.report import compare as side_by_side
from ringleader.report import table, transport
from ringleader.report.baseline import ONE, baseline_text
from ringleader.report.explain import explain, largest
from ringleader.report.number_format import percent, plural, times
from ringleader.scaling import Run, Scaling, scalings


def _needs_extra(error: ImportError) -> RefusedError:
    return RefusedError(
        f"the page needs {error.name or 'a package'}, which is not installed",
        hint="pip install 'ringleader[report]'; tables, Markdown and JSON work without it",
    )


def _unbroken(value: Any) -> Any:
    """Keep a number and its sign on one line."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def _template(name: str) -> Any:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise _needs_extra(error) from None
    environment = Environment(
        finalize=_unbroken,
        loader=PackageLoader("ringleader.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def check_installed() -> None:
    """Raise RefusedError now if a page could not be made later, after long work."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise _needs_extra(error) from None


def tiles(run: Run, results: tuple[Scaling, ...]) -> list[tuple[str, str]]:
    """Return the numbers to be seen first: (number, what it is)."""
    if not results:
        return []
    top = largest(results)
    found = []
    if top.ranks > 1 and top.speedup is not None and top.efficiency is not None:
        found = [
            (
                times(top.speedup.median),
                f"{'as fast as' if run.strong else 'the work of'} {baseline_text(run)}, "
                f"on {plural(top.ranks, 'rank')}",
            ),
            (
                percent(top.efficiency.median),
                f"efficiency: {_against_ideal(run, top.ranks)}{_extent(top.efficiency)}",
            ),
        ]
    if top.against_uncoupled is not None:
        found.append(_against_tile(top.ranks, top.against_uncoupled))
    return found


def _against_ideal(run: Run, ranks: int) -> str:
    if run.baseline == ONE:
        return f"{ranks} ranks against {ranks} times one"
    return f"{ranks} ranks against {baseline_text(run)}, in proportion"


def _against_tile(ranks: int, against: Spread) -> tuple[str, str]:
    """Return the tile of the ratio to uncoupled ranks: one number only where the repetitions show one."""
    what = f"of what {ranks} uncoupled ranks do"
    if against.count < 2:
        return percent(against.median), f"{what}, measured once"
    if against.clear_of(1.0):
        return percent(against.median), what + _extent(against)
    low, high = percent(against.low).removesuffix(" %"), percent(against.high)
    return f"{low}–{high}", f"{what}: the repetitions vary too much for one number"


def _extent(spread: Spread) -> str:
    """Return how far the repetitions reach, where they differ."""
    low, high = percent(spread.low), percent(spread.high)
    return "" if low == high else f" ({low} to {high})".replace(" to ", "\u00a0to\u00a0")


def render(run: Run) -> str:
    """Return the page of one run. RefusedError where jinja2 or matplotlib is missing."""
    template = _template("scale.html")
    try:
        from ringleader.report.plots import plots

        drawn = plots(run)
    except ImportError as error:
        raise _needs_extra(error) from None
    names, rows = table.cells(run)
    text: str = template.render(
        run=run,
        said=explain(run),
        tiles=tiles(run, scalings(run)),
        plots=drawn,
        names=names,
        rows=rows,
        facts=table.facts(run),
        samples=_samples(run),
        wires=(transport.HEADER, transport.rows(run)),
        machines=machines(run),
        date=table.day(run.context.date),
        version=__version__,
    )
    return text


def machines(run: Run) -> list[tuple[str, str]]:
    """Return (names of hosts, data URL of the drawing of their GPUs and NICs), hosts that are alike together.

    A data URL keeps the drawing's style from the page's, and whatever a stored run says from being markup.
    """
    alike: dict[str, list[str]] = {}
    for host in run.context.hosts:
        if host.devices is not None:
            drawing = machine_drawing(replace(host.devices, hostname="each host"))
            alike.setdefault(drawing, []).append(host.name)
    return [
        (", ".join(names), f"data:image/svg+xml;base64,{b64encode(drawing.encode()).decode()}")
        for drawing, names in alike.items()
    ]


def _samples(run: Run) -> list[tuple[str, str, str]]:
    """Return (size, kind, rates of all repetitions) for the reproducibility block."""
    found = []
    for point in run.points:
        for kind, samples in (("coupled", point.samples), ("uncoupled", point.uncoupled)):
            if samples:
                rates = "  ".join(f"{sample.rate:,.1f}" for sample in samples)
                found.append((f"{point.hosts}×{point.slots}", kind, rates))
    return found


def render_comparison(before: Run, after: Run) -> str:
    """Return the page of two runs. RefusedError where jinja2 is missing."""
    result = side_by_side.compare(before, after)
    names, rows = side_by_side.cells(result)
    text: str = _template("compare.html").render(
        result=result,
        names=names,
        rows=rows,
        notes=side_by_side.notes(result),
        version=__version__,
    )
    return text

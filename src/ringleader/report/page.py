"""Runs as one HTML page that needs nothing else; its script sorts tables. `page_server` serves it, live.

Needs jinja2 and matplotlib: the extra ``ringleader[report]``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ringleader import __version__
from ringleader.errors import RefusedError
from ringleader.fabric.topology.drawing import machine_drawing
from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report.compare import Comparison, differences, differences_table, notes, table
from ringleader.report.drawing import plot_style
from ringleader.report.kinds import plots, summary
from ringleader.report.regression_guard import Guard
from ringleader.report.trend import trend_plots, trend_tables


@contextmanager
def _extra() -> Iterator[None]:
    """Raise RefusedError where a package of the extra is missing."""
    try:
        yield
    except ImportError as error:
        raise RefusedError(
            f"the page needs {error.name or 'a package'}, which is not installed",
            hint="pip install 'ringleader[report]'; tables, Markdown and JSON work without it",
        ) from None


def check_installed() -> None:
    """Raise RefusedError now if a page could not be made later, after long work."""
    with _extra():
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401


def _rendered(name: str, **values: object) -> str:
    """Return a template of ours filled in. RefusedError where jinja2 is missing."""
    with _extra():
        from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("ringleader.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    text: str = environment.get_template(name).render(version=__version__, **values)
    return text


def render(
    *runs: AnyRun,
    predictions: Mapping[int, PredictionCurve] | None = None,
    comparison: Comparison | None = None,
    guard: Guard | None = None,
    faults: Sequence[str] = (),
    follow: Mapping[str, object] | None = None,
    back: str = "",
) -> str:
    """Return the page of some runs, with an index where there are several, and a comparison of two above.

    ``predictions``: index of a scaling run → its predicted speed-ups. For a page that is served, ``faults``:
    what could not be read; ``follow``: what its script is made of; ``back``: the address of the index.
    RefusedError where jinja2 or matplotlib is missing.
    """
    several = len(runs) > 1
    articles = []
    for index, run in enumerate(runs):
        with _extra():
            drawn = plots(run, (predictions or {}).get(index))
        prefix = f"run{index + 1}-" if several else ""  # of all ids of the article
        article = {"prefix": prefix, "said": summary(run), "plots": drawn, "machines": machines(run)}
        articles.append(article)
    title = f"{len(articles)} runs" if several else summary(runs[0]).headline
    compared: dict[str, Any] = {}
    if comparison is not None:
        title = comparison.headline
        said = [] if guard is None else [guard.headline, *guard.failures, *guard.warnings]
        compared = {"result": comparison, "table": table(comparison), "notes": said + notes(comparison)}
    found = differences(runs) if several else []
    trend: dict[str, Any] = {"tables": trend_tables(runs) if several else [], "plots": []}
    if trend["tables"]:
        with _extra(), plot_style():
            trend["plots"] = list(trend_plots(runs))
    return _rendered(
        "runs.html",
        articles=articles,
        title=title,
        compared=compared,
        trend=trend,
        differs=next(iter(differences_table("what", [run.name for run in runs], found)), None),
        faults=faults,
        follow=follow,
        back=back,
    )


def render_index(
    directory: str, runs: Sequence[tuple[str, AnyRun]], faults: Sequence[str], follow: Mapping[str, object]
) -> str:
    """Return the page that leads to all runs of a directory: (address, run)."""
    rows = [(address, summary(run)) for address, run in runs]
    return _rendered("index.html", directory=directory, rows=rows, faults=faults, follow=follow, back="")


def render_failure(faults: Sequence[str], follow: Mapping[str, object], back: str) -> str:
    """Return the page that stands where no run can be read."""
    return _rendered("failure.html", faults=faults, follow=follow, back=back)


def machines(run: AnyRun) -> list[tuple[str, str]]:
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

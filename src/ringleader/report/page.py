"""Runs as one HTML page that needs nothing else: no network, no script.

Needs jinja2 and matplotlib: the extra ``ringleader[report]``.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ringleader import __version__
from ringleader.errors import RefusedError
from ringleader.fabric.topology.drawing import machine_drawing
from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report import compare as side_by_side
from ringleader.report.context_facts import differences, shown_difference
from ringleader.report.drawing import Plot, prefixed
from ringleader.report.regression_guard import Guard
from ringleader.report.run_summary import NONE, RunSummary, Table
from ringleader.report.summary_of_kind import summary


@dataclass(frozen=True, kw_only=True)
class Article:
    """One run as the page shows it."""

    prefix: str
    """Of all its ids: empty where the page has one run."""
    said: RunSummary
    plots: tuple[Plot, ...]
    machines: tuple[tuple[str, str], ...]
    """(names of hosts, data URL of their drawing)."""


def _needs_extra(error: ImportError) -> RefusedError:
    return RefusedError(
        f"the page needs {error.name or 'a package'}, which is not installed",
        hint="pip install 'ringleader[report]'; tables, Markdown and JSON work without it",
    )


def _unbroken(value: Any) -> Any:
    """Keep a number and its sign on one line."""
    return value.replace(" %", "\u00a0%") if type(value) is str else value


def rendered(name: str, **values: object) -> str:
    """Return a template of ours filled in. RefusedError where jinja2 is missing."""
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
    text: str = environment.get_template(name).render(version=__version__, **values)
    return text


def check_installed() -> None:
    """Raise RefusedError now if a page could not be made later, after long work."""
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ImportError as error:
        raise _needs_extra(error) from None


def render(run: AnyRun, prediction: PredictionCurve | None = None) -> str:
    """Return the page of one run. RefusedError where jinja2 or matplotlib is missing."""
    return render_several([run], {0: prediction} if prediction is not None else {})


def render_several(
    runs: Sequence[AnyRun],
    predictions: Mapping[int, PredictionCurve] | None = None,
    *,
    comparison: side_by_side.Comparison | None = None,
    guard: Guard | None = None,
    faults: Sequence[str] = (),
    script: str = "",
    back: str = "",
) -> str:
    """Return the page of some runs, with an index where there are several, and a comparison of two above.

    ``predictions``: index of a scaling run → its predicted speed-ups. For a page that is served, ``faults``:
    what could not be read; ``script``: HTML at its end; ``back``: the address of the index.
    """
    several = len(runs) > 1
    articles = [
        _article(run, f"run{index + 1}-" if several else "", (predictions or {}).get(index))
        for index, run in enumerate(runs)
    ]
    return rendered(
        "runs.html",
        articles=articles,
        title=_title(articles, comparison),
        compared=None if comparison is None else _compared(comparison, guard),
        differs=_differs(runs) if several else None,
        faults=faults,
        script=script,
        back=back,
    )


def render_index(
    directory: str, runs: Sequence[tuple[str, AnyRun]], faults: Sequence[str] = (), *, script: str = ""
) -> str:
    """Return the page that leads to all runs of a directory: (address, run)."""
    rows = [(address, summary(run)) for address, run in runs]
    return rendered("index.html", directory=directory, rows=rows, faults=faults, script=script, back="")


def render_failure(faults: Sequence[str], *, script: str = "", back: str = "") -> str:
    """Return the page that stands where no run can be read."""
    return rendered("failure.html", faults=faults, script=script, back=back)


def render_comparison(before: AnyRun, after: AnyRun) -> str:
    """Return the page of two runs of one kind. RefusedError where a package is missing."""
    return render_several([before, after], comparison=side_by_side.compare(before, after))


def _title(articles: Sequence[Article], comparison: side_by_side.Comparison | None) -> str:
    if comparison is not None:
        return comparison.headline
    return articles[0].said.headline if len(articles) == 1 else f"{len(articles)} runs"


def _article(run: AnyRun, prefix: str, prediction: PredictionCurve | None) -> Article:
    try:
        from ringleader.report.plots_of_kind import plots

        drawn = plots(run, prediction)
    except ImportError as error:
        raise _needs_extra(error) from None
    if prefix:
        drawn = [replace(plot, svg=prefixed(plot.svg, prefix)) for plot in drawn]
    return Article(prefix=prefix, said=summary(run), plots=tuple(drawn), machines=tuple(machines(run)))


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


def _differs(runs: Sequence[AnyRun]) -> Table | None:
    found = [(name, shown_difference(name, texts)) for name, texts in differences(runs)]
    rows = tuple((name, *(text or NONE for text in texts)) for name, texts in found)
    names = ("what", *(run.name for run in runs))
    return Table(key="differs", title="What differs", names=names, rows=rows, is_prose=True) if rows else None


def _compared(result: side_by_side.Comparison, guard: Guard | None) -> Mapping[str, Any]:
    names, rows = side_by_side.cells(result)
    note = side_by_side.HOW_TO_READ
    table = Table(key="compared", title="Compared", names=names, rows=tuple(rows), note=note)
    notes = [] if guard is None else [guard.headline, *guard.failures, *guard.warnings]
    return {"result": result, "table": table, "notes": notes + side_by_side.notes(result)}

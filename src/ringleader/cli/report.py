"""``ringleader report``: render a stored run again, or compare two."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from ringleader.bench import store
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.report import compare as side_by_side
from ringleader.report import table
from ringleader.scaling import Run
from ringleader.text_files import write_text

FORMATS = ("table", "markdown", "json", "html")


def _one(run: Run, form: str) -> str:
    if form == "html":
        from ringleader.report.page import render

        return render(run)
    return {"table": table.as_text, "markdown": table.as_markdown, "json": table.as_json}[form](run)


def _two(before: Run, after: Run, form: str) -> str:
    if form == "html":
        from ringleader.report.page import render_comparison

        return render_comparison(before, after)
    result = side_by_side.compare(before, after)
    texts = {
        "table": side_by_side.as_text,
        "markdown": side_by_side.as_markdown,
        "json": side_by_side.as_json,
    }
    return texts[form](result)


def _stored(paths: tuple[str, ...]) -> list[Run]:
    """Read every run; RequestError with the faults of all of them."""
    runs: list[Run] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            runs.append(store.read(Path(path)))
        except RequestError as error:
            faults += error.faults
    if not 1 <= len(paths) <= 2:
        hint = "ringleader report runs/NAME, or two of them to compare"
        faults.append(Fault(where="RUN", what=f"{len(paths)} stored runs given", hint=hint))
    if faults:
        raise RequestError(faults)
    return runs


@click.command(name="report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("runs", nargs=-1, metavar="RUN [RUN2]")
@click.option(
    "--format",
    "form",
    default="table",
    show_default=True,
    type=click.Choice(FORMATS),
    help="How to render it.",
)
@click.option("-o", "--output", metavar="FILE", help="Write to a file instead of standard output.")
def command(runs: tuple[str, ...], form: str, output: str | None) -> None:
    """Render a run that `ringleader scale` kept, or compare two: the second against the first."""
    found = _stored(runs)
    text = _one(found[0], form) if len(found) == 1 else _two(found[0], found[1], form)
    if output is None:
        sys.stdout.write(text)
        return
    try:
        write_text(output, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(Fault(where=output, what=what)) from None

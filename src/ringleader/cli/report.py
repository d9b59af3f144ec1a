"""``ringleader report``: render a stored run again, or compare two."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import click

from ringleader.bench import run_file
from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions, opened
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import Fault, RefusedError, RequestError, collected
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
        with collected(faults):
            runs.append(run_file.read(Path(path)))
    if not 1 <= len(paths) <= 2:
        hint = "ringleader report runs/NAME, or two of them to compare"
        faults.append(Fault(where="RUN", what=f"{len(paths)} stored runs given", hint=hint))
    if faults:
        raise RequestError(faults)
    return runs


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options, as they were written."""

    runs: tuple[str, ...]
    format: str = "table"
    output: str | None = None
    json: JsonOptions = field(default_factory=JsonOptions)


def report(options: ReportOptions) -> None:
    """Render a run, or compare two."""
    found = _stored(options.runs)

    def rendered(form: str) -> str:
        return _one(found[0], form) if len(found) == 1 else _two(found[0], found[1], form)

    text = rendered("json" if options.json.json else options.format)
    with opened(options.json.json_file) as file:
        if file is not None:
            file.write(json.loads(rendered("json")))
    if options.output is None:
        sys.stdout.write(text)
        return
    try:
        write_text(options.output, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(Fault(where=options.output, what=what)) from None


command = Command(
    "report",
    options=ReportOptions,
    run=report,
    params=[
        click.Argument(["runs"], nargs=-1, metavar="RUN [RUN2]"),
        Option(
            ["--format"],
            default="table",
            show_default=True,
            type=click.Choice(FORMATS),
            help="How to render it.",
        ),
        *JSON_OPTIONS,
        Option(["-o", "--output"], metavar="FILE", help="Write to a file instead of standard output."),
    ],
    help="Render a run that `ringleader scale` kept, or compare two: the second against the first.",
)

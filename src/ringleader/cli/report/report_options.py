"""Options of ``ringleader report``, and what does not go together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import click

from ringleader.cli.json_output import JSON_OPTIONS, JsonOptions
from ringleader.cli.options.option_checks import unwritable
from ringleader.cli.typed_command import REPLACE, Option
from ringleader.errors import Fault

FORMATS = ("table", "markdown", "json", "html")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options, as they were written."""

    runs: tuple[str, ...]
    format: str | None = None
    output: str | None = None
    replace: bool = False
    against: str | None = None
    fail_below: str | None = None
    allow_missing: bool = False
    serve: bool = False
    port: str | None = None
    json: JsonOptions = field(default_factory=JsonOptions)


def parameters() -> list[click.Parameter]:
    """Return the argument and the options."""
    return [
        click.Argument(["runs"], nargs=-1, metavar="[RUN…|DIR]"),
        Option(["--format"], type=click.Choice(FORMATS), help="How to render it. [default: table]"),
        *JSON_OPTIONS,
        Option(["-o", "--output"], metavar="FILE", help="Write to a file instead of standard output."),
        Option([*REPLACE], is_flag=True, help="Let -o write over a file."),
        Option(["--against"], metavar="BASELINE", help="Compare RUN with this run."),
        Option(
            ["--fail-below"],
            metavar="RATIO",
            help="Exit with 1 where RUN is surely below this part of BASELINE (0.9), failed, or lacks numbers"
            " of it.",
        ),
        Option(["--allow-missing"], is_flag=True, help="Let --fail-below pass where RUN lacks numbers."),
        Option(["--serve"], is_flag=True, help="Show the page at a local address; it follows its runs."),
        Option(["--port"], metavar="N", help="For --serve. [default: a free one]"),
    ]


def faults_of(options: ReportOptions) -> list[Fault]:
    """Return all that is wrong with the command line itself."""
    return list(_faults(options))


def _faults(options: ReportOptions) -> Iterator[Fault]:
    if options.serve:
        yield from _beside_serve(options)
    elif not options.runs:
        hint = "ringleader report runs/NAME, or several of them"
        yield Fault(where="RUN", what="no stored run given", hint=hint)
    if options.port is not None:
        if not options.serve:
            yield Fault(where="--port", what="counts with --serve only")
        if port_of(options) is None:
            hint = "0 to 65535; 0 takes a free one"
            yield Fault(where="--port", what=f"{options.port} is not a port", hint=hint)
    if options.against is not None and (not options.against or len(options.runs) != 1):
        what = f"compares one RUN; {len(options.runs)} given" if options.against else "is empty"
        yield Fault(where="--against", what=what)
    if options.fail_below is not None:
        if options.against is None:
            yield Fault(where="--fail-below", what="needs a run to compare with", hint="add --against RUN")
        if threshold_of(options) is None:
            what = f"{options.fail_below} is not a number above 0"
            yield Fault(where="--fail-below", what=what, hint="0.9")
    elif options.allow_missing:
        yield Fault(where="--allow-missing", what="counts with --fail-below only")
    yield from unwritable("-o", options.output)
    if options.replace and options.output is None:
        yield Fault(where="--replace", what="counts with -o only")


def threshold_of(options: ReportOptions) -> float | None:
    """Return ``--fail-below``; ``None`` where it is not given, or no number above 0."""
    try:
        number = float(options.fail_below or "")
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def port_of(options: ReportOptions) -> int | None:
    """Return ``--port``; ``None`` where it is not given, or no port."""
    try:
        number = int(options.port or "")
    except ValueError:
        return None
    return number if 0 <= number <= 65535 else None


def _beside_serve(options: ReportOptions) -> Iterator[Fault]:
    others = {
        "-o": options.output,
        "--json": options.json.json,
        "--json-file": options.json.json_file,
        "--against": options.against,
        "--format": options.format,
    }
    for name, value in others.items():
        if value:
            yield Fault(where="--serve", what=f"shows a page; {name} does not go with it")

"""``ringleader report``: render stored runs again, compare two, guard against a regression, serve a page."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ringleader.cli.json_output import JsonOptions, check_not_read, opened
from ringleader.cli.options.option_checks import unwritable
from ringleader.cli.report.stored_runs import predictions_of, read_runs
from ringleader.cli.typed_command import REPLACE, Command
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.measurements.collective import CollectiveRun
from ringleader.measurements.elastic import ElasticRun
from ringleader.measurements.run_kinds import AnyRun
from ringleader.option_fields import argument, flag, group, option
from ringleader.report import compare as side_by_side
from ringleader.report import regression_guard, summary_text
from ringleader.report.comparable_rates import incomparable
from ringleader.report.number_format import plural
from ringleader.text_files import write_text

NOT_GOOD_ENOUGH = 1
"""Exit code where something was measured, and is not as good as it was asked to be."""


FORMATS = ("table", "markdown", "json", "html")


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options, as they were written."""

    runs: tuple[str, ...] = argument("[RUN…|DIR]", default=())
    format: str | None = option("How to render it. [default: table]", choices=FORMATS)
    json: JsonOptions = group(JsonOptions)
    output: str | None = option(
        "Write to a file instead of standard output.", "-o", "--output", metavar="FILE"
    )
    replace: bool = flag("Let -o write over a file.", *REPLACE)
    against: str | None = option("Compare RUN with this run.", metavar="BASELINE")
    fail_below: float | None = option(
        "Exit with 1 where RUN is surely below this part of BASELINE (0.9), failed, or lacks numbers of it.",
        metavar="RATIO",
        above=0,
        wrong="{} is not a number above 0",
        unreadable="is not a number above 0",
        hint="0.9",
    )
    allow_missing: bool = flag("Let --fail-below pass where RUN lacks numbers.")
    serve: bool = flag("Show the page at a local address; it follows its runs.")
    port: int | None = option(
        "For --serve. [default: a free one]",
        metavar="N",
        least=0,
        most=65535,
        wrong="{} is not a port",
        unreadable="is not a port",
        hint="0 to 65535; 0 takes a free one",
    )
    faults: tuple[Fault, ...] = ()


def report(options: ReportOptions) -> int:
    """Render runs in one of the formats; return the exit code."""
    faults = faults_of(options)
    if faults:
        raise RequestError(faults)
    if options.serve:
        from ringleader.cli.report.serve import serve

        return serve(options.runs, options.port or 0)
    if options.output is not None:
        check_not_read("-o", options.output, _inputs(options))
        if not options.replace:
            _check_free(options.output)
    if options.against is not None:
        after, before = read_runs([*options.runs, options.against])
        return _compared(before, after, options)
    runs = read_runs(options.runs)
    if len(runs) == 2 and not incomparable(*runs):
        return _compared(runs[0], runs[1], options)
    _write(options, lambda form: _rendered(runs, form))
    return 0


def faults_of(options: ReportOptions) -> list[Fault]:
    """Return all that is wrong with the command line itself."""
    return [*options.faults, *_faults(options)]


def _faults(options: ReportOptions) -> Iterator[Fault]:
    if options.serve:
        yield from _beside_serve(options)
    elif not options.runs:
        hint = "ringleader report runs/NAME, or several of them"
        yield Fault(where="RUN", what="no stored run given", hint=hint)
    if options.port is not None and not options.serve:
        yield Fault(where="--port", what="counts with --serve only")
    if options.against is not None and (not options.against or len(options.runs) != 1):
        what = f"compares one RUN; {len(options.runs)} given" if options.against else "is empty"
        yield Fault(where="--against", what=what)
    if options.fail_below is not None:
        if options.against is None:
            yield Fault(where="--fail-below", what="needs a run to compare with", hint="add --against RUN")
    elif options.allow_missing and all(fault.where != "--fail-below" for fault in options.faults):
        yield Fault(where="--allow-missing", what="counts with --fail-below only")
    yield from unwritable("-o", options.output)
    if options.replace and options.output is None:
        yield Fault(where="--replace", what="counts with -o only")


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


def _inputs(options: ReportOptions) -> list[str]:
    return [*options.runs, *([] if options.against is None else [options.against])]


def _rendered(runs: Sequence[AnyRun], form: str) -> str:
    if form == "html":
        from ringleader.report.page import render_several

        return render_several(runs, predictions_of(runs))
    texts = {
        "table": summary_text.as_text,
        "markdown": summary_text.as_markdown,
        "json": summary_text.as_json,
    }
    return texts[form](runs)


def _compared(before: AnyRun, after: AnyRun, options: ReportOptions) -> int:
    threshold = options.fail_below
    if threshold is not None and isinstance(after, CollectiveRun) and after.wrong:
        wrong = f"{plural(after.wrong, 'wrong element')} (#wrong)"
        print(f"ringleader: {after.name}: {wrong}, so its rates mean nothing", file=sys.stderr)
        return NOT_GOOD_ENOUGH
    result = side_by_side.compare(before, after)
    guard = None
    if threshold is not None:
        failure = "" if isinstance(after, ElasticRun) else after.failure
        guard = regression_guard.judge(
            result, threshold, run_failure=failure, allow_missing=options.allow_missing
        )

    def rendered(form: str) -> str:
        if form == "html":
            from ringleader.report.page import render_several

            runs = [before, after]
            return render_several(runs, predictions_of(runs), comparison=result, guard=guard)
        return regression_guard.rendered(result, guard, form)

    _write(options, rendered)
    if guard is None:
        return 0
    for text in guard.warnings:
        print(f"ringleader: {text}", file=sys.stderr)
    for text in guard.failures:
        print(f"ringleader: {text}", file=sys.stderr)
    return 0 if guard.passed else NOT_GOOD_ENOUGH


def _write(options: ReportOptions, rendered: Callable[[str], str]) -> None:
    """Print or write what ``rendered`` returns for the format asked for."""
    text = rendered("json" if options.json.json else options.format or "table")
    with opened(options.json.json_file, _inputs(options)) as file:
        if file is not None:
            file.write(json.loads(rendered("json")))
    if options.output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        write_text(options.output, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(Fault(where=options.output, what=what)) from None


def _check_free(path: str) -> None:
    """Raise RequestError where a file is there that would be lost; a pipe or a device is none."""
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return
    if is_file and Path(path).stat().st_size:
        hint = "name another, or add --replace to write over it"
        raise RequestError(Fault(where="-o", what=f"{path} is there already", hint=hint))


command = Command(
    "report",
    options=ReportOptions,
    run=report,
    help="Render runs that `scale` and `bench` kept, and what happened to an elastic job (`run --json-file`)."
    " Two of a kind are compared, the second with the first.",
)

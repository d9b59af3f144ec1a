"""``ringleader report``: stored runs rendered, compared, guarded, and served at a loopback address."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ringleader.bench import run_file
from ringleader.cli.options.option_checks import unwritable
from ringleader.cli.output import JsonOptions, check_not_read, result_to
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import REPLACE, Command
from ringleader.errors import Fault, RefusedError, RequestError, collected, refuse
from ringleader.launch.job_record import is_running
from ringleader.measurements.prediction_curve import PredictionCurve
from ringleader.measurements.recorded_job import JobRun
from ringleader.measurements.run_kinds import AnyRun
from ringleader.number_format import plural
from ringleader.option_fields import argument, flag, group, option, spellings_set
from ringleader.predict.speedup_curve import speedup_curve
from ringleader.report.compare import compare, incomparable
from ringleader.report.exports import DIRECTORIES, TEXTS
from ringleader.report.page import check_installed, render, render_failure, render_index
from ringleader.report.page_server import LOOPBACK, PageServer, Source
from ringleader.report.regression_guard import Guard, judge
from ringleader.report.text import comparison_text, runs_text
from ringleader.scaling import Run
from ringleader.text_files import write_text


def read_runs(paths: Sequence[str]) -> list[AnyRun]:
    """Read every run, those of one name told apart by their paths; RequestError with all faults."""
    with shown_while("reading the runs"):
        runs, faults = _read([Path(path) for path in paths])
    refuse(faults)
    names = Counter(run.name for run in runs)
    return [
        run if names[run.name] == 1 else replace(run, name=f"{run.name} ({path})")
        for run, path in zip(runs, paths, strict=True)
    ]


def _read(paths: Sequence[Path]) -> tuple[list[AnyRun], list[Fault]]:
    """Return the runs that can be read, and what is wrong with the others."""
    runs: list[AnyRun] = []
    faults: list[Fault] = []
    for path in paths:
        with collected(faults):
            runs.append(run_file.read_any(path))
    return runs, faults


def predictions_of(runs: Sequence[AnyRun]) -> dict[int, PredictionCurve]:
    """Return index → predicted speed-ups of the scaling runs that tell enough for it."""
    found = {index: speedup_curve(run) for index, run in enumerate(runs) if isinstance(run, Run)}
    return {index: curve for index, curve in found.items() if curve.sizes}


REST = 10.0
"""Making the page of a job that runs takes at most an eleventh of a core."""
DEFAULT = "runs"
"""Where commands keep their runs."""


def serve(paths: Sequence[str], port: int) -> int:
    """Serve until a signal ends it. RefusedError where the port or a package is missing."""
    check_installed()
    given = [Path(path) for path in paths or (DEFAULT,)]
    hint = "ringleader report --serve runs"
    missing = [str(path) for path in given if not path.exists()]
    refuse([Fault(where=path, what="there is no such file or directory", hint=hint) for path in missing])
    try:
        server = PageServer(partial(source_of, given), port, tell=_tell)
    except OSError as error:
        what = f"cannot listen on {LOOPBACK}: {error.strerror or error}"
        raise RefusedError(what, where=f"--port {port}", hint="take another one") from None
    _tell(f"http://{LOOPBACK}:{server.port}/ (Ctrl-C ends it)")
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
    return 0


def _tell(*texts: str) -> None:
    for text in texts:
        print(f"ringleader: {text}", file=sys.stderr, flush=True)


def source_of(given: Sequence[Path], path: str) -> Source | None:
    """Return what a path shows: ``""`` all that was given, ``runs/NAME`` one run of a directory of runs."""
    is_of_runs = len(given) == 1 and given[0].is_dir() and not run_file.file_in(given[0]).exists()
    if not path and is_of_runs:
        return Source(
            version=lambda: version_of(runs_in(given[0])), page=lambda follow: _index(given[0], follow)
        )
    shown, back = list(given), ""
    if is_of_runs:
        shown, back = [one for one in runs_in(given[0]) if path == f"runs/{one.name}"], "/"
    elif path:
        shown = []
    if not shown:
        return None
    live = any(is_running(run_file.file_in(one)) for one in shown)
    return Source(
        version=lambda: version_of(shown),
        page=lambda follow: _page(shown, follow, back),
        rest=REST if live else 0.0,
    )


def runs_in(directory: Path) -> list[Path]:
    """Return the directories in it that hold a run, the one written last first."""
    try:
        found = [one for one in directory.iterdir() if one.is_dir() and run_file.file_in(one).is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda one: (_stamp(one), one.name), reverse=True)


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes with a run's file: (time of the last change, length, inode); zeros: it is gone."""
    try:
        status = run_file.file_in(path).stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def version_of(paths: Sequence[Path]) -> str:
    """Return a text that is another one once a file has changed, come or gone."""
    stamps = ((quote(os.fsencode(path.name)), *map(str, _stamp(path))) for path in paths)
    return " ".join("-".join(stamp) for stamp in stamps) or "none"


def _page(paths: Sequence[Path], follow: Mapping[str, object], back: str) -> str:
    runs, faults = _read(paths)
    told = [str(fault) for fault in faults]
    if not runs:
        return render_failure(told, follow, back)
    return render(*runs, predictions=predictions_of(runs), faults=told, follow=follow, back=back)


def _index(directory: Path, follow: Mapping[str, object]) -> str:
    rows: list[tuple[str, AnyRun]] = []
    faults: list[str] = []
    for path in runs_in(directory):
        found, wrong = _read([path])
        rows += [(f"/runs/{quote(os.fsencode(path.name), safe='')}", run) for run in found]
        faults += map(str, wrong)
    return render_index(str(directory), rows, faults, follow)


NOT_GOOD_ENOUGH = 1
"""Exit code where something was measured, and is not as good as it was asked to be."""


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """The options, as they were written."""

    runs: tuple[str, ...] = argument("[RUN…|DIR]", default=())
    format: str | None = option(
        "Output format. Runs recorded by `run --report` can also be exported: as a Perfetto trace, "
        "Prometheus text, OTLP JSON, or a TensorBoard or MLflow directory (-o). [default: table]",
        choices=("table", "markdown", "html", *TEXTS, *DIRECTORIES),
        old_choices=("json",),
    )
    json: JsonOptions = group(JsonOptions)
    output: str | None = option(
        "Write to this file, or for tensorboard and mlflow to this directory, instead of standard output.",
        "-o",
        "--output",
        called="-o",
        metavar="FILE",
    )
    replace: bool = flag("Overwrite the file of -o.", **REPLACE)
    against: str | None = option("Compare RUN with this run.", metavar="BASELINE")
    fail_below: float | None = option(
        "Exit with code 1 if RUN's speed is significantly below RATIO (such as 0.9) of BASELINE's, if RUN "
        "failed, or if it lacks a number that BASELINE has.",
        metavar="RATIO",
        above=0,
        wrong="{} is not a number above 0",
        unreadable="is not a number above 0",
        hint="0.9",
    )
    allow_missing: bool = flag("Do not fail because RUN lacks some of BASELINE's numbers.")
    serve: bool = flag(
        "Serve the page at a local address; it is updated when its runs change, also while a job runs."
    )
    port: int | None = option(
        "Port of --serve. [default: a free one]",
        metavar="N",
        least=0,
        most=65535,
        wrong="{} is not a port",
        unreadable="is not a port",
        hint="0 to 65535; 0 takes a free one",
    )
    faults: tuple[Fault, ...] = ()


@Command.of(
    "report",
    ReportOptions,
    help="Show runs stored by `scale` and `bench`, jobs recorded by `run --report DIR`, and the history of "
    "an elastic job (`run --json-file FILE`). Given two runs of the same kind, compare the second with the "
    "first. Given three or more, show the trend. RUN is the path of a stored run; with --serve, DIR is "
    "a directory of runs.",
)
def command(options: ReportOptions) -> int:
    """Render runs in one of the formats; return the exit code."""
    refuse(list(_faults(options)))
    if options.serve:
        return serve(options.runs, options.port or 0)
    if options.output is not None:
        check_not_read("-o", options.output, _inputs(options))
        if not options.replace:
            _check_free(options.output)
    if options.against is not None:
        after, before = read_runs([*options.runs, options.against])
        return _compared(before, after, options)
    runs = read_runs(options.runs)
    if options.format in (*TEXTS, *DIRECTORIES):
        return _export(runs[0], options.format, options)
    if len(runs) == 2 and not incomparable(*runs):
        return _compared(runs[0], runs[1], options)

    def rendered(form: str) -> str:
        return render(*runs, predictions=predictions_of(runs)) if form == "html" else runs_text(runs, form)

    _write(options, rendered)
    return 0


def _export(run: AnyRun, form: str, options: ReportOptions) -> int:
    """Write a recorded run for another program. RequestError for a run of another kind."""
    if not isinstance(run, JobRun):
        what = f"holds a {run.kind} run; --format {form} is for runs that `run --report` recorded"
        raise RequestError(what, where=options.runs[0])
    if form in DIRECTORIES:
        with shown_while("writing the run"):
            DIRECTORIES[form](run, Path(options.output or ""))
    else:
        _write(options, lambda wanted: TEXTS[form](run) if wanted == form else runs_text([run], wanted))
    return 0


def _faults(options: ReportOptions) -> Iterator[Fault]:
    """Yield all that is wrong with the command line itself."""
    yield from options.faults
    if options.serve:
        others = spellings_set(options, "output against format") + spellings_set(options.json)
        for name in others:
            yield Fault(where="--serve", what=f"shows a page; {name} does not go with it")
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
    yield from _faults_of_output(options)
    if options.replace and options.output is None:
        yield Fault(where="--replace", what="counts with -o only")


def _faults_of_output(options: ReportOptions) -> Iterator[Fault]:
    """Yield what is wrong with the form and the place of the output."""
    where = f"--format {options.format}"
    if options.format not in DIRECTORIES:
        yield from unwritable("-o", options.output)
    elif options.output is None:
        yield Fault(where=where, what="writes a directory", hint="name it with -o")
    if options.format in (*TEXTS, *DIRECTORIES) and (options.against is not None or len(options.runs) > 1):
        yield Fault(where=where, what="writes one run, and compares nothing")


def _inputs(options: ReportOptions) -> list[str]:
    return [*options.runs, *([] if options.against is None else [options.against])]


def _compared(before: AnyRun, after: AnyRun, options: ReportOptions) -> int:
    threshold = options.fail_below
    if threshold is not None and after.wrong:
        wrong = f"{plural(after.wrong, 'wrong element')} (#wrong)"
        _tell(f"{after.name}: {wrong}, so its rates mean nothing")
        return NOT_GOOD_ENOUGH
    result = compare(before, after)
    guard: Guard | None = None
    if threshold is not None:
        guard = judge(result, threshold, run_failure=after.failure, allow_missing=options.allow_missing)

    def rendered(form: str) -> str:
        if form != "html":
            return comparison_text(result, guard, form)
        predictions = predictions_of([before, after])
        return render(before, after, predictions=predictions, comparison=result, guard=guard)

    _write(options, rendered)
    if guard is None:
        return 0
    _tell(*guard.warnings, *guard.failures)
    return 0 if guard.passed else NOT_GOOD_ENOUGH


def _write(options: ReportOptions, rendered: Callable[[str], str]) -> None:
    """Print or write what ``rendered`` returns for the format asked for."""
    with shown_while("rendering the report"):
        text = rendered("json" if options.json.json else options.format or "table")
    with result_to(options.json, _inputs(options)) as result:
        if options.json.json_file is not None:
            result.write(json.loads(rendered("json")))
    if options.output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        write_text(options.output, text)
    except OSError as error:
        what = f"cannot be written: {error.strerror or error}"
        raise RefusedError(what, where=options.output) from None


def _check_free(path: str) -> None:
    """Raise RequestError where a file is there that would be lost; a pipe or a device is none."""
    try:
        is_file = stat.S_ISREG(os.stat(path).st_mode)  # noqa: PTH116
    except OSError:
        return
    if is_file and Path(path).stat().st_size:
        hint = "name another, or add --replace to write over it"
        raise RequestError(f"{path} already exists", where="-o", hint=hint)

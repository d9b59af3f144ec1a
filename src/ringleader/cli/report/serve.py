"""``ringleader report --serve``: the page of stored runs at a loopback address, following its files."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from urllib.parse import quote

from ringleader.bench import run_file
from ringleader.cli.report.stored_runs import predictions_of
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.measurements.run_kinds import AnyRun
from ringleader.report.page import check_installed, render_failure, render_index, render_several
from ringleader.report.page_server import LOOPBACK, PageServer, Source

DEFAULT = "runs"
"""Where commands keep their runs."""


def serve(paths: Sequence[str], port: int) -> int:
    """Serve until a signal ends it. RefusedError where the port or a package is missing."""
    check_installed()
    given = [Path(path) for path in paths or (DEFAULT,)]
    faults = [
        Fault(
            where=str(path), what="there is no such file or directory", hint="ringleader report --serve runs"
        )
        for path in given
        if not path.exists()
    ]
    if faults:
        raise RequestError(faults)
    try:
        server = PageServer(partial(source_of, given), port, tell=_tell)
    except OSError as error:
        what = f"cannot listen on {LOOPBACK}: {error.strerror or error}"
        raise RefusedError(Fault(where=f"--port {port}", what=what, hint="take another one")) from None
    _tell(f"http://{LOOPBACK}:{server.port}/ (Ctrl-C ends it)")
    try:
        server.serve_forever(poll_interval=0.2)
    finally:
        server.server_close()
    return 0


def _tell(text: str) -> None:
    print(f"ringleader: {text}", file=sys.stderr, flush=True)


def source_of(given: Sequence[Path], path: str) -> Source | None:
    """Return what a path shows: ``""`` all that was given, ``runs/NAME`` one run of a directory."""
    if len(given) == 1 and is_directory_of_runs(given[0]):
        return _of_directory(given[0], path)
    if path:
        return None
    return Source(version=lambda: version_of(given), page=lambda script: _page(given, script))


def is_directory_of_runs(path: Path) -> bool:
    """Tell a directory whose directories hold runs from a run's own."""
    return path.is_dir() and not (path / run_file.FILE).exists()


def _of_directory(directory: Path, path: str) -> Source | None:
    if not path:
        return Source(
            version=lambda: version_of(runs_in(directory)), page=lambda script: _index(directory, script)
        )
    first, _, name = path.partition("/")
    run = next((one for one in runs_in(directory) if one.name == name), None)
    if first != "runs" or run is None:
        return None
    return Source(version=lambda: version_of([run]), page=lambda script: _page([run], script, back="/"))


def runs_in(directory: Path) -> list[Path]:
    """Return the directories in it that hold a run, the one written last first."""
    try:
        found = [one for one in directory.iterdir() if (one / run_file.FILE).is_file()]
    except OSError:
        return []
    return sorted(found, key=lambda one: (_stamp(one), one.name), reverse=True)


def _stamp(path: Path) -> tuple[int, int, int]:
    """Return what changes with a run's file: (time of the last change, length, inode); zeros: it is gone."""
    file = path / run_file.FILE if path.is_dir() else path
    try:
        status = file.stat()
    except OSError:
        return (0, 0, 0)
    return (status.st_mtime_ns, status.st_size, status.st_ino)


def version_of(paths: Sequence[Path]) -> str:
    """Return a text that is another one once a file has changed, come or gone."""
    stamps = ((quote(os.fsencode(path.name)), *map(str, _stamp(path))) for path in paths)
    return " ".join("-".join(stamp) for stamp in stamps) or "none"


def _read(paths: Sequence[Path]) -> tuple[list[AnyRun], list[str]]:
    """Return the runs that can be read, and what is wrong with the others."""
    runs: list[AnyRun] = []
    faults: list[str] = []
    for path in paths:
        try:
            runs.append(run_file.read_any(path))
        except RequestError as error:
            faults += [str(fault) for fault in error.faults]
    return runs, faults


def _page(paths: Sequence[Path], script: str, back: str = "") -> str:
    runs, faults = _read(paths)
    if not runs:
        return render_failure(faults, script=script, back=back)
    return render_several(runs, predictions_of(runs), faults=faults, script=script, back=back)


def _index(directory: Path, script: str) -> str:
    rows: list[tuple[str, AnyRun]] = []
    faults: list[str] = []
    for path in runs_in(directory):
        found, wrong = _read([path])
        rows += [(f"/runs/{quote(os.fsencode(path.name), safe='')}", run) for run in found]
        faults += wrong
    return render_index(str(directory), rows, faults, script=script)

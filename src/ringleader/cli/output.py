"""Results of all commands: JSON on standard output and in the file of ``--json-file``, tables for people."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from io import FileIO
from pathlib import Path
from typing import Any

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.option_fields import flag, option
from ringleader.value_class import dataclass


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """Where a result goes as JSON: to standard output in place of the text for people, or to a file too."""

    json: bool = flag("Print JSON.")
    json_file: str | None = option("Also write the JSON to FILE (overwrites).", metavar="FILE")


OF_A_JOB = {
    "json": "Print the outcome as JSON, job output on stderr.",
    "json_file": "Also write the outcome to FILE (overwrites).",
}
"""What the help says of a job, whose own output has standard output unless ``--json`` takes it."""


def table(
    rows: Sequence[Sequence[object]], headers: Sequence[str] = (), *, form: str = "simple", align: str = ""
) -> str:
    """Return lines of columns without the last line's end; ``form`` is tabulate's name of a format.

    ``align``: ``l`` or ``r`` for the edge that a column is aligned at, the last for all that follow.
    """
    from tabulate import tabulate  # most jobs start without it

    edges = align.ljust(len(headers), align[-1:] or " ") if rows else ""
    columns = [{"l": "left", "r": "right"}[edge] for edge in edges.strip()] or None
    return str(tabulate(rows, headers, tablefmt=form, disable_numparse=True, colalign=columns))


def is_colored() -> bool:
    """Return whether standard output is a terminal that shows colors, which nobody has switched off."""
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return wanted and sys.stdout is not None and sys.stdout.isatty()


COLORS = {"FAIL": "1;31", "WARN": "1;33", "PASS": "32"}
"""Verdict at the beginning of a line → how a terminal shows it. The word itself says the same."""


def colored(text: str) -> str:
    """Return a text for people, on a terminal with its verdicts in color."""
    if not is_colored():
        return text
    pattern = rf"^( *)({'|'.join(COLORS)})\b"
    return re.sub(pattern, lambda m: f"{m[1]}\x1b[{COLORS[m[2]]}m{m[2]}\x1b[0m", text, flags=re.MULTILINE)


def dumped(value: object) -> str:
    """Return JSON as it is printed and written."""
    import json  # most jobs start without it

    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def check_not_read(where: str, path: str, inputs: Sequence[str]) -> None:
    """Raise RequestError where a result would be written over what it is made from.

    ``where``: the option that named ``path``. ``inputs``: files, or directories of stored runs.
    """
    if not inputs or not Path(path).exists():
        return
    from ringleader.bench import run_file  # most jobs start without it

    for name in inputs:
        for source in (Path(name), run_file.file_in(Path(name))):
            if source.is_file() and source.samefile(path):
                what = f"{path} is read by this command, and would be lost"
                raise RequestError(what, where=where, hint="name another file")


class Result:
    """Where the result of a command goes: standard output, and the file of ``--json-file``.

    The file is opened before any work, so that a wrong place is found in time. What was in it stays until
    there is a result to write, which replaces it as a redirection does: a job that is started by a script,
    again and again, names the same file. Opening waits for no reader of a pipe.
    """

    def __init__(self, options: JsonOptions) -> None:
        """Open or make the file. Raises RequestError where that cannot be."""
        self._options, self._made = options, False
        self._file: FileIO | None = None
        if options.json_file is None:
            return
        self._made = not Path(options.json_file).exists()
        try:
            descriptor = os.open(options.json_file, os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK, 0o666)
        except OSError as error:
            raise RequestError(self._unwritable(error)) from None
        os.set_blocking(descriptor, True)
        self._file = FileIO(descriptor, "w")

    def _unwritable(self, error: OSError) -> Fault:
        what = f"{self._options.json_file} cannot be written: {error.strerror or error}"
        return Fault(where="--json-file", what=what)

    def write(self, value: object) -> None:
        """Write JSON to the file, if one was asked for. Raises RefusedError where there is no room."""
        if self._file is None:
            return
        self._made = False
        data = dumped(value).encode(errors="surrogateescape")
        try:
            with contextlib.suppress(OSError):  # a pipe or a device has no length
                self._file.truncate(0)
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            raise RefusedError(self._unwritable(error)) from None

    def show(self, value: object, text: Callable[[], str]) -> None:
        """Print a result, as JSON with ``--json``, else its text; write its JSON."""
        try:
            self.write(value)
        finally:
            sys.stdout.write(dumped(value) if self._options.json else colored(text()))
            sys.stdout.flush()

    def keep(self, values_of: Callable[[], Mapping[str, Any]], *, failed: bool) -> None:
        """Show the outcome of a job, which has no text; one that failed keeps its own code in any case.

        ``values_of`` is called where somebody asked for it: it may take its time.
        """
        if not self._options.json and self._file is None:
            return
        try:
            self.show(values_of(), str)
        except RefusedError as error:
            if not failed:
                raise
            print(f"ringleader: {error}", file=sys.stderr)

    def close(self) -> None:
        """Close the file; one that was made here and got no word is removed."""
        if self._file is not None:
            self._file.close()
        if self._made:
            with contextlib.suppress(OSError):
                Path(self._options.json_file or "").unlink()


def result_to(options: JsonOptions, inputs: Sequence[str] = ()) -> contextlib.closing[Result]:
    """Open what a result is written to, before any work.

    ``inputs``: what the command reads, which is not written over; see `check_not_read`.
    """
    if options.json_file is not None:
        check_not_read("--json-file", options.json_file, inputs)
    return contextlib.closing(Result(options))


def show(options: JsonOptions, value: object, text: Callable[[], str], inputs: Sequence[str] = ()) -> None:
    """Show a result that was no work; ``inputs`` as in `result_to`."""
    with result_to(options, inputs) as result:
        result.show(value, text)

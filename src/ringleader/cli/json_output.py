"""Results for programs, one way over all commands: ``--json`` and ``--json-file FILE``."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ringleader.cli.typed_command import Option
from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.value_class import dataclass

STANDARD_OUTPUT = "-"


@dataclass(frozen=True, kw_only=True)
class JsonOptions:
    """Where a result goes as JSON."""

    json: bool = False
    """To standard output, in place of the text for people."""
    json_file: str | None = None
    """To this file, whatever standard output shows."""


@dataclass(frozen=True, kw_only=True)
class JobJsonOptions:
    """The same for a job, whose own output has standard output unless ``--json`` takes it."""

    json: str | None = None
    """``-``: standard output. A file: the former ``--json FILE``."""
    json_file: str | None = None

    def checked(self) -> JsonOptions:
        """Return where the outcome goes. Raises RequestError where that is not clear."""
        if self.json in (None, STANDARD_OUTPUT):
            return JsonOptions(json=self.json is not None, json_file=self.json_file)
        if self.json_file is not None:
            raise RequestError(Fault(where="--json and --json-file", what="two files", hint="name one"))
        if "/" not in self.json and not Path(self.json).exists() and shutil.which(self.json):
            hint = f"--json -- {self.json} … prints JSON; --json-file {self.json} writes to that file"
            what = f"{self.json!r} is a program: is it COMMAND, or the name of a file?"
            raise RequestError(Fault(where="--json", what=what, hint=hint))
        return JsonOptions(json_file=self.json)


JSON_OPTIONS = (
    Option(["--json"], is_flag=True, help="Print JSON."),
    Option(["--json-file"], metavar="FILE", help="Write the JSON to a file, too, over what is in it."),
)
JOB_JSON_OPTIONS = (
    Option(
        ["--json"],
        is_flag=False,
        flag_value=STANDARD_OUTPUT,
        metavar="",
        help="Print the outcome as JSON; what the job prints goes to standard error. Before COMMAND: "
        "--json -- COMMAND.",
    ),
    Option(["--json-file"], metavar="FILE", help="Write the outcome to a file as JSON, over what is in it."),
)


def show(options: JsonOptions, value: object, text: Callable[[], str], inputs: Sequence[str] = ()) -> None:
    """Print a result: as JSON with ``--json``, else its text. Write JSON to the file of ``--json-file``.

    ``inputs``: what the command read, which is not written over.
    """
    with opened(options.json_file, inputs) as file:
        if file is not None:
            file.write(value)
    sys.stdout.write(dumped(value) if options.json else text())
    sys.stdout.flush()


def dumped(value: object) -> str:
    """Return JSON as it is printed and written."""
    import json  # most jobs start without it

    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


class JsonFile:
    """The file of ``--json-file``: opened before any work, so that a wrong place is found in time.

    What was in it stays until there is a result to write, which replaces it as a redirection does: a job that
    is started by a script, again and again, names the same file. Opening waits for no reader of a pipe.
    """

    def __init__(self, path: str) -> None:
        """Open or make it. Raises RequestError where that cannot be."""
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        self._made = not Path(path).exists()
        try:
            self._file = os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)
        except OSError as error:
            what = f"{path} cannot be written: {error.strerror or error}"
            raise RequestError(Fault(where="--json-file", what=what)) from None
        os.set_blocking(self._file.fileno(), True)

    def write(self, value: object) -> None:
        """Replace what is in it. Raises RefusedError where there is no room any more."""
        self._made = False
        data = dumped(value).encode(errors="surrogateescape")
        try:
            with contextlib.suppress(OSError):  # a pipe or a device has no length
                self._file.truncate(0)
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            what = f"{self._path} cannot be written: {error.strerror or error}"
            raise RefusedError(Fault(where="--json-file", what=what)) from None

    def close(self) -> None:
        """Close it; a file that was made here and got no word is removed."""
        self._file.close()
        if self._made:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()


def opened(
    path: str | None, inputs: Sequence[str] = ()
) -> contextlib.AbstractContextManager[JsonFile | None]:
    """Open the file of ``--json-file``, to be closed in the end; ``None`` where none was asked for.

    ``inputs``: what the command reads, which is not written over; see `check_not_read`.
    """
    if path is None:
        return contextlib.nullcontext()
    check_not_read("--json-file", path, inputs)
    return contextlib.closing(JsonFile(path))


def check_not_read(where: str, path: str, inputs: Sequence[str]) -> None:
    """Raise RequestError where a result would be written over what it is made from.

    ``where``: the option that named ``path``. ``inputs``: files, or directories of stored runs.
    """
    if not inputs or not Path(path).exists():
        return
    from ringleader.bench import run_file  # most jobs start without it

    for name in inputs:
        for source in (Path(name), Path(name) / run_file.FILE):
            if source.is_file() and source.samefile(path):
                what = f"{path} is read by this command, and would be lost"
                raise RequestError(Fault(where=where, what=what, hint="name another file"))


class Outcome:
    """Where the outcome of a job goes for programs."""

    def __init__(self, options: JsonOptions, file: JsonFile | None) -> None:
        """``file``: the opened file of ``--json-file``."""
        self._options, self._file = options, file

    def keep(self, values_of: Callable[[], Mapping[str, Any]], *, failed: bool) -> None:
        """Print and write it; a job that failed keeps its own code where that cannot be written.

        ``values_of`` is called where somebody asked for it: it may take its time.
        """
        if not self._options.json and self._file is None:
            return
        values = values_of()
        if self._options.json:
            sys.stdout.write(dumped(values))
            sys.stdout.flush()
        try:
            if self._file is not None:
                self._file.write(values)
        except RefusedError as error:
            if not failed:
                raise
            print(f"ringleader: {error}", file=sys.stderr)


@contextlib.contextmanager
def outcome_to(options: JsonOptions) -> Iterator[Outcome]:
    """Open what an outcome is written to, before the job starts."""
    with opened(options.json_file) as file:
        yield Outcome(options, file)

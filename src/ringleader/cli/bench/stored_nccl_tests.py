"""Runs out of a file that nccl-tests printed or wrote: ``--from-file``."""

from __future__ import annotations

import re
import sys
from dataclasses import replace

from ringleader.bench.nccl_tests.json_parser import parse_json
from ringleader.bench.nccl_tests.parsed_output import runs_of
from ringleader.bench.nccl_tests.text_parser import parse_text
from ringleader.errors import Fault, RequestError
from ringleader.measurements.collective import CollectiveRun
from ringleader.text_files import printed, read_text


def read_runs(path: str, *, operation: str, ranks: int | None, name: str) -> tuple[CollectiveRun, ...]:
    """Return the runs of a file (``-``: standard input), numbered where there are several.

    RequestError: all faults at once.
    """
    try:
        text = sys.stdin.read() if path == "-" else read_text(path)
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}"
        raise RequestError(Fault(where="--from-file", what=what)) from None
    except UnicodeDecodeError:
        raise RequestError(Fault(where="--from-file", what=f"{path} is no text file (UTF-8)")) from None
    text = printed(text)
    path = "standard input" if path == "-" else path
    is_json = re.match(r"\s*(?:\{|\[\s*\{)", text) is not None
    tests = (parse_json if is_json else parse_text)(text, path)
    faults: list[Fault] = []
    runs: list[CollectiveRun] = []
    for test in tests:
        found, wrong = runs_of(test, operation=operation, ranks=ranks, name=name, source=path)
        faults += wrong
        runs += found
    if faults:
        raise RequestError(list(dict.fromkeys(faults)))
    if not runs:
        raise RequestError(Fault(where=path, what="holds no results of nccl-tests"))
    if len(runs) > 1:
        runs = [replace(run, name=f"{name}-{number}") for number, run in enumerate(runs, 1)]
    return tuple(runs)

"""``ringleader analyze``: traces of PyTorch's profiler are read, and where the steps went is shown.

`measurements.trace_split` divides the time; ``run --profile`` records such traces and shows the same.
"""

from __future__ import annotations

import gzip
import io
import json
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringleader.cli.output import JsonOptions, result_to, table
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import Command
from ringleader.dataclass_json import document
from ringleader.errors import Fault, RequestError
from ringleader.measurements.trace_events import Trace, trace_of
from ringleader.measurements.trace_split import PARTS, Split, split
from ringleader.option_fields import argument, group
from ringleader.report.trace_tables import headline, sentences, tables
from ringleader.text_files import read_bytes
from ringleader.value_class import dataclass

SUFFIXES = (".json", ".json.gz")
LARGEST = 8 << 30
"""Bytes of a trace."""
FORMAT = 1
"""Of the JSON; grows when a reader must change."""


@dataclass(frozen=True, kw_only=True)
class AnalyzeOptions:
    """The options, as they were written."""

    traces: tuple[str, ...] = argument("DIR|TRACE...", default=())
    json: JsonOptions = group(JsonOptions)
    faults: tuple[Fault, ...] = ()


@Command.of(
    "analyze",
    AnalyzeOptions,
    help="Show where the time in training steps went, from the traces of all ranks: compute, exposed and "
    "overlapped communication, waiting for the slowest rank, input, idle. `ringleader run --profile "
    "20:40` records such traces, and so does torch.profiler (`export_chrome_trace`, "
    "`tensorboard_trace_handler`); `.json` or `.json.gz`.",
    no_args_is_help=True,
)
def command(options: AnalyzeOptions) -> int:
    """Read, divide and show; return the exit code."""
    if options.faults:
        raise RequestError(options.faults)
    files = [file for name in options.traces for file in files_of(Path(name))]
    with result_to(options.json, [str(file) for file in files]) as result:
        with shown_while("reading the traces"):
            found, faults = read(files)
        for fault in faults:
            print(f"ringleader: {fault}", file=sys.stderr)
        result.show(as_json(found), lambda: as_text(found))
    return 0


def files_of(path: Path) -> list[Path]:
    """Return a file, or those of a directory that may be traces. RequestError where there is none."""
    hint = "ringleader run --profile 20:40 -- python train.py records some"
    if not path.exists():
        raise RequestError("there is no such file or directory", where=str(path), hint=hint)
    if not path.is_dir():
        return [path]
    found = sorted(one for one in path.iterdir() if one.name.endswith(SUFFIXES) and one.is_file())
    if not found:
        raise RequestError(f"holds no trace ({' or '.join(SUFFIXES)})", where=str(path), hint=hint)
    return found


def read(files: Sequence[Path]) -> tuple[Split, list[Fault]]:
    """Return where the time of all traces went, and what is wrong with files that were left out.

    Raises RequestError where no file is a trace.
    """
    traces: list[Trace] = []
    faults: list[Fault] = []
    for file in files:
        try:
            traces.append(_trace(file))
        except (OSError, EOFError, zlib.error, ValueError, RecursionError, MemoryError) as error:
            faults.append(Fault(where=str(file), what=_why(error)))
    if not traces:
        raise RequestError(faults)
    return split(traces), faults


def _trace(file: Path) -> Trace:
    data = read_bytes(file, largest=LARGEST)
    if data[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
            data = packed.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise ValueError(f"is larger than {LARGEST >> 30} GiB")
    text = data.decode(errors="replace")
    del data  # a trace may fill the memory: two forms of it are not held for longer than necessary
    held = json.loads(text, strict=False)
    del text
    return trace_of(held, file.name)


def _why(error: Exception) -> str:
    if isinstance(error, EOFError | zlib.error | gzip.BadGzipFile):
        return f"is cut short or damaged: {error}"
    if isinstance(error, json.JSONDecodeError):
        return f"is not JSON, or cut short: {error.msg} at line {error.lineno}"
    if isinstance(error, OSError):
        return f"cannot be read: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "needs more memory than there is"
    return "is nested too deep" if isinstance(error, RecursionError) else str(error)


def as_json(found: Split) -> dict[str, Any]:
    """Return the split as JSON values; seconds of all recorded steps together."""
    sums = {part: found.sum_of(part) for part in ("seconds", *PARTS, "overlapped")}
    worst = found.straggler
    part, more = (None, 0.0) if worst is None else found.why(worst)
    straggler = None if worst is None else {"rank": worst.rank, "part": part if more > 0 else None}
    return {"format": FORMAT, **document(found), "sum": sums, "straggler": straggler}


def as_text(found: Split) -> str:
    """Return tables and sentences for people."""
    blocks = [headline(found), *(table(one.rows, one.names, align="lr") for one in tables(found))]
    blocks.append(
        "\n".join([*(f"• {text}" for text in sentences(found)), *(f"! {text}" for text in found.notes)])
    )
    return "\n\n".join(block for block in blocks if block) + "\n"

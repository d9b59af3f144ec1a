"""Reads what the programs of nccl-tests print, from version 1 on.

Versions differ in their columns, so the header of a table says what its rows hold:

    size count type redop root | time algbw busbw #wrong | …     2.13 and later; -C: cputime
    size count type redop | time algbw busbw error | …           2.0 to 2.12; allgather has no redop
    bytes N type op | time algbw busbw res | …                   1.0, times in ms
    … #wrong i_min i_max i_p99 i_cv% | …, … timestamp            -I, -S

``N/A`` is what was not measured or checked. Lines of others between (NCCL_DEBUG) are left alone, and so is
what a launcher put before each line (``text_files.unprefixed``). In pasted text the ``#`` may be gone. A
file may hold several runs, one behind the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ringleader.bench.nccl_tests.parsed_output import (
    Kind,
    ParsedTable,
    ParsedTest,
    operation_named,
)
from ringleader.errors import Fault, RequestError
from ringleader.measurements.collective import CollectiveResult, RankProcess, Sweep, Timing
from ringleader.text_files import unprefixed

RANK = re.compile(
    r"#?\s*Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?(?:Pid\s+(\d+)\s+)?on\s+(\S+)\s+device\s+(.*)$", re.IGNORECASE
)
SETTINGS = re.compile(
    r"#?\s*(?:nThread\s+\d+\s+nGpus\s+\d+\s+)?minBytes\s+(\d+)\s+maxBytes\s+(\d+)\s+step:\s*(\d+)\s*\((\w+)\)"
    r".*?warmup iters:\s*(\d+)\s+iters:\s*(\d+).*?validation:\s*(\d+)"
)
STARTS = re.compile(r"#?\s*(?:Collective test starting:\s*(\S+)|nThread\b|nccl-tests version)")
FAILURE = re.compile(r"(Test (?:NCCL|CUDA) failure.*|.*: Test failure .*)")
TIMES = ("time", "cputime")
FIRST = ("size", "bytes")
WORDS = {"N": "count", "op": "redop", "bytes": "size"}
MISSING = "N/A"
LONGEST_SHOWN = 60


def parse_text(text: str, source: str) -> list[ParsedTest]:
    """Return the tests whose output a text holds; RequestError names the lines that cannot be read."""
    reader = _Reader(source)
    for number, line in enumerate(text.splitlines(), 1):
        reader.take(number, unprefixed(line).rstrip())
    tests = [test for test in reader.tests if any(table.rows or table.note for table in test.tables)]
    if not reader.faults and not any(table.rows for test in tests for table in test.tables):
        hint = "give what a program of nccl-tests printed, with the line `# size count type …`"
        reader.faults.append(Fault(where=source, what="holds no table of nccl-tests", hint=hint))
    if reader.faults:
        raise RequestError(reader.faults)
    return tests


class _Reader:
    """Reads line by line."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.tests: list[ParsedTest] = [ParsedTest()]
        self.faults: list[Fault] = []
        self._columns: list[str] = []
        self._implementation, self._note = "", ""
        self._group: str | None = None

    @property
    def _test(self) -> ParsedTest:
        return self.tests[-1]

    def take(self, number: int, line: str) -> None:
        """Take one line."""
        if self._columns and re.match(r"\s*\d+\s+\d+\s", line):
            self._row(number, line.split())
        elif line.strip():
            self._header(line.strip())
        if (failure := FAILURE.search(line)) and not (self._test.error or self._test.complete):
            self._test.error = failure[1].strip()

    def _header(self, line: str) -> None:
        if (start := STARTS.match(line)) is not None:
            # Up to three such lines begin a test: a new one begins where there is a table already.
            if self._test.tables:
                self.tests.append(ParsedTest())
                self._columns, self._group = [], None
            self._test.operation = operation_named(start[1] or "") or self._test.operation
        words = line.lstrip("# ").split()
        if (settings := SETTINGS.match(line)) is not None:
            self._test.sweep = _sweep(settings)
        elif (rank := RANK.match(line)) is not None:
            self._process(rank)
        elif words and words[0] in FIRST and any(word in TIMES for word in words):
            self._begin_table([WORDS.get(word, word) for word in words], in_ms=words[0] == "bytes")
        elif words[:1] == ["Implementation:"]:
            self._implementation, self._note = " ".join(words[1:]), ""
        elif words[:1] == ["Note:"]:
            self._note = " ".join(words[1:])
            self._missing_series()
        elif words[:4] in (["Out", "of", "bounds", "values"], ["Avg", "bus", "bandwidth", ":"]):
            self._test.complete = True
            self._columns = []
        elif words[:2] == ["Ended", "early:"]:
            self._test.error = " ".join(words[2:])

    def _missing_series(self) -> None:
        """Keep a note as a series without results; a table that follows takes its place."""
        table = ParsedTable(implementation=self._implementation or "nccl", note=self._note)
        self._test.tables.append(table)

    def _begin_table(self, columns: list[str], *, in_ms: bool) -> None:
        self._columns, self._unit = columns, 1e3 if in_ms else 1e6
        tables = self._test.tables
        if not (tables and not tables[-1].rows and tables[-1].note):
            tables.append(ParsedTable(implementation=self._implementation or "nccl"))
        self._implementation, self._note = "", ""

    def _process(self, found: re.Match[str]) -> None:
        # Where ranks are split into groups (NCCL_TESTS_SPLIT), rates are those of one group.
        if self._group is None:
            self._group = found[2] or ""
        if (found[2] or "") != self._group:
            return
        device = re.sub(r"^\d+\s*(\[[^\]]*\])?\s*", "", found[5]).strip()
        host_memory = device == "CPU"
        if host_memory:
            self._test.memory = "host"
        self._test.processes.append(
            RankProcess(
                rank=int(found[1]),
                host=found[4],
                pid=int(found[3] or 0),
                device="" if host_memory else device,
            )
        )

    def _row(self, number: int, words: Sequence[str]) -> None:
        try:
            kind, result, rates = row_of(self._columns, words, self._unit)
        except (ValueError, KeyError, OverflowError):  # no number, no such column, infinitely many wrong
            shown = " ".join(words)[:LONGEST_SHOWN]
            what = f"{shown!r} does not fit the columns {' '.join(self._columns)}"
            self.faults.append(Fault(where=f"{self.source}:{number}", what=what))
            return
        self._test.tables[-1].add(kind, result, *rates)


def _sweep(found: re.Match[str]) -> Sweep:
    by_factor = found[4] == "factor"
    return Sweep(
        minimum=int(found[1]),
        maximum=int(found[2]),
        step_factor=int(found[3]) if by_factor else 1,
        step_bytes=0 if by_factor else int(found[3]),
        warmup=int(found[5]),
        iterations=int(found[6]),
        checks=int(found[7]),
    )


def row_of(
    columns: Sequence[str], words: Sequence[str], unit: float
) -> tuple[Kind, CollectiveResult, list[tuple[float, float]]]:
    """Return a row by the columns of its table, and its algbw and busbw; ``unit``: times per second.

    ValueError, KeyError, OverflowError: it does not fit.
    """
    first_time = next(at for at, name in enumerate(columns) if name in TIMES)
    left = dict(zip(columns[:first_time], words, strict=False))
    blocks = [name for name in columns[first_time:] if name != "timestamp"]
    width = len(blocks) // 2
    cells = list(words[first_time:])
    if len(cells) == len(blocks) + 2 and columns[-1] == "timestamp":
        cells = cells[: len(blocks)]
    if len(cells) == width:  # nccl-tests leaves out-of-place blank where it measures in place only
        cells = [MISSING] * width + cells
    if len(cells) != len(blocks) or width < 3:
        raise ValueError
    pairs = [dict(zip(blocks[:width], cells[at : at + width], strict=True)) for at in (0, width)]
    result = CollectiveResult(
        size=int(left["size"]),
        count=int(left["count"]),
        out_of_place=_timing(pairs[0], unit),
        in_place=_timing(pairs[1], unit),
    )
    rates = [(one["algbw"], one["busbw"]) for one in pairs]
    numbers = [(float(one), float(other)) for one, other in rates if MISSING not in (one, other)]
    return (left["type"], left.get("redop", "none"), int(left.get("root", "-1"))), result, numbers


def _timing(cells: dict[str, str], unit: float) -> Timing | None:
    time = cells.get("time", cells.get("cputime", MISSING))
    if time == MISSING:
        return None
    seconds = float(time) / unit
    if not 0 <= seconds < float("inf"):
        raise ValueError
    if not seconds:
        return None
    # Before 2.13 there was no count, but the largest error: that is not a number of elements.
    wrong = cells.get("#wrong", MISSING)
    return Timing(seconds=seconds, wrong=None if wrong == MISSING else int(float(wrong)))

"""What programs of others print of messages between two hosts, whichever it is. Pure.

    (one,) = program_outputs(text)
    one.program, one.rows          # "ib_write_bw", (SizeRow(size=65536, rate=1.2e10), …)

A text may hold several outputs one after the other; each begins with its title: a line of perftest's box, as
``RDMA_Write BW Test``; ``# OSU … Test``; the box of ucx_perftest's server, or the table of its client.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ringleader.fabric.active.osu_output import TITLE, osu_test
from ringleader.fabric.active.perftest_output import (
    perftest_bandwidth,
    perftest_latency,
    ucx_bandwidth,
    ucx_latency,
)

_PERFTEST = re.compile(
    r"^\s*(RDMA_Write|RDMA_Read|Send|Atomic[\w ]*?|Raw Ethernet)\s+(Post List\s+)?(Bidirectional\s+)?"
    r"(Post List\s+)?(BW|Latency)\s*(?:\(\w+\)\s*)?Test\s*$"
)
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Raw Ethernet": "raw"}
_UCX_TABLE = re.compile(r"(overhead|latency) \(usec\)\s*\|\s*bandwidth \(MB/s\)|latency \(usec\)")
_UCX_SIZE = re.compile(r"Message size:\s*(\d{1,12})\b")
_UCX_TEST = re.compile(r"\|\s*Test:\s*(\S[^|]*?)\s*\|")
_RULE = re.compile(r"\s*-{20,}\s*$", re.MULTILINE)
_DEVICE = re.compile(r"\bDevice\s*:\s*(\S+)")
NEAR = 0.02
"""Part of a size by which the one that follows from two rounded numbers may miss a power of two."""


@dataclass(frozen=True, kw_only=True)
class SizeRow:
    """One size. Seconds and bytes per second; what was not measured is ``None``."""

    size: int
    latency: float | None = None
    """Half a round trip (of ``ib_read_lat`` a whole one): the median where the program has it."""
    latency_low: float | None = None
    latency_p99: float | None = None
    rate: float | None = None
    rate_high: float | None = None
    both_ways_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProgramOutput:
    """One output."""

    program: str
    """``ib_write_bw``, ``ucx_perftest``, ``osu_bw`` …; ``perftest`` where its title is not there."""
    rows: tuple[SizeRow, ...]
    device: str = ""
    """RDMA device, where the program names it."""
    memory: str = "host"
    is_read: bool = False
    """The bytes go to the one that the program was started on as a client."""
    notes: tuple[str, ...] = ()
    """What is to be known of the numbers."""


def program_outputs(text: str, *, message_bytes: int | None = None) -> tuple[ProgramOutput, ...]:
    """Return every output in a text. Raises ValueError with what is wrong where one cannot be read.

    ``message_bytes``: of messages of ucx_perftest, where that is known: its client does not print it.
    """
    return tuple(_output(part, message_bytes) for part in _parts(text))


def _parts(text: str) -> Iterator[str]:
    """Cut a text where titles are."""
    lines = text.splitlines()
    starts = [number for number, line in enumerate(lines) if _PERFTEST.match(line) or TITLE.search(line)]
    starts += [number for number, line in enumerate(lines) if _starts_ucx(lines, number)]
    ends = [*sorted(starts)[1:], len(lines)]
    if not starts:
        yield text
    for start, end in zip(sorted(starts), ends, strict=True):
        yield "\n".join(lines[start:end])


def _starts_ucx(lines: list[str], number: int) -> bool:
    """The box of the server, or a table that has none above it."""
    if "| API:" in lines[number]:
        return True
    if not _UCX_TABLE.search(lines[number]):
        return False
    above = (line for line in reversed(lines[:number]) if "| API:" in line or _UCX_TABLE.search(line))
    return "| API:" not in next(above, "")


def _output(text: str, message_bytes: int | None) -> ProgramOutput:
    title = next((found for line in text.splitlines() if (found := _PERFTEST.match(line))), None)
    if TITLE.search(text):
        return _osu(text)
    if title is not None or "#bytes" in text:
        return _perftest(text, title)
    if _UCX_TABLE.search(text):
        return _ucx(text, message_bytes)
    raise ValueError("no output of perftest (ib_write_bw, …), ucx_perftest or OSU (osu_latency, …) in it")


def _osu(text: str) -> ProgramOutput:
    found = osu_test(text)
    field = {"osu_latency": "latency", "osu_bw": "rate", "osu_bibw": "both_ways_rate"}[found.program]
    rows = tuple(
        SizeRow(size=row.size, latency_low=row.lowest, **{field: row.value or None}) for row in found.rows
    )
    wrong = [str(row.size) for row in found.rows if row.is_wrong]
    notes = (f"{found.program}'s validation failed at sizes {', '.join(wrong)}",) if wrong else ()
    return ProgramOutput(program=found.program, rows=rows, memory=found.memory, notes=notes)


def _perftest(text: str, title: re.Match[str] | None) -> ProgramOutput:
    device = _DEVICE.search(text)
    is_latency = "t_avg" in text
    name, both = "perftest", False
    if title is not None:
        verb = _VERBS.get(title[1], "atomic")
        name = f"ib_{verb}_{'lat' if title[5] == 'Latency' else 'bw'}"
        both = title[3] is not None
        is_latency = title[5] == "Latency"
    rows = _latency_rows(text) if is_latency else _bandwidth_rows(text, both=both)
    after = text[text.rfind("#bytes") :]
    cut = "the line that ends perftest's table is missing: its output may be cut"
    return ProgramOutput(
        program=name,
        rows=rows,
        device=device[1] if device else "",
        memory="cuda" if re.search(r"\bcuda|\bCUDA", text) else "host",
        is_read="_read_" in name,
        notes=() if _RULE.search(after) else (cut,),
    )


def _latency_rows(text: str) -> tuple[SizeRow, ...]:
    return tuple(
        SizeRow(
            size=row.message_bytes or 0,
            latency=row.average if row.typical is None else row.typical,
            latency_low=row.lowest,
            latency_p99=row.percentile_99,
        )
        for row in perftest_latency(text)
    )


def _bandwidth_rows(text: str, *, both: bool) -> tuple[SizeRow, ...]:
    rows = perftest_bandwidth(text)
    if both:
        return tuple(SizeRow(size=row.message_bytes, both_ways_rate=row.average / 8) for row in rows)
    return tuple(
        SizeRow(size=row.message_bytes, rate=row.average / 8, rate_high=row.peak and row.peak / 8)
        for row in rows
    )


def _ucx(text: str, message_bytes: int | None) -> ProgramOutput:
    test = _UCX_TEST.search(text)
    program = f"ucx_perftest {test[1]}" if test else "ucx_perftest"
    size, note = (message_bytes, ()) if message_bytes else _ucx_size(text)
    if "latency (usec)" in text:
        latency = ucx_latency(text)
        row = SizeRow(size=size, latency=latency.average if latency.typical is None else latency.typical)
    else:
        row = SizeRow(size=size, rate=ucx_bandwidth(text, size).average / 8)
    return ProgramOutput(program=program, rows=(row,), notes=note)


def _ucx_size(text: str) -> tuple[int, tuple[str, ...]]:
    """Return the size of a message: the client's table does not have it, but MB/s and messages/s."""
    if told := _UCX_SIZE.search(text):
        return int(told[1]), ()
    size = ucx_message_size(text)
    if size is None:
        raise ValueError(
            "ucx_perftest's client does not print the size of messages: add what its server said"
        )
    return size, (f"the size of messages, {size}, follows from MB/s and messages per second",)


def ucx_message_size(text: str) -> int | None:
    """Return the power of two that MB/s divided by messages per second are near to; ``None``: none."""
    final = next((line for line in reversed(text.splitlines()) if "Final:" in line), "")
    words = final.split(":", 1)[-1].split()
    try:
        rate, messages = float(words[-3]) * 2**20, float(words[-1])
    except (IndexError, ValueError):
        return None
    if not rate > 0 or not messages > 0:
        return None
    size = rate / messages
    nearest = 1 << max(0, round(size).bit_length() - 1)
    near = min((nearest, 2 * nearest), key=lambda one: abs(one - size))
    return near if abs(near - size) <= NEAR * near else None

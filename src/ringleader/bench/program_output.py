"""What perftest, ucx_perftest and OSU's programs print of messages between two hosts. Pure.

    (one,) = program_outputs(text)
    one.program, one.rows          # "ib_write_bw", (SizeRow(size=65536, rate=1.2e10), …)

perftest is ``ib_write_bw``, ``ib_send_lat`` and others like them; OSU's are ``osu_latency``, ``osu_bw`` and
``osu_bibw``, of versions 2 to 7. A text may hold several outputs one after the other; each begins with its
title: a line of perftest's box, as ``RDMA_Write BW Test``; ``# OSU … Test``; the box of ucx_perftest's
server, or the table of its client.

Units are read from the header, never assumed. perftest writes ``[Gb/sec]`` for 10⁹ bits, ``[MiB/sec]`` or, in
older versions, ``[MB/sec]`` for 2²⁰ bytes; ucx_perftest's ``MB/s`` are 2²⁰ bytes, too, and OSU's 10⁶.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ringleader.text_files import unprefixed

_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)
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
    both_ways_rate: float | None = None


@dataclass(frozen=True, kw_only=True)
class ProgramOutput:
    """One output."""

    program: str
    """``ib_write_bw``, ``ucx_perftest``, ``osu_bw`` …; ``perftest`` where its title does not exist."""
    rows: tuple[SizeRow, ...]
    memory: str = "host"
    """``cuda`` where a buffer was in device memory."""
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
    starts = [
        number
        for number, line in enumerate(lines)
        if _PERFTEST.match(line) or _OSU_TITLE.search(line) or _starts_ucx(lines, number)
    ]
    if not starts:
        yield text
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=bool(starts)):
        yield "\n".join(lines[start:end])


def _output(text: str, message_bytes: int | None) -> ProgramOutput:
    title = next((found for line in text.splitlines() if (found := _PERFTEST.match(line))), None)
    if _OSU_TITLE.search(text):
        return _osu(text)
    if title is not None or "#bytes" in text:
        return _perftest(text, title)
    if _UCX_TABLE.search(text):
        return _ucx(text, message_bytes)
    raise ValueError("no output of perftest (ib_write_bw, …), ucx_perftest or OSU (osu_latency, …) in it")


def _numbers(line: str) -> list[float]:
    """Numbers of a line that has nothing else; empty for any other line (warnings stand between the rows)."""
    words = line.split()
    return [float(word) for word in words] if words and all(map(_NUMBER.fullmatch, words)) else []


# --- perftest ---------------------------------------------------------------------------------------------

_PERFTEST = re.compile(
    r"^\s*(RDMA_Write|RDMA_Read|Send|Atomic[\w ]*?|Raw Ethernet)\s+(Post List\s+)?(Bidirectional\s+)?"
    r"(Post List\s+)?(BW|Latency)\s*(?:\(\w+\)\s*)?Test\s*$"
)
_VERBS = {"RDMA_Write": "write", "RDMA_Read": "read", "Send": "send", "Raw Ethernet": "raw"}
_RULE = re.compile(r"\s*-{20,}\s*$", re.MULTILINE)
_BYTES = {"Gb/sec": 1e9 / 8, "MiB/sec": 2.0**20, "MB/sec": 2.0**20}
"""Unit of perftest's bandwidth → bytes per second."""
_BANDWIDTH_HEADER = re.compile(
    r"#bytes\s+#iterations\s+BW peak\[([^\]]+)\]\s+BW average\[([^\]]+)\]\s+MsgRate\[([^\]]+)\]"
)
_LATENCY_COLUMN = re.compile(r"#bytes|#iterations|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]|tps average")


def _perftest(text: str, title: re.Match[str] | None) -> ProgramOutput:
    is_latency, name, both = "t_avg" in text, "perftest", False
    if title is not None:
        is_latency = title[5] == "Latency"
        name = f"ib_{_VERBS.get(title[1], 'atomic')}_{'lat' if is_latency else 'bw'}"
        both = title[3] is not None
    rows = tuple(_latency_rows(text) if is_latency else _bandwidth_rows(text, both=both))
    if not rows:
        raise ValueError(f"no row of a {'latency' if is_latency else 'bandwidth'} test of perftest")
    cut = "the line that ends perftest's table is missing: its output may be cut"
    return ProgramOutput(
        program=name,
        rows=rows,
        memory="cuda" if re.search(r"\bcuda|\bCUDA", text) else "host",
        is_read="_read_" in name,
        notes=() if _RULE.search(text[text.rfind("#bytes") :]) else (cut,),
    )


def _bandwidth_rows(text: str, *, both: bool) -> Iterator[SizeRow]:
    scale = None
    for line in text.splitlines():
        if header := _BANDWIDTH_HEADER.search(line):
            if odd := [unit for unit in header.groups()[:2] if unit not in _BYTES]:
                raise ValueError(f"unknown unit of a bandwidth: {odd[0]}")
            if header[3] != "Mpps":
                raise ValueError(f"unknown unit of a message rate: {header[3]}")
            scale = _BYTES[header[2]]
        elif scale and len(values := _numbers(line)) >= 4:
            rate = values[3] * scale
            yield SizeRow(size=int(values[0]), **{"both_ways_rate" if both else "rate": rate})


def _latency_rows(text: str) -> Iterator[SizeRow]:
    columns: list[str] = []
    for line in text.splitlines():
        if "#bytes" in line and "t_avg" in line:
            columns = [name.replace("[usec]", "") for name in _LATENCY_COLUMN.findall(line)]
            if odd := next((name for name in columns if "[" in name), ""):
                raise ValueError(f"unknown unit: {odd}")
        elif columns and len(values := _numbers(line)) >= len(columns):
            found = dict(zip(columns, values, strict=False))
            seconds = {name: value / 1e6 for name, value in found.items()}
            yield SizeRow(
                size=int(found["#bytes"]),
                latency=seconds.get("t_typical", seconds["t_avg"]),
                latency_low=seconds.get("t_min"),
                latency_p99=seconds.get("99% percentile"),
            )


# --- ucx_perftest -----------------------------------------------------------------------------------------

_UCX_TABLE = re.compile(r"(overhead|latency) \(usec\)\s*\|\s*bandwidth \(MB/s\)|latency \(usec\)")
_UCX_SIZE = re.compile(r"Message size:\s*(\d{1,12})\b")
_UCX_TEST = re.compile(r"\|\s*Test:\s*(\S[^|]*?)\s*\|")


def _starts_ucx(lines: list[str], number: int) -> bool:
    """The box of the server, or a table that has none above it."""
    if "| API:" in lines[number]:
        return True
    if not _UCX_TABLE.search(lines[number]):
        return False
    above = (line for line in reversed(lines[:number]) if "| API:" in line or _UCX_TABLE.search(line))
    return "| API:" not in next(above, "")


def _ucx(text: str, message_bytes: int | None) -> ProgramOutput:
    test = _UCX_TEST.search(text)
    size, notes = message_bytes or 0, tuple[str, ...]()
    if told := _UCX_SIZE.search(text):
        size = size or int(told[1])
    elif not size:
        size = ucx_message_size(text) or 0
        if not size:
            what = "ucx_perftest's client does not print the size of messages: add what its server said"
            raise ValueError(what)
        notes = (f"the size of messages, {size}, follows from MB/s and messages per second",)
    if "latency (usec)" in text:
        row = SizeRow(size=size, latency=_ucx_final(text, "latency (usec)")[1] / 1e6)
    else:
        row = SizeRow(size=size, rate=_ucx_final(text, "bandwidth (MB/s)")[5] * 2**20)
    return ProgramOutput(
        program=f"ucx_perftest {test[1]}" if test else "ucx_perftest", rows=(row,), notes=notes
    )


def _ucx_final(text: str, heading: str) -> list[float]:
    """Iterations; time as percentile, average, overall; MB/s as average, overall; msg/s as both."""
    if heading not in text:
        raise ValueError(f"ucx_perftest's table has no heading {heading!r}")
    for line in reversed(text.splitlines()):
        if line.strip().startswith("Final:"):
            values = _numbers(line.split(":", 1)[1])
            if len(values) == 8:
                return values
    raise ValueError("ucx_perftest's output has no line `Final:` with 8 numbers")


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


# --- OSU --------------------------------------------------------------------------------------------------
#
#    # OSU MPI Latency Test v5.6.2          # OSU MPI Bi-Directional Bandwidth Test v7.5
#    # Size          Latency (us)           # Datatype: MPI_CHAR.
#    1                       1.06           # Size      Bandwidth (MB/s)        Validation
#                                           1                       1.03              Pass
#
# A latency is half a round trip, and the rate of osu_bibw is that of both directions together. Lines may
# begin with what mpirun or Ringleader put before them.

_OSU_TITLE = re.compile(r"#\s*OSU\s+(\w+?)(?:-(\w+))?\s+(.+?)\s+Test\b")
_OSU_KINDS = {
    "Latency": ("osu_latency", "latency"),
    "Bandwidth": ("osu_bw", "rate"),
    "Bi-Directional Bandwidth": ("osu_bibw", "both_ways_rate"),
}
"""Title → program, and the field of ``SizeRow`` that it measures."""
_OSU_UNITS = {"us": 1e-6, "MB/s": 1e6}
_OSU_HEADER = re.compile(r"#\s*Size\s+(\S.*)")
_OSU_COLUMN = re.compile(r"Validation|Iterations|[A-Za-z][\w. ]*?\s*\([^)]*\)")


def _osu(text: str) -> ProgramOutput:
    lines = [unprefixed(line).rstrip() for line in text.splitlines()]
    title = next((found for line in lines if (found := _OSU_TITLE.match(line))), None)
    if title is None:
        raise ValueError("no title `# OSU … Test`")
    if title[3] not in _OSU_KINDS:
        raise ValueError(f"osu's {title[3]} Test is not one of {', '.join(_OSU_KINDS)} Test")
    program, field = _OSU_KINDS[title[3]]
    rows: list[SizeRow] = []
    columns: list[str] = []
    wrong: list[str] = []
    for line in lines:
        if header := _OSU_HEADER.match(line):
            columns = _osu_columns(header[1], program)
        elif columns and (words := line.split()) and words[0].isdecimal() and words[0].isascii():
            values = _osu_values(words, columns)
            measured: dict[str, Any] = {field: values[columns[0].partition("(")[0].strip()] or None}
            rows.append(SizeRow(size=int(words[0]), latency_low=values.get("Min Latency"), **measured))
            if dict(zip(columns, words[1:], strict=True)).get("Validation", "Pass") not in ("Pass", "-"):
                wrong.append(words[0])
    if not columns:
        raise ValueError(f"{program}'s table has no header `# Size`")
    if not rows:
        raise ValueError(f"{program} has printed no size: its output is cut, or it failed")
    on_device = title[2] is not None and re.search(r"DEVICE \(D\)", text) is not None
    return ProgramOutput(
        program=program,
        rows=tuple(rows),
        memory="cuda" if on_device and title[2].upper() == "CUDA" else "device" if on_device else "host",
        notes=(f"{program}'s validation failed at sizes {', '.join(wrong)}",) if wrong else (),
    )


def _osu_columns(text: str, program: str) -> list[str]:
    columns = [" ".join(name.split()) for name in _OSU_COLUMN.findall(text)]
    wanted = "Latency" if program == "osu_latency" else "Bandwidth"
    if not columns or wanted not in columns[0]:
        raise ValueError(f"{program}'s first column is not a {wanted.lower()}: {text}")
    if _osu_unit(columns[0]) not in _OSU_UNITS:
        raise ValueError(f"unknown unit of {program}: {columns[0]}")
    return columns


def _osu_unit(column: str) -> str:
    return column.rpartition("(")[2].rstrip(")").strip()


def _osu_values(words: list[str], columns: list[str]) -> dict[str, Any]:
    """Return the numbers of a line by their columns' names without units: seconds and bytes per second."""
    if len(words) != 1 + len(columns):
        raise ValueError(f"the line of size {words[0]} is cut: {len(words) - 1} of {len(columns)} columns")
    found = {}
    for name, word in zip(columns, words[1:], strict=True):
        if (unit := _osu_unit(name)) in _OSU_UNITS:
            if not _NUMBER.fullmatch(word):
                raise ValueError(f"the line of size {words[0]} has {word!r} as {name}")
            found[name.partition("(")[0].strip()] = float(word) * _OSU_UNITS[unit]
    return found

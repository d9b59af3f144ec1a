"""What OSU's point-to-point programs print: osu_latency, osu_bw, osu_bibw, of versions 2 to 7. Pure.

    # OSU MPI Latency Test v5.6.2          # OSU MPI Bi-Directional Bandwidth Test v7.5
    # Size          Latency (us)           # Datatype: MPI_CHAR.
    1                       1.06           # Size      Bandwidth (MB/s)        Validation
                                           1                       1.03              Pass

The unit is the header's. MB are 10⁶ bytes, a latency is half a round trip, and the rate of osu_bibw is that
of both directions together. Lines may begin with what mpirun or Ringleader put before them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ringleader.text_files import unprefixed

TITLE = re.compile(r"#\s*OSU\s+(\w+?)(?:-(\w+))?\s+(.+?)\s+Test\b\s*(?:\(Version\s*|v)?([\w.]*)")
_KINDS = {"Latency": "osu_latency", "Bandwidth": "osu_bw", "Bi-Directional Bandwidth": "osu_bibw"}
_UNITS = {"us": 1e-6, "MB/s": 1e6}
_HEADER = re.compile(r"#\s*Size\s+(\S.*)")
_COLUMN = re.compile(r"Validation|Iterations|[A-Za-z][\w. ]*?\s*\([^)]*\)")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class OsuRow:
    """One size."""

    size: int
    value: float
    """Seconds of a latency, bytes per second of a bandwidth."""
    lowest: float | None = None
    highest: float | None = None
    """Of latencies, with ``-f`` of old versions."""
    is_wrong: bool = False
    """What arrived was not what was sent."""


@dataclass(frozen=True, kw_only=True)
class OsuTest:
    """One test."""

    program: str
    """``osu_latency``, ``osu_bw`` or ``osu_bibw``."""
    version: str
    rows: tuple[OsuRow, ...]
    memory: str = "host"
    """``cuda`` where a buffer was in device memory."""


def osu_test(text: str) -> OsuTest:
    """Return the first test in a text. Raises ValueError where there is none, or it cannot be understood."""
    lines = [unprefixed(line).rstrip() for line in text.splitlines()]
    title = next((found for line in lines if (found := TITLE.match(line))), None)
    if title is None:
        raise ValueError("no title `# OSU … Test`")
    if title[3] not in _KINDS:
        raise ValueError(f"osu's {title[3]} Test is not one of {', '.join(_KINDS)} Test")
    program = _KINDS[title[3]]
    rows: list[OsuRow] = []
    columns: list[str] = []
    for line in lines:
        if header := _HEADER.match(line):
            columns = _columns(header[1], program)
        elif columns and (words := line.split()) and words[0].isdecimal() and words[0].isascii():
            rows.append(_row(words, columns))
    if not columns:
        raise ValueError(f"{program}'s table has no header `# Size`")
    if not rows:
        raise ValueError(f"{program} has printed no size: its output is cut, or it failed")
    on_device = title[2] is not None and re.search(r"DEVICE \(D\)", text) is not None
    memory = "cuda" if on_device and title[2].upper() == "CUDA" else "device" if on_device else "host"
    return OsuTest(program=program, version=title[4], rows=tuple(rows), memory=memory)


def _columns(text: str, program: str) -> list[str]:
    columns = [" ".join(name.split()) for name in _COLUMN.findall(text)]
    wanted = "Latency" if program == "osu_latency" else "Bandwidth"
    if not columns or wanted not in columns[0]:
        raise ValueError(f"{program}'s first column is not a {wanted.lower()}: {text}")
    if _unit(columns[0]) not in _UNITS:
        raise ValueError(f"unknown unit of {program}: {columns[0]}")
    return columns


def _unit(column: str) -> str:
    return column.rpartition("(")[2].rstrip(")").strip()


def _row(words: list[str], columns: list[str]) -> OsuRow:
    if len(words) != 1 + len(columns):
        raise ValueError(f"the line of size {words[0]} is cut: {len(words) - 1} of {len(columns)} columns")
    found = dict(zip(columns, words[1:], strict=True))

    def number(name: str) -> float | None:
        word = found.get(name)
        if word is None:
            return None
        if not _NUMBER.fullmatch(word):
            raise ValueError(f"the line of size {words[0]} has {word!r} as {name}")
        return float(word) * _UNITS.get(_unit(name), 1.0)

    value = number(columns[0])
    assert value is not None
    named = {name.split(" (")[0].split("(")[0]: name for name in columns}
    return OsuRow(
        size=int(words[0]),
        value=value,
        lowest=number(named.get("Min Latency", "")),
        highest=number(named.get("Max Latency", "")),
        is_wrong=found.get("Validation", "Pass") not in ("Pass", "-"),
    )

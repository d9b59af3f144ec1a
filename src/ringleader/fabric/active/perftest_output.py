"""What perftest and ucx_perftest print. Pure.

perftest is ``ib_write_bw``, ``ib_read_bw``, ``ib_send_lat``, ``ib_write_lat`` and others like them.

Units are read from the header, never assumed. perftest writes ``[Gb/sec]`` for 10⁹ bits, ``[MiB/sec]`` or, in
older versions, ``[MB/sec]`` for 2²⁰ bytes; ucx_perftest's ``MB/s`` are 2²⁰ bytes, too.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_BITS = {"Gb/sec": 1e9, "MiB/sec": 8.0 * 2**20, "MB/sec": 8.0 * 2**20}
"""Unit of perftest's bandwidth → bits per second."""
_BANDWIDTH_HEADER = re.compile(
    r"#bytes\s+#iterations\s+BW peak\[([^\]]+)\]\s+BW average\[([^\]]+)\]\s+MsgRate\[([^\]]+)\]"
)
_LATENCY_COLUMN = re.compile(r"#bytes|#iterations|t_\w+\[\w+\]|[\d.]+% percentile\[\w+\]|tps average")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class BandwidthRow:
    """One size of a bandwidth test. Bits per second."""

    message_bytes: int
    iterations: int
    average: float
    peak: float | None = None
    """``None``: not measured (perftest prints 0 when it runs for a time, ``-D``)."""
    messages: float | None = None
    """Messages per second."""


@dataclass(frozen=True, kw_only=True)
class LatencyRow:
    """One size of a latency test, half a round trip (of ``ib_read_lat`` a whole one). Seconds."""

    message_bytes: int | None
    """``None``: the program does not print it (ucx_perftest)."""
    iterations: int
    average: float
    typical: float | None = None
    """The median."""
    lowest: float | None = None
    highest: float | None = None
    percentile_99: float | None = None


def perftest_bandwidth(text: str) -> tuple[BandwidthRow, ...]:
    """Return the rows of a bandwidth test. Raises ValueError where there is no row or the unit is unknown."""
    rows: list[BandwidthRow] = []
    scales: tuple[float, float, float] | None = None
    for line in text.splitlines():
        if header := _BANDWIDTH_HEADER.search(line):
            scales = _bits(header[1]), _bits(header[2]), _messages(header[3])
        elif scales and (values := _numbers(line)) and len(values) >= 4:
            peak, average, rate = scales
            rows.append(
                BandwidthRow(
                    message_bytes=int(values[0]),
                    iterations=int(values[1]),
                    peak=values[2] * peak or None,
                    average=values[3] * average,
                    messages=values[4] * rate if len(values) > 4 else None,
                )
            )
    if not rows:
        raise ValueError("no row of a bandwidth test of perftest")
    return tuple(rows)


def perftest_latency(text: str) -> tuple[LatencyRow, ...]:
    """Return the rows of a latency test. Raises ValueError where there is no row or the unit is not µs."""
    rows: list[LatencyRow] = []
    columns: list[str] = []
    for line in text.splitlines():
        if "#bytes" in line and "t_avg" in line:
            columns = [name.replace("[usec]", "") for name in _LATENCY_COLUMN.findall(line)]
            if odd := next((name for name in columns if "[" in name), ""):
                raise ValueError(f"unknown unit: {odd}")
        elif columns and (values := _numbers(line)) and len(values) >= len(columns):
            found = dict(zip(columns, values, strict=False))
            rows.append(
                LatencyRow(
                    message_bytes=int(found["#bytes"]),
                    iterations=int(found["#iterations"]),
                    average=found["t_avg"] / 1e6,
                    typical=_seconds(found.get("t_typical")),
                    lowest=_seconds(found.get("t_min")),
                    highest=_seconds(found.get("t_max")),
                    percentile_99=_seconds(found.get("99% percentile")),
                )
            )
    if not rows:
        raise ValueError("no row of a latency test of perftest")
    return tuple(rows)


def ucx_bandwidth(text: str, message_bytes: int) -> BandwidthRow:
    """Return the last line of a bandwidth test of ucx_perftest; ValueError where it has none."""
    values = _ucx_final(text, "bandwidth (MB/s)")
    return BandwidthRow(
        message_bytes=message_bytes,
        iterations=int(values[0]),
        average=values[5] * 8 * 2**20,
        messages=values[7],
    )


def ucx_latency(text: str) -> LatencyRow:
    """Return the last line of a latency test of ucx_perftest; ValueError where it has none."""
    values = _ucx_final(text, "latency (usec)")
    return LatencyRow(
        message_bytes=None, iterations=int(values[0]), typical=values[1] / 1e6, average=values[3] / 1e6
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


def _bits(unit: str) -> float:
    if unit not in _BITS:
        raise ValueError(f"unknown unit of a bandwidth: {unit}")
    return _BITS[unit]


def _messages(unit: str) -> float:
    if unit != "Mpps":
        raise ValueError(f"unknown unit of a message rate: {unit}")
    return 1e6


def _numbers(line: str) -> list[float]:
    """Numbers of a line that has nothing else; empty for any other line (warnings stand between the rows)."""
    words = line.split()
    return [float(word) for word in words] if words and all(map(_NUMBER.fullmatch, words)) else []


def _seconds(value: float | None) -> float | None:
    return None if value is None else value / 1e6

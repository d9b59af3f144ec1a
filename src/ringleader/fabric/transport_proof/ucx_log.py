"""What UCX and Open MPI wrote about their transports: the lines that matter, and what they say.

UCX writes with ``UCX_LOG_LEVEL=info`` which transports each connection has, as ``ep_cfg[1]: tag(...)`` until
1.13 and as ``intra-node cfg#1 tag(...)`` later, and with ``UCX_PROTO_INFO=y`` a table of protocols. Open MPI
writes with ``pml_base_verbose`` which of its messaging layers was taken. Intel MPI and MPICH name libfabric's
provider.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from ringleader.fabric.transport_proof.evidence import LogLines
from ringleader.fabric.transport_proof.log_lines import bounded_lines

MOST_LINES = 256
"""Lines kept of one rank."""
LONGEST_LINE = 2000

_CONNECTION = re.compile(
    r"(?:(?P<place>self|intra-node|inter-node) )?(?:ep_cfg\[(\d{1,6})\]|cfg#(\d{1,6}))\s?:?\s{0,4}"
    r"(?P<transports>(?:tag|am|rma|amo|stream|put|get)\w{0,16}\(.{1,2000})"
)
_FEATURE = re.compile(r"(\w{1,16})\(([^()]{0,1000})\)?")
_TRANSPORT = re.compile(r"([a-z]\w{0,31})/([\w.@:-]{1,80})")
_TABLE_HEAD = re.compile(
    r"(?:(?P<place>self|intra-node|inter-node) cfg#\d{1,6}.{1,80})?"
    r"ucp_\w{1,32}\S{0,64} from (?P<memory>[\w/]{1,32}(?: memory)?)"
)
_TABLE_ROW = re.compile(
    r"\|\s{1,40}(\d{1,20}[KMGT]?)\.\.(\d{1,20}[KMGT]?|inf)\s{0,40}\|(.{1,200}?)\|([^|]{1,200})\|"
)
_PML = re.compile(r"select: component (\w{1,32}) selected")
_BTL = re.compile(r"mca: bml: Using (\w{1,32}) btl for send to")
_PROVIDER = re.compile(r"libfabric provider: ([\w;]{1,64})")
_WARNING = re.compile(r"UCX\s{1,4}(?:WARN|ERROR)\s{1,4}(.{1,500})")
_REFUSED = re.compile(
    r"did not match transport list|support level is none|init returned failure for component ucx"
)


@dataclass(frozen=True, kw_only=True)
class UcxTransport:
    """One transport on one device."""

    name: str
    """``rc_mlx5``, ``tcp``, ``sysv``, ``cma``, ``cuda_ipc``."""
    device: str
    """``mlx5_0:1``, ``eth0``, ``memory``."""


@dataclass(frozen=True, kw_only=True)
class Connection:
    """The transports that one kind of connection uses for messages."""

    place: str
    """``self``, ``intra-node``, ``inter-node``; empty: UCX before 1.14 does not say."""
    transports: tuple[UcxTransport, ...]


@dataclass(frozen=True, kw_only=True)
class ProtocolRow:
    """One row of a table of ``UCX_PROTO_INFO``."""

    place: str
    """``self``, ``intra-node``, ``inter-node``; empty: not known."""
    memory: str
    """Where the message lies: ``host memory``, ``cuda/GPU0``; empty: the table's head is missing."""
    first: int
    """Smallest size in bytes that it is for."""
    last: int | None
    """Largest size; ``None``: no end."""
    protocol: str
    """``rendezvous zero-copy read from remote``."""
    transports: str
    """``rc_mlx5/mlx5_0:1``."""


@dataclass(frozen=True, kw_only=True)
class UcxLog:
    """What the lines of one rank say. Empty: not said."""

    rank: int = 0
    connections: tuple[Connection, ...] = ()
    rows: tuple[ProtocolRow, ...] = ()
    pml: str = ""
    btls: tuple[str, ...] = ()
    """Open MPI's, used to other ranks."""
    provider: str = ""
    """libfabric's, of Intel MPI and MPICH."""
    warnings: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    """Why Open MPI did not take UCX."""


def relevant_lines(chunks: Iterable[bytes], *, rank: int = 0) -> LogLines:
    """Return the lines of a log that this module reads, whatever its size, without repeats."""
    kept: list[str] = []
    seen: set[tuple[str, str]] = set()
    head, left_out = "", 0
    for text in bounded_lines(chunks):
        if not _matters(text):
            continue
        line = text.strip()[:LONGEST_LINE]
        row = _TABLE_ROW.search(line) is not None
        if not row and _TABLE_HEAD.search(line):
            head = line
        # The same row stands below the heads of several tables, and means another kind of memory there.
        key = (head, line) if row else ("", line)
        if line == head or key in seen:
            continue
        if len(kept) >= MOST_LINES:
            left_out += 1
            continue
        if row and head and (head, "") not in seen:
            kept.append(head)
            seen -= {one for one in seen if one[1] == ""}
            seen.add((head, ""))
        seen.add(key)
        kept.append(line)
    return LogLines(rank=rank, lines=tuple(kept), left_out=left_out)


@lru_cache(maxsize=64)
def parsed(log: LogLines) -> UcxLog:
    """Return what the lines of one rank say. Kept: several rules look at the same ranks of a host."""
    connections: dict[Connection, None] = {}
    rows: dict[ProtocolRow, None] = {}
    head: re.Match[str] | None = None
    for line in log.lines:
        connection = _connection(line)
        if connection is not None:
            connections[connection] = None
        row = _TABLE_ROW.search(line)
        if row is not None:
            rows[_protocol_row(row, head)] = None
        else:
            head = _TABLE_HEAD.search(line) or head
    return UcxLog(
        rank=log.rank,
        connections=tuple(connections),
        rows=tuple(rows),
        pml=_last(_PML, log.lines),
        btls=_all(_BTL, log.lines),
        provider=_last(_PROVIDER, log.lines),
        warnings=_all(_WARNING, log.lines),
        refused=tuple(line for line in log.lines if _REFUSED.search(line)),
    )


def _matters(text: str) -> bool:
    return any(
        pattern.search(text)
        for pattern in (_CONNECTION, _TABLE_ROW, _PML, _BTL, _PROVIDER, _WARNING, _REFUSED, _TABLE_HEAD)
    )


def _connection(line: str) -> Connection | None:
    found = _CONNECTION.search(line)
    if found is None:
        return None
    features = {one[1]: one[2] for one in _FEATURE.finditer(found["transports"])}
    # Messages of the MPI go by tags; one-sided features only where there are none.
    chosen = features.get("tag") or next(iter(features.values()), "")
    named = (UcxTransport(name=one[1], device=one[2]) for one in _TRANSPORT.finditer(chosen))
    transports = tuple(dict.fromkeys(named))
    return Connection(place=found["place"] or "", transports=transports) if transports else None


def _protocol_row(row: re.Match[str], head: re.Match[str] | None) -> ProtocolRow:
    return ProtocolRow(
        place=(head["place"] or "") if head else "",
        memory=head["memory"] if head else "",
        first=_size(row[1]),
        last=None if row[2] == "inf" else _size(row[2]),
        protocol=row[3].replace("(?)", "").strip(),
        transports=row[4].strip(),
    )


def _size(text: str) -> int:
    """Return the bytes of ``8249`` or ``256K``."""
    power = "KMGT".find(text[-1]) + 1
    return int(text[:-1]) << 10 * power if power else int(text)


def _last(pattern: re.Pattern[str], lines: Iterable[str]) -> str:
    found = _all(pattern, lines)
    return found[-1] if found else ""


def _all(pattern: re.Pattern[str], lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(found[1].strip() for line in lines if (found := pattern.search(line))))

"""What UCX wrote about its transports. ``nccl_log`` has NCCL's.

UCX writes with ``UCX_LOG_LEVEL=info`` which transports each connection has, as ``ep_cfg[1]: tag(...)`` until
1.13 and as ``intra-node cfg#1 tag(...)`` later. An agent sends the lines that may matter
(``agents.rank_evidence``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from ringleader.fabric.transport_proof.evidence import LogLines

_CONNECTION = re.compile(
    r"(?:(?P<place>self|intra-node|inter-node) )?(?:ep_cfg\[(\d{1,6})\]|cfg#(\d{1,6}))\s?:?\s{0,4}"
    r"(?P<transports>(?:tag|am|rma|amo|stream|put|get)\w{0,16}\(.{1,2000})"
)
_FEATURE = re.compile(r"(\w{1,16})\(([^()]{0,1000})\)?")
_TRANSPORT = re.compile(r"([a-z]\w{0,31})/([\w.@:-]{1,80})")
LONGEST = 8192
"""Characters of a line that are read."""


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


@lru_cache(maxsize=64)
def connections(log: LogLines) -> tuple[Connection, ...]:
    """Return what the lines of one rank say. Kept: several rules look at the same ranks of a host."""
    return tuple(dict.fromkeys(one for line in log.lines if (one := _connection(line[:LONGEST]))))


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

"""Which wire carried the bytes between one host and the others, whose ranks use our engine.

The engine knows how many bytes it handed over, the kernel how many each port and interface moved. What
matches has carried them; libraries' logs only decide where counters leave it open. What nothing explains is
``unknown``. Ranks of other programs are judged in ``wires_without_engine``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.fabric.transport_proof.bytes_moved import BytesMoved
from ringleader.fabric.transport_proof.evidence import HostEvidence
from ringleader.fabric.transport_proof.library_transport import LibraryWord, said_between
from ringleader.fabric.transport_proof.proof import WireShares
from ringleader.fabric.wires import RDMA, WIRE_WORDS, Wire, names_words, too_little

LEAST_JUDGED = MIB
"""Bytes; of less than this, connections' set-up and other programs' chatter is too large a part."""
LOW, HIGH = 0.97, 1.3
"""A wire matches that moved between 0.97 of the least and 1.3 times the most that was exchanged: headers are
1 to 10 % (RoCE with an MTU of 1024), and counters are read a little before and after."""
OWN_TRAFFIC = 4 * MIB
"""What the start of a job itself, its ranks' output and other programs may well move by TCP meanwhile."""
SOFT_PAYLOAD = 4096
"""Bytes in a packet of RoCE at most: the largest MTU that verbs have."""
NEGLIGIBLE = 0.02
"""A wire that moved less than this part of the bytes has not carried them."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """How many bytes crossed, both directions together."""

    least: int
    most: float
    """Infinite where some ranks told nothing."""

    def matches(self, moved: int) -> bool:
        """Tell whether a device that moved so much may have carried all of it, and nothing besides."""
        return LOW * self.least <= moved <= HIGH * self.most

    def __str__(self) -> str:
        text = byte_size(self.least)
        if math.isinf(self.most):
            return f"at least {text}"
        most = byte_size(round(self.most))
        return text if most == text else f"{text} to {most}"


def wires_between(host: HostEvidence, moved: BytesMoved) -> WireShares:
    """Return what carried the bytes of a host from and to others, where its ranks reported some."""
    traffic = host.traffic
    assert traffic is not None
    least = sum(one.least for one in traffic.libraries.values())
    most = sum(one.most for one in traffic.libraries.values())
    if most < LEAST_JUDGED:
        unjudged = too_little(most, "with other hosts")
        return WireShares(unjudged=unjudged, exchanged=least, exchanged_most=most)
    complete = traffic.ranks_counted >= len(host.ranks)
    exchange = Exchange(least=max(least, 1), most=most if complete else math.inf)
    said = _said(host)
    found = _judged(exchange, moved, said)
    evidence = [*found.reasons, *(word.evidence for word in said.words if word.evidence)]
    if not complete:
        evidence.append(
            f"{len(host.ranks) - traffic.ranks_counted} of {len(host.ranks)} ranks reported nothing"
        )
    shares = dict(sorted(found.shares.items(), key=lambda one: -one[1]))
    return WireShares(
        exchanged=least,
        exchanged_most=most,
        shares=shares,
        devices={wire: moved.devices[wire] for wire in shares if wire in moved.devices},
        evidence=tuple(dict.fromkeys(evidence)),
        contradictions=_contradictions(shares, said, found),
        by_log_only=found.by_log_only,
    )


@dataclass(frozen=True, kw_only=True)
class _Said:
    shares: Mapping[Wire, float]
    words: tuple[LibraryWord, ...]


@dataclass(frozen=True, kw_only=True)
class _Judged:
    shares: Mapping[Wire, float]
    reasons: tuple[str, ...]
    by_log_only: bool = False


def _said(host: HostEvidence) -> _Said:
    """Return what the libraries say, each weighted by its bytes."""
    assert host.traffic is not None
    weights = {name: one.most for name, one in host.traffic.libraries.items() if one.most}
    total, shares, words = sum(weights.values()), dict[Wire, float](), []
    for name, weight in weights.items():
        if weight < NEGLIGIBLE * total:
            continue
        word = said_between(host, name)
        words.append(word)
        for wire, part in (word.shares or {Wire.UNKNOWN: 1.0}).items():
            shares[wire] = shares.get(wire, 0.0) + part * weight
    every = sum(shares.values())
    known = {wire: part / every for wire, part in shares.items()} if every else {}
    return _Said(shares={} if set(known) <= {Wire.UNKNOWN} else known, words=tuple(words))


def _judged(exchange: Exchange, moved: BytesMoved, said: _Said) -> _Judged:
    if moved.missing:
        return _by_log(said, (moved.missing,))
    main = max(said.shares, key=lambda wire: said.shares[wire]) if said.shares else None
    if main is Wire.P2P:
        return _by_log(said, ("no counter shows what goes over NVLink between hosts",))
    if soft := _soft(exchange, moved, said, main):
        return soft
    candidates: dict[Wire, int] = {
        wire: n
        for wire, n in moved.by_wire.items()
        if wire is not Wire.UNKNOWN and n and n >= NEGLIGIBLE * exchange.least
    }
    shares = _shares(exchange, moved, candidates, said)
    reasons = _reasons(exchange, moved, candidates, shares)
    unknown = shares.get(Wire.UNKNOWN, 0.0)
    if unknown > NEGLIGIBLE and main is not None and main in moved.unusable - moved.packets.keys():
        # The library names a wire whose counters say nothing: then it alone is to be believed.
        parts = dict(shares)
        del parts[Wire.UNKNOWN]
        parts[main] = parts.get(main, 0.0) + unknown
        return _Judged(shares=parts, reasons=reasons, by_log_only=True)
    return _Judged(shares=shares, reasons=reasons)


def _soft(exchange: Exchange, moved: BytesMoved, said: _Said, main: Wire | None) -> _Judged | None:
    """Judge a soft device (rxe): its port counts packets alone, whose bytes an interface counts as UDP.

    ``None``: it cannot have carried the bytes, or the libraries say that something else has.
    """
    if main in moved.soft and main is not None and main not in moved.packets:
        return _by_log(said, (f"{WIRE_WORDS[main]} is of a soft device here, whose bytes no port counts",))
    sockets = moved.by_wire.get(Wire.TCP, 0)
    for wire in moved.soft & moved.packets.keys() if main is None else moved.soft & {main}:
        count = moved.packets[wire]
        if min(count * SOFT_PAYLOAD, sockets) >= LOW * exchange.least:
            ports = names_words(tuple(one.name for one in moved.carried if one.wire is wire))
            names = names_words(moved.devices.get(Wire.TCP, ()))
            reason = f"{ports} moved {count:,} packets, and {names} {byte_size(sockets)} with them"
            compared = _compared(sockets, exchange)
            if main is None:
                return _Judged(
                    shares={Wire.UNKNOWN: 1.0},
                    reasons=(f"{reason}{compared}", "no log shows whether TCP or these packets carried it"),
                )
            return _Judged(shares={wire: 1.0}, reasons=(reason + compared,))
    return None


def _shares(
    exchange: Exchange, moved: BytesMoved, candidates: Mapping[Wire, int], said: _Said
) -> Mapping[Wire, float]:
    matches = [
        wire
        for wire, n in candidates.items()
        if exchange.matches(n) or exchange.matches(moved.largest.get(wire, 0))
    ]
    if len(matches) == 1:
        return {matches[0]: 1.0}
    enough = [wire for wire, n in candidates.items() if n >= LOW * exchange.least]
    if len(candidates) == 1 and enough:
        # Others used it as well.
        return {enough[0]: 1.0}
    if len(matches) > 1 or len(enough) > 1:
        rdma = [wire for wire in matches if wire in RDMA]
        if not said.shares and len(rdma) == 1 and candidates.get(Wire.TCP, 0) <= OWN_TRAFFIC:
            return {rdma[0]: 1.0}
        return _one_said(matches or enough, said)
    total = sum(candidates.values())
    if enough and total > HIGH * exchange.most:
        # One could have carried all, but some of it may have gone by the others.
        rest = (total - candidates[enough[0]]) / exchange.least
        by_log = _one_said(enough, said)
        sure = max(0.0, 1.0 - rest)
        return by_log if Wire.UNKNOWN not in by_log else {enough[0]: sure, Wire.UNKNOWN: 1.0 - sure}
    scale = max(total, exchange.least)
    found = {wire: n / scale for wire, n in candidates.items()}
    unexplained = 1.0 - sum(found.values())
    if unexplained > 1.0 - LOW:
        return {**found, Wire.UNKNOWN: unexplained}
    every = sum(found.values())
    return {wire: part / every for wire, part in found.items()}


def _one_said(possible: list[Wire], said: _Said) -> Mapping[Wire, float]:
    """Return the one of several possible wires that the libraries name, ``unknown`` where they name none."""
    named = [wire for wire in possible if said.shares.get(wire, 0.0) > 0.5]
    return {named[0] if len(named) == 1 else Wire.UNKNOWN: 1.0}


def _by_log(said: _Said, reasons: tuple[str, ...]) -> _Judged:
    return _Judged(shares=said.shares or {Wire.UNKNOWN: 1.0}, reasons=reasons, by_log_only=bool(said.shares))


def _reasons(
    exchange: Exchange, moved: BytesMoved, candidates: Mapping[Wire, int], shares: Mapping[Wire, float]
) -> tuple[str, ...]:
    found = []
    for wire in sorted(candidates, key=lambda wire: -shares.get(wire, 0.0)):
        n, names = candidates[wire], names_words(moved.devices.get(wire, ()))
        text = f"{names} carried {byte_size(n)}"
        if shares.get(wire, 0.0) == 1.0:
            text += _compared(n, exchange)
        found.append(text)
    if not candidates:
        found.append(f"no port and no interface moved what the engine exchanged, {exchange}")
    elif Wire.UNKNOWN in shares:
        found.append(f"the engine exchanged {exchange}")
    if not set(candidates) & RDMA and set(moved.by_wire) & RDMA:
        found.append("the RDMA ports moved next to nothing")
    found += [f"{one.name} is not counted: {one.unusable}" for one in moved.carried if one.unusable]
    return tuple(found)


def _compared(n: int, exchange: Exchange) -> str:
    if n > HIGH * exchange.most:
        return f", of which the engine's {exchange}: others used it as well"
    ratio = f": {n / exchange.least:.2f} with headers" if exchange.most == exchange.least else ""
    return f", the engine exchanged {exchange}{ratio}"


def _contradictions(shares: Mapping[Wire, float], said: _Said, found: _Judged) -> tuple[str, ...]:
    """Return what logs say against the counters, where they differ in whether it was RDMA."""
    if found.by_log_only or not said.shares:
        return ()
    counted = sum(part for wire, part in shares.items() if wire in RDMA)
    known = 1.0 - shares.get(Wire.UNKNOWN, 0.0)
    logged = sum(part for wire, part in said.shares.items() if wire in RDMA)
    if known < 0.5 or abs(counted / known - logged) < 0.5 or said.shares.get(Wire.UNKNOWN, 0.0) > 0.5:
        return ()
    words = "; ".join(word.evidence for word in said.words if word.evidence)
    return (f"{words}, but the counters show otherwise",)

"""Which wire carried the bytes of ranks that do not use our engine, and so do not report what they exchange.

The kernel counts what each of their TCP connections moved, and its address names the interface. RDMA ports
count for all of the host: what they moved was this job's where a library's log says so, where its processes
had an RDMA device open, or where nobody else uses the host. ``wires_between`` and ``wires_within`` are about
ranks that report what they exchange.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.fabric.transport_proof.bytes_moved import BytesMoved
from ringleader.fabric.transport_proof.evidence import Exchanged, HostEvidence
from ringleader.fabric.transport_proof.library_transport import LibraryWord, said_between, said_within
from ringleader.fabric.transport_proof.proof import WireShares
from ringleader.fabric.transport_proof.wires_between import (
    HIGH,
    LEAST_JUDGED,
    LOW,
    NEGLIGIBLE,
    OWN_TRAFFIC,
    SOFT_PAYLOAD,
)
from ringleader.fabric.wires import RDMA, Wire, names_words

CONNECTIONS = "the job's TCP connections"
PORTS_UNREAD = "RDMA ports"
"""What of a snapshot is not complete then; interfaces are read after them."""
SOCKETS = (Wire.TCP, Wire.IPOIB)
TCP_HEADERS = 1.06
"""What an interface carries for a byte of a connection, at most."""


def exchanged_with(host: HostEvidence) -> dict[str, Exchanged]:
    """Return what a host's TCP connections moved to and from each other host."""
    found: dict[str, Exchanged] = {}
    for one in host.connections or ():
        if one.peer != host.host:
            found[one.peer] = found.get(one.peer, Exchanged()) + one.moved
    return found


def carried_within(host: HostEvidence, moved: BytesMoved) -> WireShares:
    """Return what carried the bytes between the ranks of one host."""
    # Both ends are here, so what one has sent is what the other has received.
    nbytes = sum(one.moved.sent for one in host.connections or () if one.peer == host.host)
    text = f"{CONNECTIONS} within the host moved {byte_size(nbytes)}"
    gaps = []
    if host.unowned_within > MIB:
        gaps = [f"short connections of unknown users moved {byte_size(host.unowned_within)} within the host"]
    said = _first(said_within(host, "nccl"), said_within(host, "mpi") if host.ucx else LibraryWord())
    if said.main not in (None, Wire.UNKNOWN):
        return _by_log(said, text)
    if host.connections is None:
        return WireShares(unjudged=_unread(host), by_connections=True)
    ways = host.by_memory or (("GPUs",) if host.gpus else ())
    if nbytes < LEAST_JUDGED or ways:
        # What went through memory shows in no counter, and may be most of it.
        also = f", its processes use {names_words(ways)}" if ways else ""
        why = "; ".join([f"{text}{also}, and no log says what else was exchanged", *gaps])
        return WireShares(unjudged=why, exchanged=nbytes, exchanged_most=nbytes, by_connections=True)
    lo = moved.loopback
    crossed = None if lo is None or lo.unusable else max(lo.moved.sent, lo.moved.received)
    return WireShares(
        exchanged=nbytes,
        exchanged_most=nbytes,
        shares={Wire.TCP: 1.0},
        devices={Wire.TCP: ("lo",)},
        evidence=(_compared("lo", crossed, nbytes), *gaps, *_gaps(host, moved)),
        by_connections=True,
    )


def carried_between(host: HostEvidence, moved: BytesMoved) -> WireShares:
    """Return what carried the bytes of a host from and to others."""
    said = _first(said_between(host, "nccl"), said_between(host, "mpi") if host.ucx else LibraryWord())
    blind = _uncounted(host, moved)
    if said.main is Wire.P2P or (said.main in RDMA and blind):
        return _by_log(said, blind or "no counter shows what goes over NVLink between hosts")
    tcp = _tcp(host, moved)
    verbs = _verbs(host, moved, tcp)
    parts, reasons = _parts(host, said.main, tcp, verbs, blind)
    if verbs.total and host.connections is not None and not tcp.is_exact and said.main not in SOCKETS:
        # Connections that were not counted are somewhere in the rest of the interfaces' bytes.
        rest = sum(moved.by_wire.get(wire, 0) for wire in SOCKETS) - int(TCP_HEADERS * tcp.total)
        parts[Wire.UNKNOWN] = parts.get(Wire.UNKNOWN, 0) + max(0, rest)
    total = sum(parts.values())
    largest = sorted(((n, wire) for wire, n in parts.items() if n > NEGLIGIBLE * total), reverse=True)
    shares = {wire: n / sum(n for n, _ in largest) for n, wire in largest}
    denied = said.main in RDMA and sum(shares.get(wire, 0.0) for wire in RDMA) < 0.5
    contradictions = (f"{said.evidence}, but the counters show otherwise",) if denied else ()
    if total < LEAST_JUDGED:
        what = f"{byte_size(total)} moved by its connections and RDMA ports is too little to judge"
        return WireShares(
            unjudged="; ".join([what, *reasons]),
            exchanged=total,
            exchanged_most=total,
            contradictions=contradictions,
            by_connections=True,
        )
    return WireShares(
        exchanged=total,
        exchanged_most=total,
        shares=shares,
        devices={wire: names for wire, names in (verbs.devices | tcp.devices).items() if wire in shares},
        evidence=tuple(dict.fromkeys(filter(None, [*reasons, *_gaps(host, moved), said.evidence]))),
        contradictions=contradictions,
        by_connections=True,
    )


@dataclass(frozen=True, kw_only=True)
class _Part:
    """What connections, or what ports moved."""

    by_wire: Mapping[Wire, int]
    devices: dict[Wire, tuple[str, ...]] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()
    opened: Mapping[Wire, int] = field(default_factory=dict)
    """Of ports: what those of devices moved that the job's processes had open."""
    is_exact: bool = True
    """They are all of the job's bytes, and nobody else's."""

    @property
    def total(self) -> int:
        return sum(self.by_wire.values())


def _parts(
    host: HostEvidence, main: Wire | None, tcp: _Part, verbs: _Part, blind: str
) -> tuple[dict[Wire, int], list[str]]:
    """Return which bytes were the job's, and why. ``main``: what logs name."""
    reasons = [*tcp.reasons, *verbs.reasons]
    if main in SOCKETS:
        return dict(tcp.by_wire), [*reasons, *(["the ports served others"] if verbs.total else [])]
    if blind:
        # What sockets carried may be a small part of it.
        return {Wire.UNKNOWN: tcp.total}, [*reasons, blind]
    found = dict(tcp.by_wire)
    by_interfaces = host.connections is None
    if verbs.total and by_interfaces and (tcp.total <= OWN_TRAFFIC or main in verbs.by_wire):
        found.clear()  # a job's start and its ranks' output move so much
    if found and by_interfaces and host.shared_with_others:
        found = {Wire.UNKNOWN: tcp.total}
        reasons.append("no log shows whether this was for the job")
    is_ours = main in RDMA or not host.shared_with_others
    # A library may open a device and not use it: connections that moved much say so.
    opened = verbs.opened if by_interfaces or tcp.total <= OWN_TRAFFIC else {}
    for wire, nbytes in verbs.by_wire.items():
        ours = nbytes if is_ours else min(nbytes, opened.get(wire, 0))
        for whose, part in ((wire, ours), (Wire.UNKNOWN, nbytes - ours)):
            if part:
                found[whose] = found.get(whose, 0) + part
    if verbs.total and not is_ours and not any(opened.values()):
        reasons.append(
            "no log shows whether this was for the job, and connections moved much, too"
            if any(verbs.opened.values())
            else "neither a log nor an open RDMA device shows whether this was for the job"
        )
    elif verbs.total and main is None and host.verbs:
        reasons.append(f"its processes had {names_words(host.verbs)} open")
    return found, reasons


def _tcp(host: HostEvidence, moved: BytesMoved) -> _Part:
    """Return what TCP carried to other hosts: by connections, where they were read."""
    if host.connections is None:
        by_wire = {wire: moved.by_wire[wire] for wire in SOCKETS if moved.by_wire.get(wire)}
        names = {wire: moved.devices[wire] for wire in by_wire}
        reasons = (
            *(f"{names_words(names[wire])} carried {byte_size(n)}" for wire, n in by_wire.items()),
            _unread(host),
        )
        return _Part(by_wire=by_wire, devices=names, reasons=reasons, is_exact=False)
    snapshot = host.after or host.before
    by_name, by_kind = Counter[str](), Counter[Wire]()
    devices: dict[Wire, tuple[str, ...]] = {}
    for one in host.connections:
        if one.peer != host.host:
            by_name[one.interface] += one.moved.total
    for name, nbytes in by_name.items():
        device = snapshot.net_devices.get(name) if snapshot is not None else None
        wire = Wire.IPOIB if device is not None and device.kind == "infiniband" else Wire.TCP
        by_kind[wire] += nbytes
        devices[wire] = (*devices.get(wire, ()), *filter(None, [name]))
    counted = {one.name: one.moved.total for one in moved.carried if not one.unusable}
    reasons = tuple(_compared(name, counted.get(name), n) for name, n in by_name.items())
    return _Part(
        by_wire=dict(by_kind),
        devices=devices,
        reasons=reasons or (f"{CONNECTIONS} moved nothing",),
        is_exact=not host.connections_missing,
    )


def _verbs(host: HostEvidence, moved: BytesMoved, tcp: _Part) -> _Part:
    """Return what RDMA ports moved; packets of soft devices (rxe) are an interface's bytes without TCP's."""
    by_wire = {wire: n for wire, n in moved.by_wire.items() if wire in RDMA and n >= LEAST_JUDGED}
    reasons = [f"{names_words(moved.devices[wire])} carried {byte_size(n)}" for wire, n in by_wire.items()]
    devices = {wire: moved.devices[wire] for wire in by_wire}
    by_connections = 0 if host.connections is None else int(TCP_HEADERS * tcp.by_wire.get(Wire.TCP, 0))
    rest = moved.by_wire.get(Wire.TCP, 0) - by_connections
    for wire in moved.soft & moved.packets.keys():
        nbytes = min(moved.packets[wire] * SOFT_PAYLOAD, rest)
        if nbytes >= LEAST_JUDGED:
            by_wire[wire] = nbytes
            devices[wire] = tuple(one.name for one in moved.carried if one.wire is wire)
            names = f"{names_words(devices[wire])} moved {moved.packets[wire]:,} packets"
            reasons.append(
                f"{names}, and {names_words(moved.devices[Wire.TCP])} {byte_size(nbytes)} with them"
            )
    opened = dict[Wire, int]()
    for wire, ports in devices.items():
        ours = {name for name in ports if name.partition(" ")[0] in host.verbs}
        by_ports = sum(one.moved.total for one in moved.carried if one.name in ours)
        opened[wire] = by_wire[wire] if ours == {*ports} else by_ports
    return _Part(by_wire=by_wire, devices=devices, reasons=tuple(reasons), opened=opened)


def _first(*words: LibraryWord) -> LibraryWord:
    return next((word for word in words if word.shares), LibraryWord())


def _by_log(said: LibraryWord, *why: str) -> WireShares:
    evidence = (said.evidence, *why)
    return WireShares(shares=said.shares, evidence=evidence, by_log_only=True, by_connections=True)


def _compared(name: str, carried: int | None, nbytes: int) -> str:
    """Return what an interface carried and what connections did on it."""
    theirs, all_of_it = byte_size(nbytes), byte_size(carried or 0)
    if carried is None or not (name and nbytes):
        return f"{CONNECTIONS} moved {theirs}{f' on {name}' if name else ''}"
    if carried < LOW * nbytes:
        return f"{CONNECTIONS} moved {theirs}, but {name} counted {all_of_it} only"
    if carried > HIGH * nbytes:
        return f"{name} carried {all_of_it}, of which {CONNECTIONS} {theirs}: others used it as well"
    return f"{name} carried {all_of_it}, {CONNECTIONS} moved {theirs}: {carried / nbytes:.2f} with headers"


def _uncounted(host: HostEvidence, moved: BytesMoved) -> str:
    """Return why it is not known what RDMA ports moved; empty: it is, or there are none."""
    snapshots = [one for one in (host.before, host.after) if one is not None]
    ports = {name.replace("/", " port "): port for one in snapshots for name, port in one.rdma_ports.items()}
    if moved.missing:
        unread = any(one.unread == PORTS_UNREAD for one in snapshots)
        return moved.missing if ports or unread or not snapshots else ""
    dark = [
        f"{one.name} is not counted: {one.unusable}"
        for one in moved.carried
        if one.unusable and one.name in ports and ports[one.name].state in ("ACTIVE", "")
        if one.wire not in moved.packets
    ]
    return "; ".join(dark)


def _gaps(host: HostEvidence, moved: BytesMoved) -> Iterator[str]:
    """Yield what was not counted."""
    if host.connections is not None and host.connections_missing:
        yield f"not all connections were counted: {host.connections_missing}"
    for one in moved.carried:
        if one.unusable and one.wire not in moved.packets:
            yield f"{one.name} is not counted: {one.unusable}"


def _unread(host: HostEvidence) -> str:
    why = host.connections_missing or host.missing or "nothing was reported of them"
    return f"{CONNECTIONS} could not be read ({why})"

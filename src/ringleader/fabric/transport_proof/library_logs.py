"""What NCCL and UCX wrote about their transports. ``library_transport`` has what follows from it.

NCCL's lines are those of 2.3 to 2.30. UCX writes with ``UCX_LOG_LEVEL=info`` which transports each connection
has, as ``ep_cfg[1]: tag(...)`` until 1.13 and as ``intra-node cfg#1 tag(...)`` later.

An agent sends the lines that may matter (``agents.rank_evidence``). Anything else in them is passed over:
output of other programs, binary junk. Several ranks may have written into one line. Each repetition in a
pattern is bounded, so that junk costs little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from ringleader.fabric.transport_proof.evidence import LogLines

LONGEST = 8192
"""Characters of a line that are read."""
PREFIX = re.compile(r"(?:[\w.-]{1,64}:\d{1,10}:\d{1,10} \[-?\w{1,8}\] )(?=(?:\S{1,80}:\d{1,6} )?NCCL )")
"""``host:pid:thread [device] ``, behind which a file's name may stand (warnings)."""
GLUED = re.compile(r"(/GDRDMA|/Shared)(?=\w)")
"""The end of a path with another rank's prefix right behind it."""
MESSAGE = re.compile(r"NCCL (INFO|WARN|TRACE|VERSION|version|ERROR) ?")
CHANNEL = re.compile(
    r"(?:Ring|Channel|Tree|CollNet|P2P) ?(?:\d{1,4})?(?:/\d{1,4})? : "
    r"(?P<source>\d{1,9})(?:\[[0-9a-f]{1,16}\])? -> (?P<target>\d{1,9})(?:\[[0-9a-f]{1,16}\])?"
    r"(?: \[(?P<direction>send|receive)\])? via (?P<path>.{1,200})"
)
"""2.3 to 2.6 ``Ring 00 : 1 -> 0 [send] via``, from 2.7 ``Channel 00 : 1[1a000] -> 0[1b000]``, from 2.12
``Channel 00/0 :``, from 2.18 small numbers in the brackets; 2.3 has no ``[receive]``."""
NETWORK_PATH = re.compile(
    r"(?P<collective>COLL)?NET/(?P<network>[\w .+-]{1,64})/(?P<device>\d{1,4})(?:\(\d{1,9}\))?"
    r"(?P<gpudirect>/GDRDMA)?(?:\((?:PCI|Default)\))?(?:/Shared)?"
)
"""``(3)``: through the NIC of rank 3 (PXN, from 2.12); ``(PCI)``: from 2.26."""
DEVICES = re.compile(r"NET/IB ?: Using (.{1,4000}?)(?:\[RO\])?\s*(?:; OOB (\S{1,128})|$)")
"""From 2.4; ``[RO]`` from 2.12; plugins leave the end out."""
ONE_DEVICE = re.compile(r"NET/IB ?: \[\d{1,3}\] ([^\s:]{1,64})(?::uverbs\d{1,4})?:(\d{1,3})/(\w{1,16})")
"""Until 2.3 ``[0] mlx5_0:1/RoCE``; from 2.24 with details ``[0] mlx5_0:uverbs0:1/RoCE provider=Mlx5``."""
DEVICE = re.compile(r"(?<![\w.-])([A-Za-z_][\w.-]{0,63}):(\d{1,3})(?::-?\d{0,6}){0,3}/(IB|RoCE|\w{1,16})")
"""``mlx5_0:1/IB``, from 2.30.7 with rail and plane: ``mlx5_0:1:0:0/IB``; fused ports of 2.20 to 2.23 are in
braces."""
SOCKETS = re.compile(r"NET/(?:Fast)?Socket ?: Using (.{1,1000})")
INTERFACE = re.compile(r"(?:\[\d{1,3}\])?([\w.@-]{1,64}):[\w.:%\[\]]{1,80}<\d{1,5}>")
USING_NETWORK = re.compile(r"Using network (\S[\w .+-]{0,63})")
"""From 2.6: the verdict of the library itself."""
ASSIGNED_PLUGIN = re.compile(r"Assigned NET plugin (\S[\w .+-]{0,63}?) to comm")
"""From 2.27."""
PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is (\w{1,64})")
ALL_RINGS = re.compile(r"Connected all rings, use ring PXN (\d) GDR (\d)")
"""From 2.24: whether GPUDirect RDMA is on for all ranks."""
GPUDIRECT_DEVICE = re.compile(
    r"GPU Direct RDMA (Enabled|Disabled) for HCA \d{1,4} '(\S{1,64}?)'(?: \((.{1,200}?)\))?"
)
"""From 2.13 both words; 2.5 to 2.12 only ``Disabled``."""
INTRA = (
    (re.compile(r"P2P/|direct pointer|NVLS", re.IGNORECASE), "P2P"),
    (re.compile(r"SHM|direct shared memory", re.IGNORECASE), "SHM"),
)
"""``P2P/direct pointer``, ``P2P/IPC/read``, ``P2P/CUMEM`` (from 2.18), ``P2P/indirect``; ``direct shared
memory`` until 2.12, ``SHM/direct/direct`` or ``SHM/direct/CE`` from 2.13."""


@dataclass(frozen=True, kw_only=True)
class Device:
    """An RDMA port that NCCL uses."""

    name: str
    port: int
    link: str
    """``IB``, ``RoCE``."""


@dataclass(frozen=True, kw_only=True)
class Channel:
    """One direction between two ranks of a communicator, however many channels it has."""

    source: int
    """Ranks as the communicator numbers them."""
    target: int
    direction: str
    """``send``, ``receive``; empty: NCCL 2.3 does not say for what it receives, nor do paths within a
    host."""
    transport: str
    """``P2P``, ``SHM``, ``NET``, ``COLLNET``; empty: not known."""
    network: str = ""
    """Of NET and COLLNET: ``IB``, ``Socket``, ``AWS Libfabric``."""
    device: int | None = None
    gpudirect: bool = False
    path: str = ""
    """As it was written."""


@dataclass(frozen=True, kw_only=True)
class NcclLog:
    """What the lines of one rank say. Empty: not said."""

    network: str = ""
    """``IB``, ``Socket``, ``AWS Libfabric``: by ``Using network``, or else by what it found."""
    devices: tuple[Device, ...] = ()
    interfaces: tuple[str, ...] = ()
    """Of ``NET/Socket : Using``."""
    provider: str = ""
    """libfabric's: ``efa``, ``tcp``."""
    channels: tuple[Channel, ...] = ()
    gpudirect_everywhere: bool | None = None
    """What the last ``Connected all rings, use ring PXN 0 GDR 1`` said."""
    gpudirect_devices: tuple[tuple[str, bool, str], ...] = ()
    """HCA, whether GPUDirect RDMA is enabled, why not."""


@lru_cache(maxsize=64)
def nccl_log(log: LogLines) -> NcclLog:
    """Return what the lines of one rank say. Kept: several rules look at the same ranks of a host."""
    unique: dict[str, str] = {}
    for line in log.lines:
        for message in _messages(line[:LONGEST]):
            # Without its channel's number: of 64 channels on the same path one line is enough.
            key = message.partition(" : ")[2] if " via " in message else message
            unique.setdefault(key, message)
    messages = list(unique.values())
    devices = tuple(dict.fromkeys(one for message in messages for one in _devices(message)))
    interfaces = tuple(dict.fromkeys(one for message in messages for one in _interfaces(message)))
    rings = [found for message in messages if (found := ALL_RINGS.search(message))]
    chosen = _last(USING_NETWORK, messages) or _last(ASSIGNED_PLUGIN, messages)
    return NcclLog(
        # Until 2.5 the library only said what it found, and took InfiniBand before sockets.
        network=chosen or ("IB" if devices else "Socket" if interfaces else ""),
        devices=devices,
        interfaces=interfaces,
        provider=_last(PROVIDER, messages),
        channels=tuple(dict.fromkeys(one for message in messages if (one := _channel(message)))),
        gpudirect_everywhere=rings[-1][2] == "1" if rings else None,
        gpudirect_devices=tuple(
            (found[2], found[1] == "Enabled", found[3] or "")
            for message in messages
            if (found := GPUDIRECT_DEVICE.search(message))
        ),
    )


def _messages(text: str) -> Iterator[str]:
    """Yield each message of a line, from ``NCCL`` on: ranks that share a file write into each other's."""
    found = text.find("NCCL ")
    if found < 0:
        return
    if text.find("NCCL ", found + 1) >= 0:
        text = PREFIX.sub("\n", GLUED.sub(r"\1 ", text))
    for part in text.split("\n"):
        found = part.find("NCCL ")
        if found >= 0 and MESSAGE.match(part, found):
            yield part[found:].rstrip()


def _channel(message: str) -> Channel | None:
    found = CHANNEL.search(message)
    if found is None:
        return None
    path = found["path"].strip()
    network = NETWORK_PATH.match(path)
    if network is not None:
        transport = "COLLNET" if network["collective"] else "NET"
    else:
        transport = next((name for pattern, name in INTRA if pattern.match(path)), "")
    return Channel(
        source=int(found["source"]),
        target=int(found["target"]),
        direction=found["direction"] or "",
        transport=transport,
        network=network["network"] if network else "",
        device=int(network["device"]) if network else None,
        gpudirect=network is not None and network["gpudirect"] is not None,
        path=path,
    )


def _devices(message: str) -> Iterator[Device]:
    using = DEVICES.search(message)
    for one in DEVICE.finditer(using[1]) if using else ONE_DEVICE.finditer(message):
        yield Device(name=one[1], port=int(one[2]), link=one[3])


def _interfaces(message: str) -> Iterator[str]:
    using = SOCKETS.search(message)
    for one in INTERFACE.finditer(using[1]) if using else ():
        yield one[1]


def _last(pattern: re.Pattern[str], messages: list[str]) -> str:
    found = [match[1].strip() for message in messages if (match := pattern.search(message))]
    return found[-1] if found else ""


# --- UCX --------------------------------------------------------------------------------------------------

_CONNECTION = re.compile(
    r"(?:(?P<place>self|intra-node|inter-node) )?(?:ep_cfg\[(\d{1,6})\]|cfg#(\d{1,6}))\s?:?\s{0,4}"
    r"(?P<transports>(?:tag|am|rma|amo|stream|put|get)\w{0,16}\(.{1,2000})"
)
_FEATURE = re.compile(r"(\w{1,16})\(([^()]{0,1000})\)?")
_TRANSPORT = re.compile(r"([a-z]\w{0,31})/([\w.@:-]{1,80})")


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

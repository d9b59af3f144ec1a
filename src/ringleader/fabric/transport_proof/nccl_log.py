"""What NCCL wrote about its transports: the lines that matter, and what they say.

``nccl_log_patterns`` has the formats of NCCL 2.3 to 2.30. Anything else in a log is passed over: output of
other programs, binary junk. Several ranks may have written into one line.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from ringleader.fabric.transport_proof import nccl_log_patterns as patterns
from ringleader.fabric.transport_proof.evidence import LogLines
from ringleader.fabric.transport_proof.log_lines import bounded_lines

MOST_LINES = 512
"""Lines kept of one rank."""


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
    through_rank: int | None = None
    """The rank whose NIC is used (PXN)."""
    path: str = ""
    """As it was written."""


@dataclass(frozen=True, kw_only=True)
class NcclLog:
    """What the lines of one rank say. Empty: not said."""

    rank: int = 0
    version: str = ""
    network: str = ""
    """``IB``, ``Socket``, ``AWS Libfabric``: by ``Using network``, or else by what it found."""
    devices: tuple[Device, ...] = ()
    interfaces: tuple[str, ...] = ()
    """Of ``NET/Socket : Using``."""
    plugin: str = ""
    provider: str = ""
    """libfabric's: ``efa``, ``tcp``."""
    channels: tuple[Channel, ...] = ()
    gpudirect_everywhere: bool | None = None
    """What the last ``Connected all rings, use ring PXN 0 GDR 1`` said."""
    gpudirect_devices: tuple[tuple[str, bool, str], ...] = ()
    """HCA, whether GPUDirect RDMA is enabled, why not."""
    gpudirect_gpus: tuple[bool, ...] = ()
    """One for each line about a GPU and an HCA."""
    errors: tuple[str, ...] = ()
    complete: bool = False
    """A communicator was made to the end."""


def relevant_lines(chunks: Iterable[bytes], *, rank: int = 0) -> LogLines:
    """Return the lines of a log that this module reads, whatever its size, without repeats."""
    kept: dict[str, str] = {}
    left_out = 0
    for text in bounded_lines(chunks):
        for message in _messages(text):
            key = _key(message)
            if key in kept or not _matters(message):
                continue
            if len(kept) >= MOST_LINES:
                left_out += 1
                continue
            kept[key] = message
    return LogLines(rank=rank, lines=tuple(kept.values()), left_out=left_out)


@lru_cache(maxsize=64)
def parsed(log: LogLines) -> NcclLog:
    """Return what the lines of one rank say. Kept: several rules look at the same ranks of a host."""
    unique: dict[str, str] = {}
    for line in log.lines:
        for message in _messages(line):
            unique.setdefault(_key(message), message)
    messages = list(unique.values())
    devices = tuple(dict.fromkeys(one for message in messages for one in _devices(message)))
    interfaces = tuple(dict.fromkeys(one for message in messages for one in _interfaces(message)))
    rings = [found for message in messages if (found := patterns.ALL_RINGS.search(message))]
    return NcclLog(
        rank=log.rank,
        version=_last(patterns.VERSION, messages),
        network=_network(messages, devices, interfaces),
        devices=devices,
        interfaces=interfaces,
        plugin=_last(patterns.EXTERNAL_PLUGIN, messages),
        provider=_last(patterns.PROVIDER, messages),
        channels=tuple(dict.fromkeys(one for message in messages if (one := _channel(message)))),
        gpudirect_everywhere=rings[-1][2] == "1" if rings else None,
        gpudirect_devices=tuple(
            (found[2], found[1] == "Enabled", found[3] or "")
            for message in messages
            if (found := patterns.GPUDIRECT_DEVICE.search(message))
        ),
        gpudirect_gpus=tuple(
            found[1] == "Enabled" for message in messages if (found := patterns.GPUDIRECT_GPU.search(message))
        ),
        errors=tuple(
            dict.fromkeys(_text(message) for message in messages if patterns.ERRORS.search(message))
        ),
        complete=any("Init COMPLETE" in message or "Connected all rings" in message for message in messages),
    )


def _messages(text: str) -> Iterator[str]:
    """Yield each message of a line, from ``NCCL`` on: ranks that share a file write into each other's."""
    found = text.find("NCCL ")
    if found < 0:
        return
    if text.find("NCCL ", found + 1) >= 0:
        text = patterns.PREFIX.sub("\n", patterns.GLUED.sub(r"\1 ", text))
    for part in text.split("\n"):
        found = part.find("NCCL ")
        if found >= 0 and patterns.MESSAGE.match(part, found):
            yield part[found:].rstrip()


def _matters(message: str) -> bool:
    return any(pattern.search(message) for pattern in patterns.RELEVANT)


def _key(message: str) -> str:
    """Return a message without its channel's number: of 64 channels on the same path one line is enough."""
    return message.partition(" : ")[2] if " via " in message else message


def _channel(message: str) -> Channel | None:
    found = patterns.CHANNEL.search(message)
    if found is None:
        return None
    source, target, direction = int(found["source"]), int(found["target"]), found["direction"] or ""
    path = found["path"].strip()
    network = patterns.NETWORK_PATH.match(path)
    if network is not None:
        return Channel(
            source=source,
            target=target,
            direction=direction,
            transport="COLLNET" if network["collective"] else "NET",
            network=network["network"],
            device=int(network["device"]),
            gpudirect=network["gpudirect"] is not None,
            through_rank=int(network["proxy"]) if network["proxy"] else None,
            path=path,
        )
    transport = next((name for pattern, name in patterns.INTRA if pattern.match(path)), "")
    return Channel(source=source, target=target, direction=direction, transport=transport, path=path)


def _devices(message: str) -> Iterator[Device]:
    using = patterns.DEVICES.search(message)
    found = patterns.DEVICE.finditer(using[1]) if using else patterns.ONE_DEVICE.finditer(message)
    for one in found:
        yield Device(name=one[1], port=int(one[2]), link=one[3])


def _interfaces(message: str) -> Iterator[str]:
    using = patterns.SOCKETS.search(message)
    for one in patterns.INTERFACE.finditer(using[1]) if using else ():
        yield one[1]


def _network(messages: list[str], devices: tuple[Device, ...], interfaces: tuple[str, ...]) -> str:
    chosen = _last(patterns.USING_NETWORK, messages) or _last(patterns.ASSIGNED_PLUGIN, messages)
    if chosen:
        return chosen
    # Until 2.5 the library only said what it found, and took InfiniBand before sockets.
    return "IB" if devices else "Socket" if interfaces else ""


def _last(pattern: re.Pattern[str], messages: list[str]) -> str:
    found = [match for message in messages if (match := pattern.search(message))]
    return next((group.strip() for group in found[-1].groups() if group), "") if found else ""


def _text(message: str) -> str:
    found = patterns.MESSAGE.match(message)
    return found[2].strip() if found else message

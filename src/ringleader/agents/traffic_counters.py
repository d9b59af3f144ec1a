"""Bytes that this host's network interfaces and RDMA ports have carried, as the kernel counts them.

One agent of a host reads them before its rank starts and after its end, and every second meanwhile where
the launcher asks for it (`sample`). Nothing here raises or waits: what
cannot be read is named with the system's reason, and after ``READ_SECONDS`` the rest is left out. Bytes of
interfaces come from ``/proc/self/net/dev``, which is always about this process's own network namespace; /sys
may be another's. A virtual function of mlx5 has no port counters of its own in /sys: only its driver's own
statistics, as ``ethtool -S`` prints them, tell what its verbs carried. Any user may ask for all of it.

Readers take ``root``, the directory that stands for ``/``.
"""

from __future__ import annotations

import fcntl
import os
import time
from array import array
from struct import pack, unpack_from

from ringleader.agents import rank_identity, sysfs
from ringleader.agents.light_imports import Any, Callable, socket, suppress

MOST_DEVICES = 256
"""Interfaces, and ports of RDMA devices, of which counters are read."""
READ_SECONDS = 0.05
STANDARD = ("port_xmit_data", "port_rcv_data")
"""Counters of a port of verbs, each of 4 bytes."""
HARDWARE = (
    "tx_bytes",
    "rx_bytes",
    "hw_tx_bytes_cnt",
    "hw_rx_bytes_cnt",
    "rdma_read_bytes",
    "rdma_write_bytes",
    "sent_pkts",
    "rcvd_pkts",
)
"""Counters in ``hw_counters``: of EFA and of eRDMA, of bytes; of Soft-RoCE (rxe), of packets."""
SAMPLED = (
    ("counters", STANDARD, 4),
    ("hw_counters", HARDWARE[0:2], 1),
    ("hw_counters", HARDWARE[2:4], 1),
)
"""Where a port counts bytes: directory, names of what was sent and received, bytes of one count."""
ERRORS = {
    "counters": (
        *("symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors"),
        *(
            "local_link_integrity_errors",
            "port_rcv_remote_physical_errors",
            "excessive_buffer_overrun_errors",
        ),
        *("port_xmit_discards", "VL15_dropped", "port_xmit_constraint_errors", "port_rcv_constraint_errors"),
    ),
    "hw_counters": (
        *("local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "implied_nak_seq_err"),
        *("out_of_buffer", "rnr_nak_retry_err", "rx_icrc_encapsulated"),
    ),
}
"""Errors of a port: those that ``fabric/checks/checks.toml`` judges."""
PACKETS = ("port_xmit_packets", "port_rcv_packets")
"""Of which these errors are a share."""
PLACES = tuple((place, name) for place, names in (*ERRORS.items(), ("counters", PACKETS)) for name in names)
SLOW_SECONDS = 1.0
"""A port whose errors take longer to read is not read again."""
DRIVER = ("tx_vport_rdma_unicast_bytes", "rx_vport_rdma_unicast_bytes")
"""Statistics of mlx5's driver: bytes of verbs of one function of a card."""
SIOCETHTOOL = 0x8946
GET_SET_INFO, GET_STRINGS, GET_STATISTICS = 0x37, 0x1B, 0x1D
"""ETHTOOL_GSSET_INFO, ETHTOOL_GSTRINGS, ETHTOOL_GSTATS (linux/ethtool.h)."""
STATISTICS = 1
"""ETH_SS_STATS."""
NAME_BYTES = 32
MOST = 65536
SPARE = 4096
"""Statistics for which there is room beyond those counted: older kernels write all that there are by then."""


def driver_statistics(interface: str, ask: Callable[[str, array[int]], bool] | None = None) -> dict[str, int]:
    """Return a driver's statistics of an interface by name; none where it has none.

    ``ask`` sends a request for an interface, which is answered in place; False where it is refused.
    """
    ask = ask or _ask
    request = array("B", pack("=IIQII", GET_SET_INFO, 0, 1 << STATISTICS, 0, 0))
    if not ask(interface, request):
        return {}
    existing, count = unpack_from("=QI", request, 8)
    if not existing or not 0 < count <= MOST:
        return {}
    names = array("B", pack("=III", GET_STRINGS, STATISTICS, count) + bytes((count + SPARE) * NAME_BYTES))
    values = array("B", pack("=II", GET_STATISTICS, count) + bytes((count + SPARE) * 8))
    if not (ask(interface, names) and ask(interface, values)):
        return {}
    (told,) = unpack_from("=I", names, 8)
    (known,) = unpack_from("=I", values, 4)
    if told != count or known != count:  # a queue was added or taken away between the answers
        return {}
    text = names[12 : 12 + count * NAME_BYTES].tobytes()
    return {
        name: unpack_from("=Q", values, 8 + 8 * index)[0]
        for index in range(count)
        if (name := _name(text[index * NAME_BYTES : (index + 1) * NAME_BYTES]))
    }


def _name(raw: bytes) -> str:
    return raw.split(b"\0")[0].decode("ascii", "replace").strip()


def _ask(interface: str, request: array[int]) -> bool:
    name = interface.encode()
    if len(name) >= 16:
        return False
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        # struct ifreq is 40 bytes on every 64-bit Linux: the name, and where the request lies.
        fcntl.ioctl(sock, SIOCETHTOOL, pack("16sQ16x", name, request.buffer_info()[0]))
    except OSError:
        return False
    finally:
        sock.close()
    return True


class _Time:
    """What there was no time to read."""

    def __init__(self, patience: float) -> None:
        self._until = time.monotonic() + READ_SECONDS * patience
        self.unread = ""

    def is_over(self, area: str) -> bool:
        """Whether it is over: then ``area`` is not all read."""
        if time.monotonic() > self._until:
            self.unread = self.unread or area
        return bool(self.unread)


def snapshot(root: str = "/", patience: float = 1.0) -> dict[str, Any]:
    """Return all counters now, as ``fabric.transport_proof.evidence.CounterSnapshot`` has them.

    Where there was no time for all, the rest is left out, and ``unread`` says so. ``patience``: see
    ``Job``.
    """
    root, left = root.rstrip("/"), _Time(patience)
    ports, interfaces = _ports(root, left), _interfaces(root, left)
    if not root:
        add_driver_statistics(ports, interfaces, lambda: left.is_over("statistics of drivers"))
    found = {"at": time.time(), "rdma_ports": ports, "net_devices": interfaces}
    return {**found, "unread": left.unread}


def sample(root: str = "/") -> dict[str, dict[str, list[int]]]:
    """Return the bytes that interfaces and RDMA ports have received and sent: name → both.

    What cannot be read this time is left out, and so are ports that count no bytes.
    """
    root, left = root.rstrip("/"), _Time(1.0)
    interfaces = {
        name: [one["rx_bytes"], one["tx_bytes"]]
        for name, one in list(_counted_by_proc(root).items())[:MOST_DEVICES]
    }
    ports: dict[str, list[int]] = {}
    for port in sysfs.rdma_ports(root):
        if left.is_over("RDMA ports") or len(ports) >= MOST_DEVICES:
            break
        for place, names, unit in SAMPLED:
            known: dict[str, Any] = {"values": {}, "unreadable": {}}
            for name in names:
                _counter(f"{port['path']}/{place}", name, known)
            if len(values := known["values"]) == len(names):
                ports[f"{port['device']}/{port['port']}"] = [values[names[1]] * unit, values[names[0]] * unit]
                break
    return {"interfaces": interfaces, "ports": ports}


def errors(root: str = "", slow: set[str] | None = None) -> dict[str, dict[str, int]]:
    """Return what each RDMA port has counted of ``ERRORS`` and ``PACKETS``: ``mlx5_0/1`` → name → number.

    Ports in ``slow`` are left out, and one that takes too long is added to them: its firmware may not answer,
    and whoever reads does nothing else meanwhile.
    """
    found: dict[str, dict[str, int]] = {}
    slow = set() if slow is None else slow
    base = f"{root}/sys/class/infiniband"
    ports = ((device, port) for device in sysfs.names(base) for port in sysfs.names(f"{base}/{device}/ports"))
    for device, port in ports:
        name, until = f"{device}/{port}", time.monotonic() + SLOW_SECONDS
        if name in slow or len(found) >= MOST_DEVICES:
            continue
        known: dict[str, Any] = {"values": {}, "unreadable": {}}
        for place, counter in PLACES:
            _counter(f"{base}/{device}/ports/{port}/{place}", counter, known)
            if time.monotonic() > until:
                slow.add(name)
                break
        else:
            found[name] = known["values"]
    return found


def errors_grown(
    now: dict[str, dict[str, int]], before: dict[str, dict[str, int]]
) -> dict[str, dict[str, int]]:
    """Return by how much counters of ports with new errors grew; one that was cleared counts from 0."""
    found = {}
    for port in now.keys() & before.keys():
        old = before[port]
        grown = {name: value - (old.get(name, 0) if old.get(name, 0) <= value else 0)
                 for name, value in now[port].items()}  # fmt: skip
        if any(value for name, value in grown.items() if name not in PACKETS):
            found[port] = {name: value for name, value in grown.items() if value}
    return found


def add_driver_statistics(
    ports: dict[str, Any],
    interfaces: dict[str, Any],
    is_late: Callable[[], bool],
    read: Callable[[str], dict[str, int]] = driver_statistics,
) -> None:
    """Add what drivers count of verbs to interfaces of which the RDMA device's ports count nothing.

    So it is with virtual functions. The others are spared: some drivers ask their card for every statistic.
    """
    silent = {
        name.partition("/")[0]
        for name, port in ports.items()
        if not any(port["values"].get(one) for one in STANDARD)
    }
    for name, interface in interfaces.items():
        if interface["rdma_device"] in silent and not is_late():
            told = read(name)
            interface["values"].update((one, told[one]) for one in DRIVER if one in told)


def _counter(path: str, name: str, into: dict[str, Any]) -> None:
    """Read one counter into ``values``, or what it says instead into ``unreadable``; none: nothing."""
    try:
        text = sysfs.stripped(sysfs.read(f"{path}/{name}"))
    except FileNotFoundError:
        return
    except OSError as error:
        text = error.strerror or str(error)
    if text.isascii() and text.isdigit():
        into["values"][name] = int(text)
    else:
        into["unreadable"][name] = text[:100]


def _ports(root: str, left: _Time) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for port in sysfs.rdma_ports(root):
        if left.is_over("RDMA ports") or len(found) >= MOST_DEVICES:
            break
        device = f"{root}/sys/class/infiniband/{port['device']}"
        known: dict[str, Any] = {"values": {}, "unreadable": {}}
        known.update((name, port[name]) for name in ("node_type", "driver", "state", "link_layer"))
        parent = filter(None, [sysfs.text(f"{device}/parent")])
        known["netdevs"] = sysfs.names(f"{device}/device/net") or [*parent]
        if known["link_layer"] not in sysfs.LINK_LAYERS:
            known["link_layer"] = ""
        for place, names in (("counters", STANDARD), ("hw_counters", HARDWARE)):
            for name in names:
                _counter(f"{port['path']}/{place}", name, known)
        found[f"{port['device']}/{port['port']}"] = known
    return found


def _interfaces(root: str, left: _Time) -> dict[str, Any]:
    counted, addresses = _counted_by_proc(root), _addresses(root)
    found: dict[str, Any] = {}
    for name in [*counted] or sysfs.names(f"{root}/sys/class/net"):
        if left.is_over("network interfaces") or len(found) >= MOST_DEVICES:
            break
        path = f"{root}/sys/class/net/{name}"
        known: dict[str, Any] = {"values": counted.get(name, {}), "unreadable": {}}
        if not known["values"]:
            for counter in ("rx_bytes", "tx_bytes"):
                _counter(f"{path}/statistics", counter, known)
        kind, speed = sysfs.text(f"{path}/type"), sysfs.text(f"{path}/speed")
        known["kind"] = sysfs.KINDS.get(int(kind), "other") if kind.isdigit() else ""
        if name == "lo":
            known["kind"] = "loopback"
        known["is_virtual"] = not os.path.exists(f"{path}/device")  # noqa: PTH110
        known["speed"] = int(speed) * 1e6 if speed.isdigit() and int(speed) else None
        known["addresses"] = addresses.get(name, [])
        known["lower"] = [entry[6:] for entry in sysfs.names(path) if entry.startswith("lower_")]
        known["rdma_device"] = (sysfs.names(f"{path}/device/infiniband") or [""])[0]
        found[name] = known
    return found


def _addresses(root: str) -> dict[str, list[str]]:
    """Return the addresses of each interface but link-local ones: IPv4 as such, IPv6 in 32 hex digits."""
    found: dict[str, list[str]] = {}
    ipv4: list[tuple[str, str]] = []
    if not root:
        with suppress(OSError):
            ipv4 = rank_identity.ipv4()
    for name, address in ipv4:
        if not address.startswith("169.254."):
            found.setdefault(name, []).append(address)
    for line in sysfs.text(f"{root}/proc/self/net/if_inet6").splitlines():
        fields = line.split()
        if len(fields) == 6 and fields[3] != "20":  # scope: link
            found.setdefault(fields[5], []).append(fields[0])
    return found


def _counted_by_proc(root: str) -> dict[str, dict[str, int]]:
    """Return received and sent bytes by interface of this network namespace, nothing where it is not told."""
    found: dict[str, dict[str, int]] = {}
    for line in sysfs.text(f"{root}/proc/self/net/dev").splitlines()[2:]:
        name, _, numbers = line.partition(":")
        fields = numbers.split()
        if len(fields) >= 16 and fields[0].isdigit() and fields[8].isdigit():
            found[name.strip()] = {"rx_bytes": int(fields[0]), "tx_bytes": int(fields[8])}
    return found

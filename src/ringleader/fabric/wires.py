"""What bytes can travel on between ranks: the names that settings, proofs and ``--require`` share. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.facts import RdmaDevice, RdmaPort


class Wire(StrEnum):
    """One way on which bytes travel between two ranks."""

    SHM = "shm"
    """Shared memory of one host; also one process that copies from another (CMA, XPMEM)."""
    P2P = "p2p"
    """GPU to GPU on one host, over NVLink or PCIe."""
    TCP = "tcp"
    IPOIB = "ipoib"
    """TCP over an InfiniBand interface: not RDMA."""
    INFINIBAND = "infiniband"
    ROCE = "roce"
    IWARP = "iwarp"
    """Also Alibaba's eRDMA, whose driver says that it is one."""
    EFA = "efa"
    UNKNOWN = "unknown"


RDMA = frozenset({Wire.INFINIBAND, Wire.ROCE, Wire.IWARP, Wire.EFA})
"""Wires on which the NIC writes into the memory of the other host."""


def wire_of(*, driver: str, node_type: int | None, link_layer: str) -> Wire:
    """Return the wire behind a port of an RDMA device.

    By the node's type (4: RNIC, so iWARP; 7 or the ``efa`` driver: EFA) and otherwise by the port's link
    layer, as libibverbs tells transports apart.
    """
    if driver == "efa" or node_type == 7:
        return Wire.EFA
    if node_type == 4:
        return Wire.IWARP
    return {"InfiniBand": Wire.INFINIBAND, "Ethernet": Wire.ROCE}.get(link_layer, Wire.UNKNOWN)


def wire_of_port(device: RdmaDevice, port: RdmaPort) -> Wire:
    """Return the wire behind a port of a host's facts."""
    return wire_of(driver=device.driver, node_type=device.node_type, link_layer=port.link_layer)


# --- for people -------------------------------------------------------------------------------------------

WIRE_WORDS = {
    Wire.SHM: "shared memory",
    Wire.P2P: "GPU to GPU (P2P)",
    Wire.TCP: "TCP",
    Wire.IPOIB: "TCP over InfiniBand (IPoIB)",
    Wire.INFINIBAND: "RDMA over InfiniBand",
    Wire.ROCE: "RDMA over Ethernet (RoCE)",
    Wire.IWARP: "RDMA (iWARP)",
    Wire.EFA: "RDMA (EFA)",
    Wire.UNKNOWN: "unknown wire",
}
MOST_NAMES = 3


def part_words(part: float) -> str:
    """Return ``100%``, ``87.4%``: never 100 for less than all, never 0 for more than nothing."""
    if part >= 0.9995:
        return "100%" if part >= 0.99995 else "99.9%"
    if part <= 0.0005:
        return "0%" if part <= 0 else "<0.1%"
    text = f"{100 * part:.1f}".removesuffix(".0")
    return f"{text}%"


def too_little(nbytes: int, whom: str) -> str:
    """Return why so few bytes are not judged; ``whom``: ``with other hosts``."""
    if nbytes == 0:
        return f"it exchanged nothing {whom}"
    return f"it exchanged {byte_size(nbytes)} {whom}, which is too little to judge"


def names_words(names: Sequence[str]) -> str:
    """Return ``eth0``, ``eth0 and eth1``, ``mlx5_0 port 1, mlx5_1 port 1 and 6 more``."""
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))

"""What bytes can travel on between ranks: the names that settings, proofs and ``--require`` share. Pure."""

from __future__ import annotations

from enum import StrEnum

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

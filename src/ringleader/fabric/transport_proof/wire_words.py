"""Wires and parts in words for people."""

from __future__ import annotations

from collections.abc import Sequence

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.wires import Wire

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
    return f"it exchanged {byte_size(nbytes)} {whom}, which is too little to be judged"


def names_words(names: Sequence[str]) -> str:
    """Return ``eth0``, ``eth0 and eth1``, ``mlx5_0 port 1, mlx5_1 port 1 and 6 more``."""
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))

"""Which GPU is how far from which GPU and NIC: as ``nvidia-smi topo -m`` prints it, and as values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.fabric.facts import HostFacts
from ringleader.fabric.topology.pci_distance import distance_between

SELF = "X"
UNKNOWN = "?"
LEGEND = """\
Legend:

  X    = Self
  SYS  = Across NUMA nodes, over the interconnect between them (QPI, UPI, Infinity Fabric)
  NODE = Across host bridges of one NUMA node
  PHB  = Across one PCIe host bridge (the CPU)
  PXB  = Across several PCIe switches, not the host bridge
  PIX  = Across one PCIe switch at most
  NV#  = Across # NVLinks
  ?    = Not known
"""


@dataclass(frozen=True, kw_only=True)
class MatrixDevice:
    """A row and a column."""

    label: str
    """``GPU0``, ``NIC0``."""
    name: str
    """The GPU's product, or the RDMA device: ``mlx5_0``."""
    pci_address: str
    numa_node: int | None
    cpus: str
    """CPUs of its NUMA node, as the kernel lists them; empty: not known."""


@dataclass(frozen=True, kw_only=True)
class TopologyMatrix:
    """Distances of the GPUs and NICs of a host."""

    devices: tuple[MatrixDevice, ...]
    distances: Mapping[tuple[str, str], str]
    """(label, label) → ``PIX`` …, both ways; ``NV12`` where nvidia-smi said it; ``?``: not known."""


def topology_matrix(facts: HostFacts) -> TopologyMatrix:
    """Return the matrix: GPUs by index, then RDMA devices by the kernel's order."""
    cpus = {node.number: node.cpus for node in facts.numa_nodes}
    found = [(f"GPU{one.index}", one.name, one.pci_address) for one in facts.gpus]
    found += [(f"NIC{at}", one.name, one.pci_address) for at, one in enumerate(facts.rdma_devices)]
    devices = []
    for label, name, address in found:
        device = facts.pci_device(address) if address else None
        node = device.numa_node if device else None
        if node is None and len(facts.numa_nodes) == 1 and device:
            node = facts.numa_nodes[0].number
        devices.append(
            MatrixDevice(
                label=label,
                name=name,
                pci_address=address,
                numa_node=node,
                cpus=cpus.get(node, "") if node is not None else "",
            )
        )
    distances = {
        (one.label, other.label): _distance(facts, one, other)
        for one in devices
        for other in devices
        if one.label != other.label
    }
    return TopologyMatrix(devices=tuple(devices), distances=distances)


def matrix_text(matrix: TopologyMatrix) -> str:
    """Return the table, the NICs' names and the legend, in the form of ``nvidia-smi topo -m``."""
    labels = [one.label for one in matrix.devices]
    rows = [["", *labels, "CPU Affinity", "NUMA Affinity"]]
    for one in matrix.devices:
        cells = [
            SELF if other == one.label else matrix.distances.get((one.label, other), UNKNOWN)
            for other in labels
        ]
        rows.append([one.label, *cells, one.cpus, "" if one.numa_node is None else str(one.numa_node)])
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    names = [f"  {one.label}: {one.name}" for one in matrix.devices if one.label.startswith("NIC")]
    legend = ["NIC Legend:", "", *names, ""] if names else []
    return "\n".join([*lines, "", LEGEND, *legend])


def matrix_values(matrix: TopologyMatrix) -> dict[str, Any]:
    """Return the matrix as plain values for JSON."""
    return {
        "devices": [vars(one) for one in matrix.devices],
        "distances": {
            one.label: {
                other.label: matrix.distances.get((one.label, other.label), UNKNOWN)
                for other in matrix.devices
                if other.label != one.label
            }
            for one in matrix.devices
        },
    }


def _distance(facts: HostFacts, one: MatrixDevice, other: MatrixDevice) -> str:
    if not one.pci_address or not other.pci_address:
        return UNKNOWN
    distance = distance_between(facts, one.pci_address, other.pci_address)
    return UNKNOWN if distance is None else distance.name

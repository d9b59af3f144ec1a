"""Which GPU is how far from which GPU and NIC, by sysfs and by what ``nvidia-smi topo -m`` prints. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
LINKS = ("NV", "C2C")
"""How cells begin that name a link beside PCI."""
_CELL = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d+|C2C")


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


# --- nvidia-smi ------------------------------------------------------------------------------------------


def parse_nvidia_smi(text: str) -> TopologyMatrix:
    """Return the matrix in the output of ``nvidia-smi topo -m``.

    NICs keep their labels; the legend below the table gives their names (drivers before 515 put the name
    itself in the table, ``mlx5_0``, and it becomes the label). Raises ValueError where there is no table.
    """
    lines = _ESCAPES.sub("", text).splitlines()
    header = next((at for at, line in enumerate(lines) if re.match(r"\s+GPU\d+\b", line)), None)
    if header is None:
        raise ValueError("no table: its first line begins with GPU0")
    columns = re.split(r"\s*CPU Affinity", lines[header])[0].split()
    names = dict(re.findall(r"^\s*(NIC\d+)\s*:\s*(\S+)", "\n".join(lines), re.MULTILINE))
    devices: list[MatrixDevice] = []
    distances: dict[tuple[str, str], str] = {}
    for line in lines[header + 1 :]:
        label, _, rest = line.strip().partition("\t" if "\t" in line else " ")
        cells = rest.split()
        if label.strip() not in columns:
            break
        label = label.strip()
        row = cells[: len(columns)]
        if len(row) < len(columns) or not all(_CELL.fullmatch(cell) for cell in row):
            raise ValueError(f"the row of {label} has other cells than distances: {' '.join(cells)}")
        distances |= {
            (label, column): cell for column, cell in zip(columns, row, strict=True) if cell != SELF
        }
        devices.append(_said_device(label, names, cells[len(columns) :]))
    return TopologyMatrix(devices=tuple(devices), distances=distances)


def differences(ours: TopologyMatrix, theirs: TopologyMatrix) -> tuple[str, ...]:
    """Return where two matrices say something else of one pair: ``GPU0–mlx5_0: PIX here, PXB there``.

    Devices are matched by name where they are NICs and by label where they are GPUs. NVLink is not a
    distance on PCI, so it is not a difference.
    """
    known = {_key(one): one.label for one in ours.devices}
    found = []
    for first in theirs.devices:
        for second in theirs.devices:
            pair = (known.get(_key(first)), known.get(_key(second)))
            said = theirs.distances.get((first.label, second.label), UNKNOWN)
            if None in pair or first.label >= second.label or said.startswith((*LINKS, UNKNOWN)):
                continue
            computed = ours.distances.get((str(pair[0]), str(pair[1])), UNKNOWN)
            if computed not in (said, UNKNOWN) and not computed.startswith("NV"):
                found.append(f"{_key(first)}–{_key(second)}: {computed} here, {said} there")
    return tuple(found)


def with_nvlinks(ours: TopologyMatrix, theirs: TopologyMatrix) -> TopologyMatrix:
    """Return our matrix with the NVLinks between GPUs that nvidia-smi names; PCI tells nothing of them."""
    linked = {
        pair: said
        for pair, said in theirs.distances.items()
        if pair in ours.distances and said.startswith(LINKS) and not any(map(_is_nic, pair))
    }
    return replace(ours, distances={**ours.distances, **linked})


def _is_nic(label: str) -> bool:
    return not label.startswith("GPU")


def _key(device: MatrixDevice) -> str:
    return device.label if device.label.startswith("GPU") else device.name


def _said_device(label: str, names: Mapping[str, str], rest: Sequence[str]) -> MatrixDevice:
    """Read what stands right of the distances: CPU affinity, NUMA affinity and, in new drivers, the GPU's."""
    cpus = rest[0] if rest and re.fullmatch(r"[\d,-]*\d", rest[0]) and not label.startswith("NIC") else ""
    node = rest[1] if cpus and len(rest) > 1 and rest[1].isdigit() else ""
    name = "" if label.startswith("GPU") else names.get(label, label)
    return MatrixDevice(
        label=label, name=name, pci_address="", numa_node=int(node) if node else None, cpus=cpus
    )

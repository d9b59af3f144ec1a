"""What ``nvidia-smi topo -m`` prints, read and held against the matrix from sysfs. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ringleader.fabric.topology.matrix import SELF, UNKNOWN, MatrixDevice, TopologyMatrix

_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
LINKS = ("NV", "C2C")
"""How cells begin that name a link beside PCI."""
_CELL = re.compile(r"X|SYS|NODE|PHB|PXB|PIX|NV\d+|C2C")


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
    distance on PCI, so it is no difference.
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

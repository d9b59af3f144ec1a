"""NUMA nodes of this host."""

from __future__ import annotations

import re

from ringleader.fabric.facts import NumaNode
from ringleader.fabric.readers.sysfs_files import Files, number

NODES = "sys/devices/system/node"


def read(files: Files) -> tuple[NumaNode, ...]:
    """Return the nodes by number; none on a kernel without NUMA."""
    numbers = (re.fullmatch(r"node(\d{1,5})", name) for name in files.names(NODES))
    return tuple(_node(files, int(one[1])) for one in numbers if one)


def _node(files: Files, node: int) -> NumaNode:
    place = f"{NODES}/node{node}"
    memory = re.search(r"MemTotal:\s+(\d{1,15}) kB", files.text(f"{place}/meminfo"))
    distances = [number(word) for word in files.text(f"{place}/distance").split()]
    return NumaNode(
        number=node,
        cpus=files.text(f"{place}/cpulist"),
        memory=int(memory[1]) * 1024 if memory else None,
        distances=tuple(one for one in distances if one is not None),
    )

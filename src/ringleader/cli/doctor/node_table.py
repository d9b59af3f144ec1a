"""Nodes of a cluster as a table: what they advertise, side by side."""

from __future__ import annotations

from ringleader.fabric.cluster_facts import ClusterFacts, NicNeeds


def node_table(facts: ClusterFacts, needs: NicNeeds) -> str:
    """Return a row for each node: whether it is ready, its NICs, GPUs and taints."""
    header = ("node", "ready", needs.resource or "NICs", "GPUs", "taints")
    rows = [
        (
            node.name,
            ("yes" if node.schedulable else "cordoned") if node.ready else "no",
            f"{node.allocatable.get(needs.resource, 0):.0f}" if needs.resource else "-",
            f"{node.allocatable.get('nvidia.com/gpu', 0):.0f}",
            ", ".join(map(str, node.taints)) or "-",
        )
        for node in facts.nodes
    ]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = (
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        for row in (header, *rows)
    )
    return "".join(f"{line.rstrip()}\n" for line in lines)

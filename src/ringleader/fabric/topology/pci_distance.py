"""How far two PCI devices are apart, in the words of ``nvidia-smi topo -m`` and NCCL. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from ringleader.fabric.facts import HostFacts, PciDevice


class PciDistance(IntEnum):
    """What lies between two devices; nearer is smaller. NCCL's own numbers differ by version: use names."""

    PIX = 1
    """At most one PCIe switch."""
    PXB = 2
    """Several PCIe switches, and no host bridge."""
    PHB = 3
    """The host bridge (root complex) of both."""
    NODE = 4
    """Host bridges of one NUMA node."""
    SYS = 5
    """The interconnect between NUMA nodes."""

    def __str__(self) -> str:
        """Return the name."""
        return self.name


def pci_distance(one: PciDevice, other: PciDevice, *, single_node: bool = False) -> PciDistance:
    """Return the distance of two devices, as paths in sysfs and NUMA nodes tell it.

    ``single_node``: the machine has one NUMA node, so devices that do not say theirs are on it. Where two
    devices share no host bridge and one does not say its node, the distance is SYS, the safe guess.
    Formula: NCCL 2.4, ``pciDistance`` in ``src/misc/topo.cc``; two functions of one card are PIX.
    """
    shared = _common_length(one.ancestors, other.ancestors)
    if shared == 0:
        same_node = one.numa_node is not None and one.numa_node == other.numa_node
        return PciDistance.NODE if same_node or single_node else PciDistance.SYS
    if shared == 1 and one.address != other.address:  # the root complex alone
        return PciDistance.PHB
    # Below the last bridge that both share each has at most one more: the ports of one switch.
    apart = max(len(one.ancestors), len(other.ancestors)) - shared
    return PciDistance.PIX if apart <= 1 else PciDistance.PXB


def distance_between(facts: HostFacts, one: str, other: str) -> PciDistance | None:
    """Return the distance of two PCI addresses of a host; ``None`` where either is not known there."""
    first, second = facts.pci_device(one), facts.pci_device(other)
    if first is None or second is None:
        return None
    return pci_distance(first, second, single_node=len(facts.numa_nodes) == 1)


def _common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return how many leading elements are the same."""
    differing = (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right)
    return next(differing, min(len(one), len(other)))

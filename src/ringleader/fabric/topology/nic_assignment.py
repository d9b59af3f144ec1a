"""Which NIC each local rank should use: the nearest to its GPU, each once while there are some. Pure.

The way of NVIDIA's resiliency extension: greedy by distance, then a second pass that reuses NICs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringleader.fabric.facts import Gpu, HostFacts, PciDevice
from ringleader.fabric.port_selection import PortSelection, UsablePort, select_ports
from ringleader.fabric.topology.pci_distance import PciDistance, pci_distance


@dataclass(frozen=True, kw_only=True)
class NicAssignment:
    """The NIC of one local rank."""

    local_rank: int
    gpu: Gpu | None
    """``None``: the host has no GPU, and ranks take NICs in turn."""
    nic: UsablePort
    distance: PciDistance | None
    """``None``: no GPU, or one of the two is not known by PCI."""
    shared: bool
    """A rank before it has the same NIC."""


def assign_nics(facts: HostFacts, ports: PortSelection | None = None) -> tuple[NicAssignment, ...]:
    """Return one assignment for each GPU, by local rank; without GPUs one for each NIC.

    Empty where no NIC can be used. ``ports``: ``select_ports(facts)`` where the caller has it.
    """
    chosen = (ports or select_ports(facts)).ports
    nics = list({one.device.name: one for one in reversed(chosen)}.values())[::-1]  # first port of each
    if not nics:
        return ()
    if not facts.gpus:
        return tuple(
            NicAssignment(local_rank=rank, gpu=None, nic=nic, distance=None, shared=False)
            for rank, nic in enumerate(nics)
        )
    costs = {
        (gpu.index, nic.device.name): _cost(facts, gpu, nic, position)
        for gpu in facts.gpus
        for position, nic in enumerate(nics)
    }
    taken = _matched(facts.gpus, nics, costs)
    users: set[str] = set()
    assignments = []
    for rank, gpu in enumerate(facts.gpus):
        nic = taken[gpu.index]
        assignments.append(
            NicAssignment(
                local_rank=rank,
                gpu=gpu,
                nic=nic,
                distance=gpu_distance(facts, gpu, nic),
                shared=nic.device.name in users,
            )
        )
        users.add(nic.device.name)
    return tuple(assignments)


def gpu_distance(facts: HostFacts, gpu: Gpu, nic: UsablePort) -> PciDistance | None:
    """Return the distance of a GPU and a NIC; ``None`` where one is not known by PCI."""
    pair = _devices(facts, gpu, nic)
    return None if pair is None else pci_distance(*pair, single_node=len(facts.numa_nodes) == 1)


def nearest_gpu(facts: HostFacts, nic: UsablePort) -> Gpu | None:
    """Return the GPU next to a NIC, of equally near ones the first; ``None``: there is no GPU."""
    return min(
        facts.gpus, key=lambda gpu: gpu_distance(facts, gpu, nic) or max(PciDistance) + 1, default=None
    )


Cost = tuple[int, int, float, int]
"""Distance, bridges between the two, minus the rate, position: the smaller the better."""


def _cost(facts: HostFacts, gpu: Gpu, nic: UsablePort, position: int) -> Cost:
    pair = _devices(facts, gpu, nic)
    distance = gpu_distance(facts, gpu, nic)
    if pair is None or distance is None:
        return (max(PciDistance) + 1, 0, -nic.rate, position)
    shared = sum(left == right for left, right in zip(pair[0].ancestors, pair[1].ancestors, strict=False))
    hops = len(pair[0].ancestors) + len(pair[1].ancestors) - 2 * shared
    # Without a common root (GB200) the bridges of each say nothing about the other.
    return (distance, hops if shared else 0, -nic.rate, position)


def _matched(
    gpus: Sequence[Gpu], nics: Sequence[UsablePort], costs: Mapping[tuple[int, str], Cost]
) -> dict[int, UsablePort]:
    """Return GPU index → NIC: the cheapest pairs first, each NIC once; then the rest, spread evenly."""
    pairs = sorted(
        ((costs[gpu.index, nic.device.name], gpu.index, nic) for gpu in gpus for nic in nics),
        key=lambda pair: pair[:2],
    )
    taken: dict[int, UsablePort] = {}
    uses = dict.fromkeys((nic.device.name for nic in nics), 0)
    for _, index, nic in pairs:
        if index not in taken and not uses[nic.device.name]:
            taken[index] = nic
            uses[nic.device.name] = 1
    for gpu in gpus:
        if gpu.index not in taken:
            best = min(nics, key=lambda nic: _reuse_cost(costs[gpu.index, nic.device.name], uses, nic))
            taken[gpu.index] = best
            uses[best.device.name] += 1
    return taken


def _reuse_cost(cost: Cost, uses: Mapping[str, int], nic: UsablePort) -> tuple[int, int, Cost]:
    """Nearest first; among equally near ones the one that fewest use."""
    return (cost[0], uses[nic.device.name], cost)


def _devices(facts: HostFacts, gpu: Gpu, nic: UsablePort) -> tuple[PciDevice, PciDevice] | None:
    one, other = facts.pci_device(gpu.pci_address), facts.pci_device(nic.device.pci_address)
    return None if one is None or other is None else (one, other)

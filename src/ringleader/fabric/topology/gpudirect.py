"""Whether GPUs and NICs of a host can reach each other's memory directly, and why not. Pure.

GPUDirect RDMA: the NIC reads and writes GPU memory. GPUDirect P2P: one GPU another's. What only the driver
knows and did not tell is said as such, never guessed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from ringleader.fabric.facts import Gpu, HostFacts, PciDevice
from ringleader.fabric.port_selection import UsablePort, locked_memory_obstacle, select_ports
from ringleader.fabric.topology.nic_assignment import gpu_distance
from ringleader.fabric.topology.pci_distance import PciDistance, distance_between

DMA_BUF_KERNEL = (5, 12)
"""The first kernel whose RDMA subsystem imports DMA-BUF memory."""
SMALL_BAR = 1 << 30
"""Bytes: GPUs whose whole memory is not mapped (BAR1 of 256 MiB) cannot register large buffers."""
NVIDIA = 0x10DE


class Direct(StrEnum):
    """A verdict."""

    YES = "yes"
    SLOW = "slow"
    """It works, by a way on which libraries do not use it unless told to."""
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, kw_only=True)
class DirectAccess:
    """The verdict on one pair."""

    one: str
    """``GPU0``."""
    other: str
    """``mlx5_0``, ``GPU1``."""
    verdict: Direct
    reason: str
    distance: PciDistance | None


def rdma_verdicts(facts: HostFacts) -> tuple[DirectAccess, ...]:
    """Return the verdict on GPUDirect RDMA for each GPU and each RDMA device that can be used."""
    nics = {one.device.name: one for one in select_ports(facts).ports}
    return tuple(_rdma(facts, gpu, nic) for gpu in facts.gpus for nic in nics.values())


def p2p_verdicts(facts: HostFacts) -> tuple[DirectAccess, ...]:
    """Return the verdict on GPUDirect P2P for each pair of GPUs."""
    pairs = [(one, other) for one in facts.gpus for other in facts.gpus if one.index < other.index]
    return tuple(_p2p(facts, one, other) for one, other in pairs)


def memory_registration(facts: HostFacts) -> tuple[Direct, str]:
    """Tell by which way NICs can register GPU memory here, and why not where there is none."""
    modules = {name.replace("-", "_") for name in facts.modules}
    found = modules & {"nvidia_peermem", "nv_peer_mem"}
    if found:
        return Direct.YES, f"the kernel module {min(found)} is loaded"
    old = kernel_version(facts.kernel)
    if facts.nvidia.open_modules and old >= DMA_BUF_KERNEL:
        return Direct.YES, f"DMA-BUF: open kernel modules on Linux {old[0]}.{old[1]}"
    if facts.nvidia.open_modules is None and old >= DMA_BUF_KERNEL:
        return Direct.UNKNOWN, "no nvidia_peermem; whether the driver's modules are open is unknown"
    if facts.nvidia.open_modules:
        return Direct.NO, f"DMA-BUF needs Linux 5.12 (here {facts.kernel}), and nvidia_peermem is not loaded"
    return Direct.NO, "nvidia_peermem is not loaded, and DMA-BUF needs the open kernel modules"


def kernel_version(release: str) -> tuple[int, int]:
    """Return major and minor of a kernel's release; (0, 0): not readable."""
    found = re.match(r"(\d+)\.(\d+)", release)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def iommu_translates(facts: HostFacts) -> bool:
    """Tell whether an IOMMU translates what GPUs and NICs send to each other: on, and not in pass-through.

    By the types of their groups (``identity`` is pass-through); where no kernel tells them, by its options.
    """
    devices = {one.pci_address for one in facts.gpus} | {one.pci_address for one in facts.rdma_devices}
    types = {one.iommu_type for one in facts.pci_devices if one.address in devices and one.iommu_type}
    if types:
        return types != {"identity"}
    passing = {"iommu=pt", "iommu.passthrough=1"} & set(facts.kernel_command_line.split())
    return bool(facts.iommus) and not passing


def _rdma(facts: HostFacts, gpu: Gpu, nic: UsablePort) -> DirectAccess:
    distance = gpu_distance(facts, gpu, nic)
    verdict, reason = _rdma_verdict(facts, gpu, nic, distance)
    return DirectAccess(
        one=f"GPU{gpu.index}",
        other=nic.device.name,
        verdict=verdict,
        reason=reason,
        distance=distance,
    )


def _rdma_verdict(
    facts: HostFacts, gpu: Gpu, nic: UsablePort, distance: PciDistance | None
) -> tuple[Direct, str]:
    if gpu.vendor not in (NVIDIA, None):
        return Direct.UNKNOWN, "only NVIDIA GPUs are judged here"
    if not nic.device.pci_address:
        return Direct.NO, f"{nic.device.name} is a soft device: the CPU copies"
    if gpu.driver in ("", "vfio-pci"):
        return Direct.NO, f"the GPU has no NVIDIA driver here ({gpu.driver or 'none'})"
    if obstacle := locked_memory_obstacle(facts):
        return Direct.NO, obstacle
    verdict, reason = memory_registration(facts)
    if verdict is not Direct.YES:
        return verdict, reason
    if gpu.bar1_memory is not None and gpu.bar1_memory < min(SMALL_BAR, gpu.memory or SMALL_BAR):
        return Direct.NO, f"the GPU maps only {gpu.bar1_memory >> 20} MiB of its memory (BAR1)"
    if distance is None:
        return Direct.UNKNOWN, f"{reason}; the distance is not known"
    if distance > PciDistance.PXB:
        return Direct.SLOW, f"{reason}, but they are {distance} apart: NCCL uses it up to PXB"
    if obstacle := next(_pci_obstacles(facts, gpu.pci_address, nic.device.pci_address), ""):
        return Direct.SLOW, obstacle
    return Direct.YES, reason


def _p2p(facts: HostFacts, one: Gpu, other: Gpu) -> DirectAccess:
    distance = distance_between(facts, one.pci_address, other.pci_address)
    verdict, reason = _p2p_verdict(facts, one, other, distance)
    return DirectAccess(
        one=f"GPU{one.index}", other=f"GPU{other.index}", verdict=verdict, reason=reason, distance=distance
    )


def _p2p_verdict(facts: HostFacts, one: Gpu, other: Gpu, distance: PciDistance | None) -> tuple[Direct, str]:
    status = one.p2p.get(other.index)
    if status is not None and status != "ok":
        return Direct.NO, f"the driver says {status}"
    if status == "ok" and one.nvlinks_active and other.nvlinks_active:
        return Direct.YES, "NVLink"
    if obstacle := next(_pci_obstacles(facts, one.pci_address, other.pci_address), ""):
        return Direct.SLOW, obstacle
    if status == "ok":
        return Direct.YES, "the driver says ok"
    if distance is None:
        return Direct.UNKNOWN, "the driver says nothing, and the distance is not known"
    if distance > PciDistance.PHB:
        return Direct.UNKNOWN, f"the driver says nothing, and they are {distance} apart"
    return Direct.UNKNOWN, f"the driver says nothing; at {distance} it usually works"


def _pci_obstacles(facts: HostFacts, one: str, other: str) -> Iterator[str]:
    """Yield what sends the traffic of two PCI devices up to the CPU instead of across a switch."""
    if facts.hypervisor:
        return  # there access control stays on, and what the guest sees is not the machine's
    for bridge in _bridges(facts, one, other):
        if bridge.acs_redirects:
            yield f"access control (ACS) of bridge {bridge.address} sends peer traffic through the CPU"
    if iommu_translates(facts):
        yield "the IOMMU translates peer traffic: start the kernel with iommu=pt, or switch it off"


def _bridges(facts: HostFacts, one: str, other: str) -> tuple[PciDevice, ...]:
    """Return the bridges above either of two devices, but not the root complex itself."""
    found = (facts.pci_device(address) for address in (one, other))
    names = dict.fromkeys(name for device in found if device for name in device.ancestors)
    return tuple(bridge for name in names if (bridge := facts.pci_device(name)))

"""Checks of PCI Express: distance of GPUs and NICs, links, access control, IOMMU, memory regions. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult, listed
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import (
    GPU_AND_RDMA,
    NVIDIA,
    PCI_DEVICE,
    RDMA_DEVICE,
    active_ports,
    nvidia_gpus,
)
from ringleader.fabric.facts import HostFacts, PciDevice
from ringleader.fabric.topology.pci_distance import PciDistance, distance_between

_check = partial(check, group="PCI Express")


def _gpus(facts: HostFacts) -> list[PciDevice]:
    found = (facts.pci_device(one.pci_address) for one in facts.gpus)
    return [one for one in found if one is not None]


def _nics(facts: HostFacts) -> list[PciDevice]:
    found = (facts.pci_device(one.pci_address) for one in facts.rdma_devices if one.pci_address)
    return [one for one in found if one is not None]


def _bridges(facts: HostFacts) -> list[PciDevice]:
    """Return the bridges above GPUs and RDMA NICs."""
    above = {name for one in (*_gpus(facts), *_nics(facts)) for name in one.ancestors}
    return [one for one in facts.pci_devices if one.address in above]


@_check(
    "gpu.topo",
    "Each GPU has a NIC near it",
    reads="/sys/bus/pci/devices: paths, numa_node",
    why="GPUDirect RDMA goes up to the nearest common bridge; over the CPU it is slow, and NCCL does not"
    " use it",
    remedy="give the job NICs below the GPUs' switches; Kubernetes: DRA with matchAttribute pcieRoot",
    passes="the nearest active NIC is PIX or PXB",
    warns="it is PHB or NODE",
    fails="it is SYS",
    skips="an address is not known",
    source="NCCL_NET_GDR_LEVEL, default PXB; a virtual machine may hide the real paths",
    needs=GPU_AND_RDMA,
)
def distance(facts: HostFacts) -> Iterator[CheckResult]:
    nics = {device.name: device.pci_address for device, _ in active_ports(facts) if device.pci_address}
    near = 0
    for gpu in nvidia_gpus(facts):
        known = {name: distance_between(facts, gpu.pci_address, address) for name, address in nics.items()}
        best = min(((far, name) for name, far in known.items() if far is not None), default=None)
        if best is None:
            continue
        far, name = best
        if far <= PciDistance.PXB:
            near += 1
        else:
            told = failed if far is PciDistance.SYS and not facts.hypervisor else warned
            yield told(f"nearest NIC {name}: {far}", expected="PIX or PXB", subject=f"GPU {gpu.index}")
    if near and near == len(nvidia_gpus(facts)):
        yield passed(f"{near} GPUs have one at PIX or PXB")


@_check(
    "pci.width",
    "PCI links have all their lanes",
    reads="/sys/bus/pci/devices/*/{current_link_width,max_link_width}",
    why="a card that sits badly trains with fewer lanes: half the lanes, half the bandwidth",
    remedy="reseat the card or riser; look into the BIOS for bifurcation of the slot",
    passes="each GPU and RDMA NIC has as many lanes as it can",
    warns="one has fewer",
    skips="no link is readable, as in many virtual machines",
    needs=PCI_DEVICE,
)
def width(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in (*_gpus(facts), *_nics(facts)) if one.link_width and one.link_width_max]
    narrow = [one for one in known if (one.link_width or 0) < (one.link_width_max or 0)]
    for one in narrow:
        yield warned(f"{one.link_width} lanes", expected=f"{one.link_width_max}", subject=one.address)
    if not known:
        yield skipped("no link of a GPU or an RDMA NIC is readable")
    elif not narrow:
        yield passed(f"{len(known)} links")


@_check(
    "pci.speed",
    "NICs' PCI links run at their speed",
    reads="/sys/bus/pci/devices/*/{current_link_speed,max_link_speed}",
    why="a NIC of PCIe 5 in a slot of PCIe 4 cannot carry 400 Gbit/s",
    remedy="use a slot of the NIC's generation; look into the BIOS for the slot's speed",
    passes="each RDMA NIC runs at its highest speed",
    warns="one is slower",
    skips="no link is readable; GPUs are not judged, since they lower their links while idle",
    needs=RDMA_DEVICE,
)
def speed(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in _nics(facts) if one.link_speed and one.link_speed_max]
    slow = [one for one in known if (one.link_speed or 0) < (one.link_speed_max or 0)]
    for one in slow:
        yield warned(f"{one.link_speed:g} GT/s", expected=f"{one.link_speed_max:g} GT/s", subject=one.address)
    if not known:
        yield skipped("no link of an RDMA NIC is readable")
    elif not slow:
        yield passed(f"{len(known)} links at {max(one.link_speed or 0 for one in known):g} GT/s")


@_check(
    "pci.bandwidth",
    "PCI links carry the ports' rate",
    reads="/sys/bus/pci/devices/*/{current_link_speed,current_link_width},"
    " /sys/class/infiniband/*/ports/*/rate",
    why="a port of 400 Gbit/s behind 256 Gbit/s of PCIe reaches 256",
    remedy="use a slot with more lanes or of a newer generation",
    passes="lanes × speed is at least the ports' rate",
    warns="it is less",
    source="PCI Express: 128b/130b from 8 GT/s on, 8b/10b below",
    needs=RDMA_DEVICE,
)
def bandwidth(facts: HostFacts) -> Iterator[CheckResult]:
    known, bad = 0, 0
    for device in facts.rdma_devices:
        pci = facts.pci_device(device.pci_address)
        rates = [port.rate for port in device.ports if port.state == "ACTIVE" and port.rate]
        if pci is None or not pci.link_speed or not pci.link_width or not rates:
            continue
        known += 1
        carried = pci.link_speed * pci.link_width * (128 / 130 if pci.link_speed >= 8 else 0.8)
        if carried < 0.95 * sum(rates) / 1e9:
            bad += 1
            seen = f"PCI {carried:.0f} Gbit/s, ports {sum(rates) / 1e9:g} Gbit/s"
            yield warned(seen, expected="as much as the ports", subject=device.name)
    if not known:
        yield skipped("no link of an RDMA NIC is readable")
    elif not bad:
        yield passed(f"{known} NICs")


@_check(
    "pci.acs",
    "Access control lets devices talk to each other",
    reads="PCI configuration of the bridges above GPUs and NICs: ACS control",
    why="ACS sends each packet between two devices up to the CPU: GPUDirect and P2P are slow, or hang",
    remedy="switch ACS off in the BIOS, or setpci -s BRIDGE ECAP_ACS+0x6.w=0000 after each start",
    passes="no bridge redirects",
    fails="one does",
    skips="in a virtual machine, where it must stay on; or not readable, since only root may",
    source="NCCL's documentation, GPU troubleshooting: PCI Access Control Services",
    needs=NVIDIA,
)
def access_control(facts: HostFacts) -> Iterator[CheckResult]:
    known = [one for one in _bridges(facts) if one.acs_redirects is not None]
    redirecting = [one for one in known if one.acs_redirects]
    if facts.hypervisor:
        yield skipped(f"a virtual machine ({facts.hypervisor}): ACS belongs to the host")
    elif redirecting:
        yield failed(f"on {listed(one.address for one in redirecting)}", expected="off")
    elif not known:
        yield skipped("not readable: only root may read PCI configuration")
    else:
        yield passed(f"off on {len(known)} bridges")


@_check(
    "pci.iommu",
    "The IOMMU does not translate",
    reads="/sys/class/iommu, /proc/cmdline",
    why="translation costs each transfer time, and sends P2P over the CPU",
    remedy="start Linux with iommu=pt (and intel_iommu=on or amd_iommu=on), or switch it off in the BIOS",
    passes="there is none, or iommu=pt",
    warns="it is on without iommu=pt",
    skips="in a virtual machine",
    source="NCCL's documentation, GPU troubleshooting",
    needs=NVIDIA,
)
def iommu(facts: HostFacts) -> Iterator[CheckResult]:
    words = facts.kernel_command_line.split()
    through = "iommu=pt" in words or "iommu.passthrough=1" in words
    if facts.hypervisor:
        yield skipped(f"a virtual machine ({facts.hypervisor})")
    elif not facts.iommus:
        yield passed("no IOMMU is on")
    elif through:
        yield passed("on, passing through (iommu=pt)")
    else:
        yield warned(f"{', '.join(facts.iommus[:4])} on, without iommu=pt")


@_check(
    "pci.bar1",
    "GPU memory is open to NICs as a whole",
    reads="NVML: BAR1 memory; /sys/bus/pci/devices/*/resource",
    why="NICs reach GPU memory through BAR1; a small one (256 MiB) limits how much can be registered",
    remedy="switch on 'Above 4G decoding' and 'Resizable BAR' in the BIOS; some GPUs have small ones alone",
    passes="at least as large as the GPU's memory",
    warns="smaller",
    skips="it is not known",
    source="NVIDIA, GPUDirect RDMA: BAR sizes",
    needs=GPU_AND_RDMA,
)
def bar1(facts: HostFacts) -> Iterator[CheckResult]:
    known, small = 0, 0
    for one in nvidia_gpus(facts):
        pci = facts.pci_device(one.pci_address)
        largest = one.bar1_memory or max(pci.bar_sizes if pci else (), default=0)
        if not largest or not one.memory:
            continue
        known += 1
        if largest < one.memory:
            small += 1
            yield warned(
                byte_size(largest), expected=f"{byte_size(one.memory)} or more", subject=f"GPU {one.index}"
            )
    if not known:
        yield skipped("not known")
    elif not small:
        yield passed(f"{known} GPUs")


@_check(
    "pci.numa",
    "Devices tell their NUMA node",
    reads="/sys/bus/pci/devices/*/numa_node",
    why="ranks are bound to the processors near their GPU and NIC; without a node any processor seems as"
    " near",
    remedy="look into the BIOS (ACPI SRAT, NUMA nodes per socket); virtual machines: ask for a virtual"
    " topology",
    passes="each GPU and RDMA NIC tells one",
    warns="one does not, on a host with several nodes",
    skips="the host has one node, or no device has a known address",
    needs=PCI_DEVICE,
)
def numa(facts: HostFacts) -> Iterator[CheckResult]:
    devices = [*_gpus(facts), *_nics(facts)]
    without = [one.address for one in devices if one.numa_node is None]
    if len(facts.numa_nodes) < 2:
        yield skipped("fewer than two NUMA nodes")
    elif not devices:
        yield skipped("no GPU or RDMA NIC with a known PCI address")
    elif without:
        yield warned(", ".join(without), expected="a NUMA node each")
    else:
        nodes = sorted({one.numa_node for one in devices if one.numa_node is not None})
        yield passed(f"{len(devices)} on {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}")


CHECKS: tuple[Check, ...] = (
    distance,
    width,
    speed,
    bandwidth,
    access_control,
    iommu,
    bar1,
    numa,
)

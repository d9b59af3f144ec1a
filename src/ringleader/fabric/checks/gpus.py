"""Checks of GPUs and of PCI Express between them and the NICs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import (
    CheckResult,
    failed,
    listed,
    passed,
    skipped,
    together,
    unless,
    warned,
)
from ringleader.fabric.checks.check import Found, judge
from ringleader.fabric.checks.conditions import active_ports, gpu_name, nvidia_gpus, pci_devices_of
from ringleader.fabric.facts import Gpu, HostFacts, PciDevice
from ringleader.fabric.topology.gpudirect import iommu_translates
from ringleader.fabric.topology.pci_distance import PciDistance, distance_between
from ringleader.fabric.versions import version_of

PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "nv_mem_nc")
"""Modules by which NICs reach GPU memory without DMA-BUF."""
SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "thermal slowdown",
    0x80: "power brake",
}
"""NVML's reasons for lower clocks that are not normal work (nvmlClocksEventReasons)."""
NO_NVML = "NVML does not tell"


# --- GPUs -------------------------------------------------------------------------------------------------


@judge("gpu.given")
def given(facts: HostFacts) -> CheckResult:
    mine = [one for one in facts.gpus if one.device_file]
    if mine:
        return passed(f"{len(mine)} of {len(facts.gpus)}")
    if all(one.driver == "nvidia" for one in facts.gpus):
        return warned(f"none of {len(facts.gpus)}")
    return skipped("GPUs of another driver have no device file each")


@judge("gpu.driver")
def driver(facts: HostFacts) -> Found:
    gpus = nvidia_gpus(facts)
    odd = [one for one in gpus if one.driver != "nvidia"]
    if len(odd) == len(gpus):
        return failed(f"the driver of {len(gpus)} is {odd[0].driver or 'none'}", expected="nvidia")
    bad = (
        warned(f"its driver is {one.driver or 'none'}", expected="nvidia", subject=gpu_name(one))
        for one in odd
    )
    return unless(bad, f"{len(gpus)}, driver {facts.nvidia.version or 'of unknown version'}")


@judge("gpu.model")
def model(facts: HostFacts) -> Found:
    kinds = Counter((one.name, one.memory) for one in nvidia_gpus(facts) if one.name)
    shown = ", ".join(
        f"{count} × {name}{f' {byte_size(memory)}' if memory else ''}"
        for (name, memory), count in kinds.items()
    )
    bad = [warned(shown, expected="one kind")] if len(kinds) > 1 else []
    return unless(bad, shown, known=kinds, unknown="their names are not known")


@judge("gpu.peermem")
def peer_memory(facts: HostFacts) -> CheckResult:
    loaded = [name for name in PEER_MODULES if name in facts.modules]
    is_new = (version_of(facts.kernel) or ()) >= (5, 12)
    is_new = is_new and (version_of(facts.nvidia.version) or ()) >= (515,)
    if loaded:
        return passed(f"{loaded[0]} is loaded")
    if facts.nvidia.open_modules and is_new:
        return passed(f"DMA-BUF: open kernel modules {facts.nvidia.version}, Linux {facts.kernel}")
    if facts.nvidia.open_modules is None and is_new:
        return skipped("nvidia_peermem is not loaded; whether DMA-BUF works is not known")
    return failed("nvidia_peermem is not loaded, and DMA-BUF does not work here")


@judge("gpu.p2p")
def peer_to_peer(facts: HostFacts) -> Found:
    states = {(one.index, other): state for one in nvidia_gpus(facts) for other, state in one.p2p.items()}
    odd = {pair: state for pair, state in states.items() if state != "ok"}
    first = {state: pair for pair, state in reversed(odd.items())}
    bad = (
        warned(
            f"{number} of {len(states)} directions: {state}, as from GPU {first[state][0]} to GPU"
            f" {first[state][1]}"
        )
        for state, number in Counter(odd.values()).items()
    )
    return unless(bad, f"{len(states)} directions", known=states, unknown=NO_NVML)


@judge("gpu.nvlink")
def nvlink(facts: HostFacts) -> Found:
    """Judge links: all of them behind NVSwitches and on SXM boards, else as many as the peers have."""
    known = [(one, one.nvlinks_active or 0, one.nvlinks) for one in nvidia_gpus(facts) if one.nvlinks]
    most = max((active for _, active, _ in known), default=0)

    def wanted(gpu: Gpu, links: int) -> int:
        return links if facts.nvidia.fabric_manager or "SXM" in gpu.name else most

    bad = (
        failed(f"{active} of {links} links active", expected=str(wanted(one, links)), subject=gpu_name(one))
        for one, active, links in known
        if active < wanted(one, links)
    )
    low = together(bad, len(known))
    well = f"{most} links of each of {len(known)}"
    return unless(low, well, known=low or most, unknown="no NVLink is connected here")


@judge("gpu.throttle")
def throttle(facts: HostFacts) -> Found:
    known = _told(facts, "throttle_reasons")
    bad = (
        warned(", ".join(names), subject=gpu_name(one))
        for one in known
        if (names := [name for bit, name in SLOWED.items() if (one.throttle_reasons or 0) & bit])
    )
    return unless(bad, f"{len(known)} are not", known=known, unknown=NO_NVML)


def _told(facts: HostFacts, field: str) -> list[Gpu]:
    """Return the GPUs of which NVML tells something."""
    return [one for one in nvidia_gpus(facts) if getattr(one, field) is not None]


@judge("gpu.fabric-version")
def fabric_version(facts: HostFacts) -> CheckResult:
    driver, manager = facts.nvidia.version, facts.nvidia.fabric_manager_version
    if not driver or not manager or not facts.nvidia.fabric_manager:
        return skipped("no NVSwitch here, or a version is not known")
    return (passed if manager == driver else failed)(f"{manager} for driver {driver}", expected=driver)


@judge("gpu.power-limit")
def power_limit(facts: HostFacts) -> Found:
    return _caps(facts, "power_limit", "power_limit_default", "W")


@judge("gpu.clock-limit")
def clock_limit(facts: HostFacts) -> Found:
    return _caps(facts, "clock_limit", "clock_limit_default", "MHz")


def _caps(facts: HostFacts, field: str, default: str, unit: str) -> Found:
    """Judge the limits that are lower than the model's own, or than those of peers of the model."""
    known = _told(facts, field)
    most: dict[str, float] = {}
    for one in known:
        most[one.name] = max(getattr(one, field), getattr(one, default) or 0, most.get(one.name, 0))
    bad = (
        warned(
            f"{getattr(one, field):.0f} {unit}",
            expected=f"{most[one.name]:.0f} {unit}",
            subject=gpu_name(one),
        )
        for one in known
        if getattr(one, field) < most[one.name]
    )
    well = ", ".join(f"{value:.0f} {unit}" for value in sorted(set(most.values())))
    return unless(together(bad, len(known)), well, known=known, unknown=NO_NVML)


# --- PCI Express ------------------------------------------------------------------------------------------


@judge("gpu.topo")
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
            yield told(f"nearest NIC {name}: {far}", expected="PIX or PXB", subject=gpu_name(gpu))
    if near and near == len(nvidia_gpus(facts)):
        yield passed(f"{near} GPUs have one at PIX or PXB")


@judge("pci.width")
def width(facts: HostFacts) -> Found:
    known = [one for one in pci_devices_of(facts) if one.link_width and one.link_width_max]
    bad = (
        warned(f"{one.link_width} lanes", expected=f"{one.link_width_max}", subject=one.address)
        for one in known
        if (one.link_width or 0) < (one.link_width_max or 0)
    )
    unknown = "no link of a GPU or an RDMA NIC is readable"
    return unless(bad, f"{len(known)} links", known=known, unknown=unknown)


@judge("pci.speed")
def speed(facts: HostFacts) -> Found:
    known = [one for one in pci_devices_of(facts, "rdma") if one.link_speed and one.link_speed_max]
    bad = (
        warned(f"{one.link_speed:g} GT/s", expected=f"{one.link_speed_max:g} GT/s", subject=one.address)
        for one in known
        if (one.link_speed or 0) < (one.link_speed_max or 0)
    )
    well = f"{len(known)} links at {max((one.link_speed or 0 for one in known), default=0):g} GT/s"
    return unless(bad, well, known=known, unknown="no link of an RDMA NIC is readable")


@judge("pci.bandwidth")
def bandwidth(facts: HostFacts) -> Found:
    known: dict[str, tuple[float, float]] = {}
    expected = "as much as the ports"
    for device in facts.rdma_devices:
        pci = facts.pci_device(device.pci_address)
        rates = [port.rate for port in device.ports if port.state == "ACTIVE" and port.rate]
        if pci is not None and pci.link_speed and pci.link_width and rates:
            coded = 128 / 130 if pci.link_speed >= 8 else 0.8
            known[device.name] = pci.link_speed * pci.link_width * coded, sum(rates) / 1e9
    bad = (
        warned(f"PCI {carried:.0f} Gbit/s, ports {wanted:g} Gbit/s", expected=expected, subject=name)
        for name, (carried, wanted) in known.items()
        if carried < 0.95 * wanted
    )
    return unless(bad, f"{len(known)} NICs", known=known, unknown="no link of an RDMA NIC is readable")


@judge("pci.acs")
def access_control(facts: HostFacts) -> CheckResult:
    """Judge the ports of switches: what two devices behind one switch send each other passes no root port."""
    above = {name for one in pci_devices_of(facts) for name in one.ancestors[2:]}
    known = [one for one in facts.pci_devices if one.address in above and one.acs_redirects is not None]
    redirecting = [one.address for one in known if one.acs_redirects]
    if facts.hypervisor:
        return skipped(f"a virtual machine ({facts.hypervisor}): ACS belongs to the host")
    if redirecting:
        return failed(f"on {listed(redirecting)}", expected="off")
    if not above:
        return skipped("no PCIe switch above GPUs and NICs")
    if not known:
        return skipped("not readable: only root may read PCI configuration")
    return passed(f"off on {len(known)} bridges")


@judge("pci.iommu")
def iommu(facts: HostFacts) -> CheckResult:
    if facts.hypervisor:
        return skipped(f"a virtual machine ({facts.hypervisor})")
    if not facts.iommus and not any(one.iommu_type for one in facts.pci_devices):
        return passed("no IOMMU is on")
    if not iommu_translates(facts):
        return passed("on, passing through (iommu=pt)")
    return warned(f"{', '.join(facts.iommus[:4]) or 'IOMMU'} on, without iommu=pt")


@judge("pci.bar1")
def bar1(facts: HostFacts) -> Found:
    sizes: list[tuple[str, int, int]] = []
    for one in nvidia_gpus(facts):
        pci = facts.pci_device(one.pci_address)
        largest = one.bar1_memory or max(pci.bar_sizes if pci else (), default=0)
        if largest and one.memory:
            sizes.append((gpu_name(one), largest, one.memory))
    bad = (
        warned(byte_size(size), expected=f"{byte_size(memory)} or more", subject=name)
        for name, size, memory in sizes
        if size < memory
    )
    return unless(bad, f"{len(sizes)} GPUs", known=sizes, unknown="not known")


@judge("pci.numa")
def numa(facts: HostFacts) -> CheckResult:
    devices = pci_devices_of(facts)
    without = [one.address for one in devices if one.numa_node is None]
    if len(facts.numa_nodes) < 2:
        return skipped("fewer than two NUMA nodes")
    if not devices:
        return skipped("no GPU or RDMA NIC with a known PCI address")
    if without:
        return warned(", ".join(without), expected="a NUMA node each")
    nodes = {one.numa_node for one in devices}
    return passed(f"{len(devices)} on {len(nodes)} {'node' if len(nodes) == 1 else 'nodes'}")


@judge("pci.read-request")
def read_request(facts: HostFacts) -> Found:
    known = [one for one in pci_devices_of(facts, "rdma") if one.max_read_request]
    most: dict[tuple[int | None, int | None], int] = {}
    for one in known:
        most[_kind(one)] = max(one.max_read_request or 0, most.get(_kind(one), 512))
    bad = (
        warned(f"{one.max_read_request} bytes", expected=f"{most[_kind(one)]}", subject=one.address)
        for one in known
        if (one.max_read_request or 0) < most[_kind(one)]
    )
    well = ", ".join(f"{size} bytes" for size in sorted({one.max_read_request or 0 for one in known}))
    return unless(bad, well, known=known, unknown="only root may read PCI configuration")


def _kind(device: PciDevice) -> tuple[int | None, int | None]:
    return device.vendor, device.device

"""What a host must have before a check has anything to judge; its ports, GPUs and interfaces. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.fabric.checks.check import condition
from ringleader.fabric.facts import Gid, Gpu, HostFacts, NetDevice, PciDevice, RdmaDevice, RdmaPort
from ringleader.fabric.port_selection import is_link_local, roce_gids
from ringleader.fabric.wires import Wire, wire_of_port

NVIDIA_VENDOR = 0x10DE
RDMA_VENDORS = {0x15B3: "mlx5", 0x1DED: "erdma"}
"""PCI vendors all of whose network controllers can do RDMA → provider: NVIDIA (Mellanox), Alibaba."""
EFA = (0x1D0F, range(0xEFA0, 0xEFB0))
"""PCI vendor and devices of AWS's Elastic Fabric Adapter."""


def is_rdma_nic(device: PciDevice) -> bool:
    """Tell whether a PCI device is a NIC that can do RDMA, whatever drives it now."""
    if device.vendor == EFA[0]:
        return device.device in EFA[1]
    is_network = device.device_class is not None and device.device_class >> 16 == 0x02
    return is_network and device.vendor in RDMA_VENDORS


def usable_devices(facts: HostFacts) -> tuple[RdmaDevice, ...]:
    """Return the RDMA devices that a process here can open: those that have a verbs file.

    All of them where no file says to which it belongs: sysfs of a container lists the whole host's.
    """
    there = {one.rdma_device for one in facts.rdma_files if one.rdma_device}
    found = tuple(one for one in facts.rdma_devices if one.name in there)
    return found or facts.rdma_devices


def ports(facts: HostFacts, *wires: Wire) -> Iterator[tuple[RdmaDevice, RdmaPort]]:
    """Yield the ports of the usable RDMA devices; those of some wires alone where any are named."""
    for device in usable_devices(facts):
        for port in device.ports:
            if not wires or wire_of_port(device, port) in wires:
                yield device, port


def active_ports(facts: HostFacts, *wires: Wire) -> list[tuple[RdmaDevice, RdmaPort]]:
    """Return the ports whose state is ACTIVE."""
    return [(device, port) for device, port in ports(facts, *wires) if port.state == "ACTIVE"]


def active_hardware_ports(facts: HostFacts, *wires: Wire) -> list[tuple[RdmaDevice, RdmaPort]]:
    """Return the active ports of hardware: ``dev.soft`` reports devices made in software (rxe, siw)."""
    return [(device, port) for device, port in active_ports(facts, *wires) if device.pci_address]


def port_name(device: RdmaDevice, port: RdmaPort) -> str:
    """Return the name of a port for people: ``mlx5_0 port 1``."""
    return f"{device.name} port {port.number}"


def model_of(device: RdmaDevice) -> str:
    """Return what devices must share to be compared: their board."""
    return device.board_id or device.hca_type or device.driver


def interfaces_of(facts: HostFacts, device: RdmaDevice, port: RdmaPort) -> list[NetDevice]:
    """Return the network interfaces of a port that are in this network namespace."""
    names = {one.netdev for one in port.gids if one.netdev} | set(device.netdevs)
    return [one for one in facts.net_devices if one.name in names]


def is_routable(gid: Gid) -> bool:
    """Tell whether a GID is RoCE v2, not link-local, and of an interface in this network namespace."""
    return gid.kind == "RoCE v2" and bool(gid.netdev) and not is_link_local(gid)


def preferred_gid(port: RdmaPort) -> Gid | None:
    """Return the GID to use: RoCE v2, IPv4 before IPv6, the first; ``None``: there is none.

    As NCCL chooses since 2.21 (NCCL_IB_ADDR_FAMILY=AF_INET, NCCL_IB_ROCE_VERSION_NUM=2).
    """
    return next((one for one in roce_gids(port) if is_routable(one)), None)


def usable_gpus(facts: HostFacts) -> tuple[Gpu, ...]:
    """Return the GPUs that a process here may use: those with a device file.

    All of them where none has one: sysfs of a container lists the whole host's, and AMD's have no files each.
    """
    return tuple(one for one in facts.gpus if one.device_file) or facts.gpus


def nvidia_gpus(facts: HostFacts) -> tuple[Gpu, ...]:
    """Return NVIDIA's among the usable GPUs."""
    return tuple(one for one in usable_gpus(facts) if one.vendor in (None, NVIDIA_VENDOR))


def gpu_name(gpu: Gpu) -> str:
    """Return the name of a GPU for people: ``GPU 0``."""
    return f"GPU {gpu.index}"


def has_fast_hardware(facts: HostFacts) -> bool:
    """Tell whether a host is made for training: it has GPUs or RDMA devices."""
    return bool(facts.gpus or facts.rdma_devices)


def hardware_interfaces(facts: HostFacts) -> list[NetDevice]:
    """Return the network interfaces of hardware that are up."""
    return [one for one in facts.net_devices if one.up and not one.is_virtual and one.kind != "loopback"]


def outside_interfaces(facts: HostFacts) -> list[NetDevice]:
    """Return the interfaces that are up and lead to other hosts: no loopback, no container's bridge."""
    local = ("docker", "virbr", "cni0", "veth")
    return [
        one
        for one in facts.net_devices
        if one.up and one.kind != "loopback" and not (one.is_virtual and one.name.startswith(local))
    ]


def pci_devices_of(facts: HostFacts, kind: str = "all") -> list[PciDevice]:
    """Return the PCI devices of the GPUs (``gpu``), of the RDMA devices (``rdma``), or of both."""
    gpus = () if kind == "rdma" else tuple(one.pci_address for one in facts.gpus)
    nics = () if kind == "gpu" else tuple(one.pci_address for one in facts.rdma_devices if one.pci_address)
    found = (facts.pci_device(address) for address in (*gpus, *nics))
    return [one for one in found if one is not None]


def nccl_variable(facts: HostFacts, name: str) -> str:
    """Return what NCCL uses: the environment's value, else the first nccl.conf's; empty: not set."""
    if name in facts.environment:
        return facts.environment[name]
    return next((values[name] for values in facts.nccl_files.values() if name in values), "")


def part_of(facts: HostFacts, subject: str) -> str:
    """Return the PCI address behind a result's subject (a port, an interface, a GPU), else its first word."""
    name = subject if subject.startswith("GPU ") else subject.partition(" ")[0]
    known = {one.name: one.pci_address for one in facts.net_devices}
    known |= {one.name: one.pci_address for one in facts.rdma_devices}
    known |= {gpu_name(one): one.pci_address for one in facts.gpus}
    return known.get(name) or name


RDMA = condition(
    "rdma",
    "no RDMA device here",
    lambda facts: (
        facts.rdma_devices
        or facts.rdma_files
        or facts.verbs_devices
        or any(is_rdma_nic(one) for one in facts.pci_devices)
    ),
)
"""Some sign of RDMA: a device, its file, or a NIC that could."""
RDMA_DEVICE = condition(
    "rdma-device", "no RDMA device in /sys/class/infiniband", lambda facts: facts.rdma_devices, RDMA
)
INFINIBAND = condition(
    "infiniband", "no InfiniBand port here", lambda facts: any(ports(facts, Wire.INFINIBAND)), RDMA_DEVICE
)
ROCE = condition("roce", "no RoCE port here", lambda facts: any(ports(facts, Wire.ROCE)), RDMA_DEVICE)
EFA_DEVICE = condition("efa", "no EFA device here", lambda facts: any(ports(facts, Wire.EFA)), RDMA_DEVICE)
GPU = condition("gpu", "no GPU here", lambda facts: facts.gpus)
NVIDIA = condition(
    "nvidia",
    "no NVIDIA GPU here, or none was given to this container",
    lambda facts: any(one.device_file or not facts.container for one in nvidia_gpus(facts)),
    GPU,
)
condition("several-gpus", "fewer than two GPUs here", lambda facts: len(nvidia_gpus(facts)) > 1, NVIDIA)
condition("gpudirect", "no RDMA device beside the GPUs", lambda facts: facts.rdma_devices, NVIDIA)
condition("pci", "no GPU and no RDMA device here", has_fast_hardware)
condition(
    "several-interfaces",
    "fewer than two network interfaces with addresses",
    lambda facts: len([one for one in hardware_interfaces(facts) if one.addresses]) > 1,
)
condition("several-numa-nodes", "fewer than two NUMA nodes", lambda facts: len(facts.numa_nodes) > 1)

"""What a host must have before a check has anything to judge; its ports, GPUs and interfaces. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.fabric.checks.check import Condition
from ringleader.fabric.facts import Gpu, HostFacts, NetDevice, PciDevice, RdmaDevice, RdmaPort
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
    """Return the RDMA devices that a process here can open: those with a verbs file that is there.

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
    """Return the active ports of devices that are no software (rxe, siw): ``dev.soft`` says all of those."""
    return [(device, port) for device, port in active_ports(facts, *wires) if device.pci_address]


def port_name(device: RdmaDevice, port: RdmaPort) -> str:
    """Return the name of a port for people: ``mlx5_0 port 1``."""
    return f"{device.name} port {port.number}"


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


def hardware_interfaces(facts: HostFacts) -> list[NetDevice]:
    """Return the network interfaces that are up and have hardware of their own."""
    return [one for one in facts.net_devices if one.up and not one.is_virtual and one.kind != "loopback"]


RDMA = Condition(
    id="rdma",
    holds=lambda facts: bool(
        facts.rdma_devices
        or facts.rdma_files
        or facts.verbs_devices
        or any(is_rdma_nic(one) for one in facts.pci_devices)
    ),
    otherwise="no RDMA device here",
)
"""Some sign of RDMA: a device, its file, or a NIC that could."""

RDMA_DEVICE = Condition(
    id="rdma-device",
    holds=lambda facts: bool(facts.rdma_devices),
    otherwise="no RDMA device in /sys/class/infiniband",
    within=RDMA,
)
INFINIBAND = Condition(
    id="infiniband",
    holds=lambda facts: any(ports(facts, Wire.INFINIBAND)),
    otherwise="no InfiniBand port here",
    within=RDMA_DEVICE,
)
ROCE = Condition(
    id="roce",
    holds=lambda facts: any(ports(facts, Wire.ROCE)),
    otherwise="no RoCE port here",
    within=RDMA_DEVICE,
)
EFA_DEVICE = Condition(
    id="efa",
    holds=lambda facts: any(ports(facts, Wire.EFA)),
    otherwise="no EFA device here",
    within=RDMA_DEVICE,
)
GPU = Condition(id="gpu", holds=lambda facts: bool(facts.gpus), otherwise="no GPU here")
NVIDIA = Condition(
    id="nvidia",
    holds=lambda facts: any(one.device_file or not facts.container for one in nvidia_gpus(facts)),
    otherwise="no NVIDIA GPU here, or none was given to this container",
    within=GPU,
)
SEVERAL_GPUS = Condition(
    id="several-gpus",
    holds=lambda facts: len(nvidia_gpus(facts)) > 1,
    otherwise="fewer than two GPUs here",
    within=NVIDIA,
)
GPU_AND_RDMA = Condition(
    id="gpudirect",
    holds=lambda facts: bool(facts.rdma_devices),
    otherwise="no RDMA device beside the GPUs",
    within=NVIDIA,
)
PCI_DEVICE = Condition(
    id="pci",
    holds=lambda facts: bool(facts.gpus or facts.rdma_devices),
    otherwise="no GPU and no RDMA device here",
)

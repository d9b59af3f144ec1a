"""PCI distances against the paths of real machines."""

import pytest

from ringleader.fabric.facts import PciDevice
from ringleader.fabric.topology.pci_distance import PciDistance, pci_distance


def device(path: str, node: int | None = None) -> PciDevice:
    """A device from its path below /sys/devices."""
    *ancestors, address = path.split("/")
    return PciDevice(
        address=address,
        ancestors=tuple(ancestors),
        vendor=None,
        device=None,
        device_class=None,
        numa_node=node,
    )


# DGX-like: root port 15:01.0, switch 16:00.0 with ports 17:00.0 and 17:01.0.
GPU = device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:00.0/0000:18:00.0", 0)
NIC = device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.0", 0)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (NIC, "PIX"),
        # The second function and a virtual function of the NIC.
        (device("pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:01.0/0000:1a:00.1", 0), "PIX"),
        # Behind a second switch below the first.
        (
            device(
                "pci0000:15/0000:15:01.0/0000:16:00.0/0000:17:02.0/0000:1b:00.0/0000:1c:04.0/0000:1d:00.0", 0
            ),
            "PXB",
        ),
        # Another root port of the same root complex.
        (device("pci0000:15/0000:15:03.0/0000:20:00.0", 0), "PHB"),
        (device("pci0000:37/0000:37:01.0/0000:38:00.0", 0), "NODE"),
        (device("pci0000:97/0000:97:01.0/0000:98:00.0", 1), "SYS"),
        (device("pci0000:97/0000:97:01.0/0000:98:00.0", None), "SYS"),
    ],
)
def test_distance_from_a_gpu_behind_a_switch(other, expected):
    assert pci_distance(GPU, other) is pci_distance(other, GPU) is PciDistance[expected]


def test_flat_buses_of_virtual_machines():
    gpu, nic = device("pci0000:00/0000:00:1e.0"), device("pci0000:00/0000:00:06.0")
    assert pci_distance(gpu, nic) is PciDistance.PHB
    # Hyper-V gives each device its own root complex and often no NUMA node.
    alone, apart = device("pci0001:00/0001:00:00.0"), device("pci0101:00/0101:00:02.0")
    assert pci_distance(alone, apart) is PciDistance.SYS
    assert pci_distance(alone, apart, single_node=True) is PciDistance.NODE


def test_two_functions_of_one_card_at_a_root_port():
    first, second = (device(f"pci0000:40/0000:40:01.1/0000:41:00.{number}") for number in (0, 1))
    assert pci_distance(first, second) is PciDistance.PIX


def test_order_and_names():
    assert sorted(PciDistance) == [PciDistance[name] for name in ["PIX", "PXB", "PHB", "NODE", "SYS"]]
    assert PciDistance.PHB > PciDistance.PXB and f"{PciDistance.NODE}" == "NODE"

"""PCI distances against the paths of real machines."""

from tests.unit.fabric.machines import pci

from ringleader.fabric.topology.pci_distance import PciDistance, pci_distance

# DGX-like: root port 15:01.0, switch 16:00.0 with ports 17:00.0 and 17:01.0.
SWITCH = "pci0000:15/0000:15:01.0/0000:16:00.0"
GPU = pci(f"{SWITCH}/0000:17:00.0/0000:18:00.0", 0)
NIC = pci(f"{SWITCH}/0000:17:01.0/0000:1a:00.0", 0)


def test_distance_from_a_gpu_behind_a_switch():
    for other, expected in (
        (NIC, "PIX"),
        # Behind a second switch below the first.
        (pci(f"{SWITCH}/0000:17:02.0/0000:1b:00.0/0000:1c:04.0/0000:1d:00.0", 0), "PXB"),
        # Another root port of the same root complex.
        (pci("pci0000:15/0000:15:03.0/0000:20:00.0", 0), "PHB"),
        (pci("pci0000:37/0000:37:01.0/0000:38:00.0", 0), "NODE"),
        (pci("pci0000:97/0000:97:01.0/0000:98:00.0", 1), "SYS"),
        (pci("pci0000:97/0000:97:01.0/0000:98:00.0", None), "SYS"),
    ):
        assert pci_distance(GPU, other) is pci_distance(other, GPU) is PciDistance[expected]


def test_flat_buses_of_virtual_machines():
    gpu, nic = pci("pci0000:00/0000:00:1e.0"), pci("pci0000:00/0000:00:06.0")
    assert pci_distance(gpu, nic) is PciDistance.PHB
    first, second = (pci(f"pci0000:40/0000:40:01.1/0000:41:00.{number}") for number in (0, 1))
    assert pci_distance(first, second) is PciDistance.PIX, "two functions of one card at a root port"
    # Hyper-V gives each device its own root complex and often no NUMA node.
    alone, apart = pci("pci0001:00/0001:00:00.0"), pci("pci0101:00/0101:00:02.0")
    assert pci_distance(alone, apart) is PciDistance.SYS
    assert pci_distance(alone, apart, single_node=True) is PciDistance.NODE

"""Hosts with ConnectX-7 adapters of which something is wrong."""

from typing import Any

from tests.fabric_hosts.device_tree import COUNTERS
from tests.fabric_hosts.tree import Tree

MELLANOX, CONNECTX7 = 0x15B3, 0x1021
MIB = 1 << 20
MODULES = ("mlx5_ib", "mlx5_core", "ib_uverbs", "ib_core", "rdma_cm", "rdma_ucm")

BROKEN_PORTS = (
    # state, physical state, rate, LID, LID of the subnet manager
    ("1: DOWN", "3: Disabled", "10 Gb/sec (4X SDR)", 0, 0),
    ("1: DOWN", "2: Polling", "10 Gb/sec (4X SDR)", 0, 0),
    ("2: INIT", "5: LinkUp", "400 Gb/sec (4X NDR)", 0, 0),
    ("3: ARMED", "5: LinkUp", "400 Gb/sec (4X NDR)", 0x43, 1),
    ("4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)", 0x44, 1),
    ("4: ACTIVE", "5: LinkUp", "400 Gb/sec (4X NDR)", 0x45, 1),
)


def guid(number: int) -> str:
    return f"946d:ae03:00f5:{0x2000 + number:04x}"


def _adapters(tree: Tree, count: int) -> list[str]:
    """Add a host with ConnectX-7 adapters below one root port each; return their PCI places."""
    tree.system(memory=512, cpus="0-63", modules=MODULES)
    tree.process()
    tree.verbs("mlx5")
    tree.netdev("bond0", speed=25_000, ipv4="10.9.0.4")
    places = []
    for index in range(count):
        above = (f"pci0000:{0x20 + 0x10 * index:02x}", f"0000:{0x20 + 0x10 * index:02x}:01.0")
        tree.bridge(*above, node=0, acs=True)
        words: dict[str, Any] = {"driver": "mlx5_core", "speed": "32.0", "width": 16, "bars": (32 * MIB,)}
        path = (*above, f"0000:{0x21 + 0x10 * index:02x}:00.0")
        places.append(tree.pci(*path, vendor=MELLANOX, device=CONNECTX7, code=0x020700, node=0, **words))
    return places


def broken_ports(tree: Tree) -> None:
    """Six InfiniBand ports: disabled, without a link, without a subnet manager, armed, at half rate, well.

    The firmware of the last is older, and it is in a partition as a limited member only.
    """
    places = _adapters(tree, len(BROKEN_PORTS))
    for number, (place, port) in enumerate(zip(places, BROKEN_PORTS, strict=True)):
        state, physical, rate, lid, manager = port
        last = number == len(BROKEN_PORTS) - 1
        words = {"state": state, "physical": physical, "rate": rate, "lid": lid, "sm_lid": manager}
        keys, firmware = ((0x7FFF,), "28.39.1002") if last else ((0xFFFF,), "28.43.2566")
        tree.ndr(number, place, guid(number), firmware=firmware, pkeys=keys, **words)


def saturated_counters(tree: Tree) -> None:
    """Two ports of which old error counters stand at the most that they can count; the second has errors."""
    first = {
        "port_xmit_data": 4294967295,
        "port_rcv_data": 4294967295,
        "link_downed": 255,
        "symbol_error": 65535,
    }
    second = {"symbol_error": 1200, "link_error_recovery": 14, "port_rcv_errors": 37, "port_xmit_discards": 5}
    for number, (place, counters) in enumerate(zip(_adapters(tree, 2), (first, second), strict=True)):
        hardware = {"local_ack_timeout_err": 9 * number, "out_of_buffer": 3 * number}
        tree.ndr(number, place, guid(number), lid=0x50 + number, counters=counters, hw_counters=hardware)


def no_pma(tree: Tree) -> None:
    """A virtual function whose port counters are texts: ``N/A (no PMA)``."""
    (place,) = _adapters(tree, 1)
    counters = dict.fromkeys(COUNTERS, "N/A (no PMA)")
    tree.ndr(0, place, guid(0), lid=0x60, counters=counters, hw_counters={"rx_write_requests": 12})


def half_width(tree: Tree) -> None:
    """Two adapters: the first trained to 8 of its 16 lanes, the second to 16 of its 32 GT/s."""
    places = _adapters(tree, 2)
    tree.file(f"{places[0]}/current_link_width", 8)
    tree.file(f"{places[1]}/current_link_speed", "16.0 GT/s PCIe")
    for number, place in enumerate(places):
        tree.ndr(number, place, guid(number), lid=0x70 + number)

"""Hosts with ConnectX-7 adapters of which something is wrong."""

from tests.fabric_hosts.device_tree import COUNTERS, link_local_gid
from tests.fabric_hosts.file_tree import UNREADABLE
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


def _adapters(tree: Tree, count: int) -> list[str]:
    """Add a host with ConnectX-7 adapters below one root port each; return their PCI places."""
    tree.system(memory=512, cpus="0-63", modules=MODULES)
    tree.process()
    tree.file("dev/infiniband/rdma_cm", "")
    tree.file("sys/module/ib_core/parameters/netns_mode", "Y")
    tree.verbs("mlx5")
    tree.netdev("bond0", speed=25_000, ipv4="10.9.0.4")
    places = []
    for index in range(count):
        above = (f"pci0000:{0x20 + 0x10 * index:02x}", f"0000:{0x20 + 0x10 * index:02x}:01.0")
        tree.bridge(*above, node=0, acs=True)
        places.append(
            tree.pci(
                *above,
                f"0000:{0x21 + 0x10 * index:02x}:00.0",
                vendor=MELLANOX,
                device=CONNECTX7,
                code=0x020700,
                driver="mlx5_core",
                node=0,
                speed="32.0",
                width=16,
                bars=(32 * MIB,),
            )
        )
    return places


def _adapter(tree: Tree, number: int, place: str, firmware: str = "28.43.2566") -> tuple[str, str]:
    guid = f"946d:ae03:00f5:{0x2000 + number:04x}"
    device = tree.rdma(
        f"mlx5_{number}",
        device=place,
        hca_type="MT4129",
        board="MT_0000000838",
        firmware=firmware,
        guid=guid,
        verbs=number,
    )
    return device, link_local_gid(guid)


def broken_ports(tree: Tree) -> None:
    """Six InfiniBand ports: disabled, without a link, without a subnet manager, armed, at half rate, well.

    The firmware of the last is older, and it is in a partition as a limited member only.
    """
    places = _adapters(tree, len(BROKEN_PORTS))
    for number, (place, port) in enumerate(zip(places, BROKEN_PORTS, strict=True)):
        state, physical, rate, lid, manager = port
        last = number == len(BROKEN_PORTS) - 1
        device, gid = _adapter(tree, number, place, "28.39.1002" if last else "28.43.2566")
        tree.port(
            device,
            state=state,
            physical=physical,
            rate=rate,
            lid=lid,
            sm_lid=manager,
            pkeys=(0x7FFF,) if last else (0xFFFF,),
            gids=((gid, "IB/RoCE v1", UNREADABLE),),
            counters={},
            hw_counters={},
        )


def saturated_counters(tree: Tree) -> None:
    """Two ports of which old error counters stand at the most that they can count; the second has errors."""
    for number, place in enumerate(_adapters(tree, 2)):
        device, gid = _adapter(tree, number, place)
        counters = (
            {
                "port_xmit_data": 4294967295,
                "port_rcv_data": 4294967295,
                "link_downed": 255,
                "symbol_error": 65535,
            }
            if number == 0
            else {
                "symbol_error": 1200,
                "link_error_recovery": 14,
                "port_rcv_errors": 37,
                "port_xmit_discards": 5,
            }
        )
        tree.port(
            device,
            rate="400 Gb/sec (4X NDR)",
            lid=0x50 + number,
            sm_lid=1,
            gids=((gid, "IB/RoCE v1", UNREADABLE),),
            counters=counters,
            hw_counters={"local_ack_timeout_err": 9 * number, "out_of_buffer": 3 * number},
        )


def no_pma(tree: Tree) -> None:
    """A virtual function whose port counters are texts: ``N/A (no PMA)``."""
    (place,) = _adapters(tree, 1)
    device, gid = _adapter(tree, 0, place)
    tree.port(
        device,
        rate="400 Gb/sec (4X NDR)",
        lid=0x60,
        sm_lid=1,
        gids=((gid, "IB/RoCE v1", UNREADABLE),),
        counters=dict.fromkeys(COUNTERS, "N/A (no PMA)"),
        hw_counters={"rx_write_requests": 12},
    )


def half_width(tree: Tree) -> None:
    """Two adapters: the first trained to 8 of its 16 lanes, the second to 16 of its 32 GT/s."""
    places = _adapters(tree, 2)
    tree.file(f"{places[0]}/current_link_width", 8)
    tree.file(f"{places[1]}/current_link_speed", "16.0 GT/s PCIe")
    for number, place in enumerate(places):
        device, gid = _adapter(tree, number, place)
        tree.port(
            device,
            rate="400 Gb/sec (4X NDR)",
            lid=0x70 + number,
            sm_lid=1,
            gids=((gid, "IB/RoCE v1", UNREADABLE),),
            counters={},
            hw_counters={},
        )

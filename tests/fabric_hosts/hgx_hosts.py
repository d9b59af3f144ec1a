"""GPU machines that are well: HGX with InfiniBand for each GPU, and one with RoCE."""

from typing import Any

from tests.fabric_hosts.device_tree import KILLED_JOB, KILLED_JOB_RDMA, nic_config, roce_gids
from tests.fabric_hosts.tree import Tree

MELLANOX, NVIDIA, INTEL = 0x15B3, 0x10DE, 0x8086
CONNECTX7 = 0x1021
MIB = 1 << 20

RDMA_MODULES = ("mlx5_ib", "mlx5_core", "ib_uverbs", "ib_core", "rdma_cm", "rdma_ucm")
NVIDIA_MODULES = ("nvidia", "nvidia_uvm", "nvidia_peermem")
HGX_SWITCHES = (
    # root complex, NUMA node, bus of the root port's switch, HCA, GPU
    ("15", 0, "16", "17", "18", "1b"),
    ("3d", 0, "3e", "3f", "40", "43"),
    ("4c", 0, "4d", "4e", "4f", "52"),
    ("5b", 0, "5c", "5d", "5e", "61"),
    ("97", 1, "98", "99", "9a", "9d"),
    ("bd", 1, "be", "bf", "c0", "c3"),
    ("cb", 1, "cc", "cd", "ce", "d1"),
    ("d9", 1, "da", "db", "dc", "df"),
)
"""Each root complex has one PCIe switch with one HCA and one GPU below it, as on a DGX H100."""


def hgx_ndr(tree: Tree, *, hca_of_switch: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6, 7)) -> None:
    """Eight H100 and eight ConnectX-7 at 400 Gb/s InfiniBand, a GPU and an HCA on each PCIe switch."""
    tree.system(
        memory=2048,
        cpus="0-223",
        nodes={0: "0-55,112-167", 1: "56-111,168-223"},
        modules=(*RDMA_MODULES, "ib_umad", *NVIDIA_MODULES, "gdrdrv"),
        command_line="BOOT_IMAGE=/vmlinuz root=/dev/md0 ro iommu=pt pci=realloc=off",
    )
    tree.process()
    tree.nvidia()
    tree.governor("performance")
    for index, (root, node, upstream, downstream, nic, gpu) in enumerate(HGX_SWITCHES):
        above = (f"pci0000:{root}", f"0000:{root}:01.0", f"0000:{upstream}:00.0")
        for depth in (2, 3):
            tree.bridge(*above[:depth], node=node, acs=False)
        ports = (f"0000:{downstream}:00.0", f"0000:{downstream}:01.0")
        for one in ports:
            tree.bridge(*above, one, node=node, acs=False)
        hca = hca_of_switch[index]
        words: dict[str, Any] = {"node": node, "speed": "32.0", "width": 16}
        interrupts = {100 + 4 * index + one: str(56 * node + one) for one in range(4)}
        card = {"driver": "mlx5_core", "bars": (32 * MIB,), "config": nic_config(), "interrupts": interrupts}
        path = (*above, ports[0], f"0000:{nic}:00.0")
        words |= {"group": 40 + 2 * index}
        place = tree.pci(*path, vendor=MELLANOX, device=CONNECTX7, code=0x020700, **words, **card)
        path, model = (*above, ports[1], f"0000:{gpu}:00.0"), "NVIDIA H100 80GB HBM3"
        tree.gpu(*path, number=index, model=model, device=0x2330, **words | {"group": 41 + 2 * index})
        _ndr_hca(tree, hca, place)
    for index in range(4):
        address = f"0000:{7 + index:02x}:00.0"
        above = ("pci0000:00", f"0000:00:{1 + index:02x}.0")
        tree.bridge(*above, node=0, acs=False)
        tree.pci(*above, address, vendor=NVIDIA, device=0x22A3, code=0x068000, node=0)
    tree.file("run/nvidia-fabricmanager/socket", "")
    tree.sysctl("net.ipv4.conf.all.rp_filter", 2)
    management = tree.pci(
        "pci0000:22", "0000:22:00.0", vendor=INTEL, device=0x1563, code=0x020000, driver="ixgbe", node=0
    )
    tree.netdev("eno1", device=management, speed=10000, ipv4="10.1.0.11", statistics={"rx_bytes": 91_234_567})
    tree.verbs("mlx5")
    tree.library("libmlx5.so.1", "24.50.0")


def _ndr_hca(tree: Tree, number: int, place: str) -> None:
    tree.ndr(
        number,
        place,
        f"946d:ae03:00f4:{0x1A00 + 4 * number:04x}",
        lid=0x40 + number,
        counters={"port_xmit_data": 123_456_789_012, "port_rcv_data": 120_456_789_012, **KILLED_JOB},
        hw_counters={"rx_write_requests": 1_234_567, **KILLED_JOB_RDMA},
    )
    tree.netdev(f"ibp{number}s0", device=place, kind=32, mtu=4092, speed=400_000, ipv4=f"10.2.{number}.11")


def hgx_ndr_swapped(tree: Tree) -> None:
    """The same, but mlx5_3 and mlx5_4 are in each other's slot: the rail's number is not the GPU's."""
    hgx_ndr(tree, hca_of_switch=(0, 1, 2, 4, 3, 5, 6, 7))


def roce_node(tree: Tree) -> None:
    """Four A100 and four ConnectX-6 Dx at 100 Gb/s RoCE, a GPU and a NIC on each PCIe switch."""
    tree.system(
        memory=1024,
        cpus="0-127",
        nodes={0: "0-31,64-95", 1: "32-63,96-127"},
        modules=(*RDMA_MODULES, *NVIDIA_MODULES),
        command_line="BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro amd_iommu=on iommu=pt",
    )
    tree.process(nofile=1024, nofile_hard=1048576)
    tree.nvidia("550.127.05")
    tree.governor("schedutil", driver="acpi-cpufreq")
    tree.file("etc/nccl.conf", "NCCL_IB_TC=106\nNCCL_IB_GID_INDEX=3\nNCCL_PROTO=Simple\n")
    for index, (root, node) in enumerate((("20", 0), ("40", 0), ("a0", 1), ("e0", 1))):
        bus = int(root, 16)
        above = (f"pci0000:{root}", f"0000:{root}:01.0", f"0000:{bus + 1:02x}:00.0")
        # The root port redirects, which does not matter: GPU and NIC are behind one switch.
        tree.bridge(*above[:2], node=node, acs=True)
        tree.bridge(*above, node=node, acs=False)
        ports = [f"0000:{bus + 2:02x}:0{number}.0" for number in (0, 1)]
        for one in ports:
            tree.bridge(*above, one, node=node, acs=False)
        nic = tree.pci(
            *above, ports[0], f"0000:{bus + 3:02x}:00.0",
            vendor=MELLANOX, device=0x101D, code=0x020000, driver="mlx5_core", node=node, speed="16.0",
            width=16, bars=(32 * MIB,), group=10 + 2 * index, config=nic_config(read_request=512),
            interrupts={200 + 4 * index + one: str(32 * node + one) for one in range(4)},
        )  # fmt: skip
        path, fields = (*above, ports[1], f"0000:{bus + 4:02x}:00.0"), {"node": node, "group": 11 + 2 * index}
        model = "NVIDIA A100 80GB PCIe"
        tree.gpu(*path, number=index, model=model, device=0x20B5, speed="16.0", width=16, **fields)
        guid = f"b83f:d2ff:feb2:{0x3C00 + index:04x}"
        device = tree.rdma(
            f"mlx5_{index}", device=nic, hca_type="MT4125", board="MT_0000000359", firmware="22.41.1000",
            guid=guid, verbs=index,
        )  # fmt: skip
        address = f"10.{20 + index}.0.7"
        tree.port(
            device,
            rate="100 Gb/sec (4X EDR)",
            link_layer="Ethernet",
            gids=roce_gids(guid, f"rail{index}", address),
            counters={"port_xmit_data": 23_456_789_012, "port_rcv_data": 20_456_789_012, **KILLED_JOB},
            hw_counters={"rx_write_requests": 1_234_567, **KILLED_JOB_RDMA},
        )
        packets = {"rx_packets": 30_000_000, "tx_packets": 31_000_000, "rx_dropped": 1_200, "rx_errors": 2}
        tree.netdev(f"rail{index}", device=nic, mtu=9000, speed=100_000, ipv4=address, statistics=packets)
    tree.sysctl("net.ipv4.conf.all.rp_filter", 0)
    tree.verbs("mlx5")

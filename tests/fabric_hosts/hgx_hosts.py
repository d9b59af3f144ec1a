"""HGX machines: eight GPUs, and an InfiniBand adapter for each."""

from __future__ import annotations

from tests.fabric_hosts.device_tree import link_local_gid
from tests.fabric_hosts.file_tree import UNREADABLE
from tests.fabric_hosts.tree import Tree

MELLANOX, NVIDIA, INTEL = 0x15B3, 0x10DE, 0x8086
CONNECTX7 = 0x1021
MIB = 1 << 20
GPU_BARS = (16 * MIB, 128 << 30, 32 * MIB)

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
        modules=(
            "mlx5_ib",
            "mlx5_core",
            "ib_uverbs",
            "ib_core",
            "rdma_cm",
            "rdma_ucm",
            "ib_umad",
            "nvidia",
            "nvidia_uvm",
            "nvidia_peermem",
            "gdrdrv",
        ),
        command_line="BOOT_IMAGE=/vmlinuz root=/dev/md0 ro iommu=pt pci=realloc=off",
    )
    tree.process()
    tree.nvidia()
    for index, (root, node, upstream, downstream, nic, gpu) in enumerate(HGX_SWITCHES):
        above = (f"pci0000:{root}", f"0000:{root}:01.0", f"0000:{upstream}:00.0")
        for depth in (2, 3):
            tree.bridge(*above[:depth], node=node, acs=False)
        ports = (f"0000:{downstream}:00.0", f"0000:{downstream}:01.0")
        for one in ports:
            tree.bridge(*above, one, node=node, acs=False)
        hca = hca_of_switch[index]
        place = tree.pci(
            *above,
            ports[0],
            f"0000:{nic}:00.0",
            vendor=MELLANOX,
            device=CONNECTX7,
            code=0x020700,
            driver="mlx5_core",
            node=node,
            speed="32.0",
            width=16,
            bars=(32 * MIB,),
            group=40 + 2 * index,
        )
        tree.pci(
            *above,
            ports[1],
            f"0000:{gpu}:00.0",
            vendor=NVIDIA,
            device=0x2330,
            code=0x030200,
            driver="nvidia",
            node=node,
            speed="32.0",
            width=16,
            bars=GPU_BARS,
            group=41 + 2 * index,
        )
        tree.nvidia_gpu(index, f"0000:{gpu}:00.0", "NVIDIA H100 80GB HBM3")
        _ndr_hca(tree, hca, place)
    for index in range(4):
        address = f"0000:{7 + index:02x}:00.0"
        above = ("pci0000:00", f"0000:00:{1 + index:02x}.0")
        tree.bridge(*above, node=0, acs=False)
        tree.pci(*above, address, vendor=NVIDIA, device=0x22A3, code=0x068000, node=0)
    tree.file("run/nvidia-fabricmanager/socket", "")
    management = tree.pci(
        "pci0000:22", "0000:22:00.0", vendor=INTEL, device=0x1563, code=0x020000, driver="ixgbe", node=0
    )
    tree.netdev("eno1", device=management, speed=10000, ipv4="10.1.0.11", statistics={"rx_bytes": 91_234_567})
    tree.file("dev/infiniband/rdma_cm", "")
    tree.file("sys/module/ib_core/parameters/netns_mode", "Y")
    tree.verbs("mlx5")
    tree.library("libmlx5.so.1", "24.50.0")


def _ndr_hca(tree: Tree, number: int, place: str) -> None:
    guid = f"946d:ae03:00f4:{0x1A00 + 4 * number:04x}"
    device = tree.rdma(
        f"mlx5_{number}",
        device=place,
        hca_type="MT4129",
        board="MT_0000000838",
        firmware="28.43.2566",
        guid=guid,
        verbs=number,
    )
    tree.port(
        device,
        rate="400 Gb/sec (4X NDR)",
        lid=0x40 + number,
        sm_lid=1,
        gids=((link_local_gid(guid), "IB/RoCE v1", UNREADABLE),),
        counters={"port_xmit_data": 123_456_789_012, "port_rcv_data": 120_456_789_012},
        hw_counters={"rx_write_requests": 1_234_567},
    )
    tree.netdev(f"ibp{number}s0", device=place, kind=32, mtu=4092, speed=400_000, ipv4=f"10.2.{number}.11")


def hgx_ndr_swapped(tree: Tree) -> None:
    """The same, but mlx5_3 and mlx5_4 are in each other's slot: the rail's number is not the GPU's."""
    hgx_ndr(tree, hca_of_switch=(0, 1, 2, 4, 3, 5, 6, 7))

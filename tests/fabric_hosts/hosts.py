"""The hosts by name; each function says what the host is. Ordinary machines are here."""

from collections.abc import Callable

from tests.fabric_hosts.cloud_hosts import cloud_vm, connectx_pod, efa, erdma, gpu_vm
from tests.fabric_hosts.device_tree import ipv4_gid, link_local_gid
from tests.fabric_hosts.faulty_hosts import broken_ports, half_width, no_pma, saturated_counters
from tests.fabric_hosts.hgx_hosts import hgx_ndr, hgx_ndr_swapped, roce_node
from tests.fabric_hosts.tree import Tree

INTEL = 0x8086
MIB = 1 << 20


def laptop(tree: Tree) -> None:
    """A laptop: wireless, the processor's own display, nothing of RDMA or CUDA; an ordinary user."""
    tree.system(memory=16, cpus="0-7", modules=("iwlwifi", "i915", "snd_hda_intel"))
    tree.process(
        uid=1000,
        capabilities=0,
        bounding=0x000001FFFFFFFFFF,
        memlock="8388608",
        nofile=1024,
        nofile_hard=524288,
    )
    tree.governor("powersave")
    for name, value in {"all": 0, "wlp0s20f3": 2}.items():
        tree.sysctl(f"net.ipv4.conf.{name}.rp_filter", value)
    tree.sysctl("vm.max_map_count", 65530)
    tree.pci(
        "pci0000:00",
        "0000:00:02.0",
        vendor=INTEL,
        device=0x46A6,
        code=0x030000,
        driver="i915",
        bars=(16 * MIB, 256 * MIB),
    )
    tree.pci(
        "pci0000:00",
        "0000:00:14.3",
        vendor=INTEL,
        device=0x51F0,
        code=0x028000,
        driver="iwlwifi",
        bars=(16384,),
    )
    tree.netdev("wlp0s20f3", device="sys/devices/pci0000:00/0000:00:14.3", ipv4="192.168.178.42")
    tree.netdev("docker0", state="down", ipv4="172.17.0.1")


def soft_rxe(tree: Tree) -> None:
    """A machine with an ordinary NIC and rdma_rxe on it: RoCE in software, without a PCI device."""
    tree.system(memory=32, cpus="0-15", modules=("rdma_rxe", "ib_uverbs", "ib_core", "rdma_cm", "rdma_ucm"))
    tree.process(memlock="8388608")
    nic = tree.pci("pci0000:00", "0000:00:1f.6", vendor=INTEL, device=0x15BB, driver="e1000e")
    tree.netdev("eno1", device=nic, speed=1000, ipv4="192.168.1.20")
    device = tree.rdma("rxe0", guid="fe54:00ff:fe12:3456", parent="eno1", verbs=0)
    tree.port(
        device,
        rate="2.5 Gb/sec (1X SDR)",
        link_layer="Ethernet",
        gids=(
            (link_local_gid("fe54:00ff:fe12:3456"), "RoCE v2", "eno1"),
            (ipv4_gid("192.168.1.20"), "RoCE v2", "eno1"),
        ),
        hw_counters={"sent_pkts": 17, "rcvd_pkts": 16, "duplicate_request": 0},
    )
    tree.verbs("rxe")


MADE = (
    *(connectx_pod, hgx_ndr, hgx_ndr_swapped, soft_rxe, efa, erdma, laptop, cloud_vm, roce_node, gpu_vm),
    *(broken_ports, saturated_counters, no_pma, half_width),
)
HOSTS: dict[str, Callable[[Tree], None]] = {one.__name__: one for one in MADE}
"""Name → what writes it."""

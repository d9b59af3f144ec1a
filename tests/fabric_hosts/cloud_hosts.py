"""A Pod and virtual machines of clouds."""

from tests.fabric_hosts.device_tree import link_local_gid, roce_gids
from tests.fabric_hosts.file_tree import UNREADABLE
from tests.fabric_hosts.tree import CAPABILITIES_OF_A_CONTAINER, IPC_LOCK, Tree

MELLANOX, NVIDIA, AMAZON, ALIBABA, VIRTIO = 0x15B3, 0x10DE, 0x1D0F, 0x1DED, 0x1AF4
CONNECTX6DX, CONNECTX_VF = 0x101D, 0x101E
MIB = 1 << 20


def connectx_pod(tree: Tree) -> None:
    """A Pod with one virtual function of a ConnectX-6 Dx (RoCE).

    sysfs shows all six RDMA devices of the host; only uverbs4, of mlx5_4, is mounted, and only its interface,
    net1, is in this network namespace.
    """
    tree.system(
        memory=512,
        cpus="0-63",
        nodes={0: "0-31", 1: "32-63"},
        modules=("mlx5_ib", "mlx5_core", "ib_uverbs", "ib_core", "rdma_cm", "rdma_ucm", "ib_umad"),
        command_line="BOOT_IMAGE=/vmlinuz ro intel_iommu=on iommu=pt",
        shm="65536k",
        group="0::/",
    )
    tree.process(
        capabilities=CAPABILITIES_OF_A_CONTAINER | IPC_LOCK,
        memlock="8388608",
        seccomp=2,
        label="cri-containerd.apparmor.d (enforce)",
    )
    tree.all("sys/fs/cgroup", {"cpu.max": "800000 100000", "memory.max": 64 << 30, "pids.max": 4096})
    tree.file("sys/fs/cgroup/rdma.max", "mlx5_4 hca_handle=max hca_object=max")
    tree.environ |= {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "PCIDEVICE_NVIDIA_COM_RDMA_VF": "0000:3b:00.4"}
    above = ("pci0000:3a", "0000:3a:00.0")
    tree.bridge(*above, node=0)
    for index in range(6):
        address = f"0000:3b:00.{index}"
        virtual = index >= 2
        place = tree.pci(
            *above,
            address,
            vendor=MELLANOX,
            device=CONNECTX_VF if virtual else CONNECTX6DX,
            driver="mlx5_core",
            node=0,
            speed="" if virtual else "16.0",
            width=16,
            bars=(MIB if virtual else 32 * MIB,),
            physical_function=f"sys/devices/{'/'.join(above)}/0000:3b:00.{index % 2}" if virtual else "",
            group=70 + index,
        )
        guid = f"b83f:d2ff:fea1:{0x2B00 + index:04x}"
        ours = index == 4
        device = tree.rdma(
            f"mlx5_{index}",
            device=place,
            hca_type="MT4126" if virtual else "MT4125",
            board="MT_0000000359",
            firmware="22.39.1002",
            guid=guid,
            verbs=index,
            device_file=ours,
        )
        gids = roce_gids(guid, "net1", "192.168.100.5" if ours else f"192.168.{100 + index}.7")
        if not ours:  # the kernel answers EINVAL for interfaces of other network namespaces
            gids = tuple((address, UNREADABLE, UNREADABLE) for address, _, _ in gids)
        tree.port(
            device,
            rate="100 Gb/sec (4X EDR)",
            link_layer="Ethernet",
            gids=gids,
            counters={"port_xmit_data": 1000 * index, "port_rcv_data": 2000 * index},
            hw_counters={},
        )
        if ours:
            tree.netdev("net1", device=place, mtu=9000, speed=100_000, ipv4="192.168.100.5")
    tree.netdev("eth0", mtu=1450, speed=10_000, ipv4="10.244.3.17")
    tree.ipv6("eth0", "fe80000000000000d0a1b2fffec3d4e5")
    tree.verbs("mlx5", release="39.0")


def efa(tree: Tree) -> None:
    """Four Elastic Fabric Adapters and eight A100 on EC2, like a p4d.24xlarge."""
    tree.system(
        kernel="6.1.112-122.189.amzn2023.x86_64",
        name="Amazon Linux 2023.6.20241010",
        memory=1152,
        cpus="0-95",
        nodes={0: "0-23,48-71", 1: "24-47,72-95"},
        modules=("efa", "ib_uverbs", "ib_core", "nvidia", "nvidia_uvm", "gdrdrv"),
        hypervisor=True,
    )
    tree.process()
    tree.all("sys/class/dmi/id", {"sys_vendor": "Amazon EC2", "product_name": "p4d.24xlarge"})
    tree.huge_pages(5128, 5000)
    tree.nvidia("550.127.05")
    tree.environ |= {"FI_PROVIDER": "efa", "LD_LIBRARY_PATH": "/opt/amazon/efa/lib64"}
    buses = (("10", 0), ("20", 0), ("90", 1), ("a0", 1))
    for index, (bus, node) in enumerate(buses):
        above = (f"pci0000:{bus}", f"0000:{bus}:00.0")
        tree.bridge(*above, node=node)
        nic = tree.pci(
            *above,
            f"0000:{bus}:1b.0",
            vendor=AMAZON,
            device=0xEFA1,
            driver="efa",
            node=node,
            speed="8.0",
            width=16,
            bars=(MIB,),
        )
        guid = f"0{index}00:0000:0000:1d0f"
        device = tree.rdma(
            f"rdmap{16 + index}s27",
            device=nic,
            node_type="7: unspecified",
            hca_type="0xefa1",
            firmware="0.0.0.0",
            guid=guid,
            verbs=index,
        )
        tree.port(
            device,
            rate="100 Gb/sec (4X EDR)",
            link_layer="Unknown",
            gids=((link_local_gid(guid), "IB/RoCE v1", UNREADABLE),),
            table=1,
            hw_counters={
                "tx_bytes": 81_000_000,
                "rx_bytes": 80_000_000,
                "rdma_read_bytes": 5_000,
                "rx_drops": 0,
            },
        )
        for slot in range(2):
            words = {"node": node, "speed": "16.0", "width": 16, "size": 64 << 30}
            path, model = (*above, f"0000:{bus}:{0x1C + slot:02x}.0"), "NVIDIA A100-SXM4-40GB"
            tree.gpu(*path, number=2 * index + slot, model=model, device=0x20B0, **words)
    ena = tree.pci("pci0000:00", "0000:00:05.0", vendor=AMAZON, device=0xEC20, driver="ena", node=0)
    tree.netdev("ens5", device=ena, mtu=9001, ipv4="172.31.5.10")
    tree.verbs("efa", has_cm=False)
    tree.library("libfabric.so.1", "28.0", place="opt/amazon/efa/lib64")


def erdma(tree: Tree) -> None:
    """A virtual machine of Alibaba Cloud with eRDMA, whose driver calls itself an RNIC (iWARP)."""
    tree.system(
        kernel="5.10.134-17.al8.x86_64",
        name="Alibaba Cloud Linux 3",
        memory=64,
        cpus="0-15",
        modules=("erdma", "ib_uverbs", "ib_core", "rdma_cm", "rdma_ucm"),
        hypervisor=True,
    )
    tree.process()
    tree.all("sys/class/dmi/id", {"sys_vendor": "Alibaba Cloud", "product_name": "Alibaba Cloud ECS"})
    for index, (name, driver, device) in enumerate(
        (("eth0", "virtio-pci", 0x1000), ("eth1", "virtio-pci", 0x1000))
    ):
        place = tree.pci("pci0000:00", f"0000:00:0{5 + index}.0", vendor=VIRTIO, device=device, driver=driver)
        tree.netdev(name, device=f"{place}/virtio{index}", mtu=8500, ipv4=f"192.168.0.{31 + index}")
    nic = tree.pci("pci0000:00", "0000:00:07.0", vendor=ALIBABA, device=0x107F, driver="erdma", bars=(MIB,))
    guid = "0216:3eff:fe0a:bc01"
    device = tree.rdma("erdma_0", device=nic, node_type="4: RNIC", firmware="0.2.0", guid=guid, verbs=0)
    tree.port(
        device,
        rate="100 Gb/sec (4X EDR)",
        link_layer="Ethernet",
        pkeys=(),
        gids=(("0216:3e0a:bc01:0000:0000:0000:0000:0000", "IB/RoCE v1", "eth1"),),
        table=1,
        hw_counters={"hw_tx_bytes_cnt": 900_000, "hw_rx_bytes_cnt": 800_000},
    )
    tree.verbs("erdma")


def cloud_vm(tree: Tree) -> None:
    """A virtual machine with one H100 and a NIC on a flat virtual PCI bus: nothing of the real one shows."""
    tree.system(
        memory=128, cpus="0-25", modules=("virtio_net", "nvidia", "nvidia_uvm"), hypervisor=True, shm="64m"
    )
    tree.process(capabilities=CAPABILITIES_OF_A_CONTAINER, memlock="65536", nofile=1024, seccomp=2)
    tree.all("sys/class/dmi/id", {"sys_vendor": "QEMU", "product_name": "Standard PC (Q35 + ICH9, 2009)"})
    tree.file(".dockerenv", "")
    tree.nvidia("535.183.01", open_modules=False)
    nic = tree.pci("pci0000:00", "0000:00:03.0", vendor=VIRTIO, device=0x1041, driver="virtio-pci")
    tree.netdev("eth0", device=f"{nic}/virtio0", mtu=1460, ipv4="10.128.0.9")
    for number, address in enumerate(("0000:00:05.0", "0000:00:06.0")):
        # The container was given the first one only.
        path, model = ("pci0000:00", address), "NVIDIA H100 PCIe"
        tree.gpu(*path, number=number, model=model, device=0x2331, has_file=number == 0)


def gpu_vm(tree: Tree) -> None:
    """A virtual machine with one L4 and a NIC whose speed the cloud does not tell."""
    tree.system(memory=64, cpus="0-15", modules=("gve", "nvidia", "nvidia_uvm"), hypervisor=True)
    tree.process(uid=1000, capabilities=0, bounding=0, memlock="8388608", nofile=1024, nofile_hard=1048576)
    tree.all("sys/class/dmi/id", {"sys_vendor": "Google", "product_name": "Google Compute Engine"})
    tree.nvidia("550.90.07")
    nic = tree.pci("pci0000:00", "0000:00:04.0", vendor=0x1AE0, device=0x0042, driver="gve")
    drops = {"rx_packets": 8_000_000, "tx_packets": 7_000_000, "rx_dropped": 35}
    tree.netdev("ens4", device=nic, mtu=1460, ipv4="10.128.0.21", statistics=drops)
    tree.sysctl("net.ipv4.conf.all.rp_filter", 1)
    path = ("pci0000:00", "0000:00:03.0")
    tree.gpu(*path, number=0, model="NVIDIA L4", device=0x27B8, size=32 << 30)

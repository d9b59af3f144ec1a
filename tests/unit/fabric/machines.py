"""Hosts made by hand: what each test of topology and settings starts from."""

from dataclasses import replace

from ringleader.fabric import facts as of

V4_MAPPED = "0000:0000:0000:0000:0000:ffff:"
LINK_LOCAL = "fe80:0000:0000:0000:0ac0:ebff:fe12:3456"
ROCE_GIDS = (
    of.Gid(index=0, address=LINK_LOCAL, kind="IB/RoCE v1", netdev="eth1"),
    of.Gid(index=1, address=LINK_LOCAL, kind="RoCE v2", netdev="eth1"),
    of.Gid(index=2, address=V4_MAPPED + "0a00:0001", kind="IB/RoCE v1", netdev="eth1"),
    of.Gid(index=3, address=V4_MAPPED + "0a00:0001", kind="RoCE v2", netdev="eth1"),
)
"""The usual table of a RoCE port: 10.0.0.1 as v2 is entry 3."""


def port(layer: str = "InfiniBand", *, gbits: float = 400, state: str = "ACTIVE", gids=None) -> of.RdmaPort:
    found = gids if gids is not None else ROCE_GIDS if layer == "Ethernet" else ()
    return of.RdmaPort(
        number=1, state=state, physical_state="LinkUp", rate=gbits * 1e9, link_layer=layer, gids=found
    )


def rdma(
    name: str, one: of.RdmaPort, *, pci: str = "", node_type: int = 1, driver="mlx5_core"
) -> of.RdmaDevice:
    return of.RdmaDevice(name=name, node_type=node_type, driver=driver, pci_address=pci, ports=(one,))


def pci(path: str, node: int | None = None, **values) -> of.PciDevice:
    *ancestors, address = path.split("/")
    fields = {"vendor": None, "device": None, "device_class": None, "numa_node": node, **values}
    return of.PciDevice(address=address, ancestors=tuple(ancestors), **fields)


def interface(name: str, *addresses: str, up: bool = True, virtual: bool = False) -> of.NetDevice:
    kind = {"lo": "loopback", "ib": "infiniband"}.get(name[:2], "ethernet")
    return of.NetDevice(name=name, up=up, mtu=1500, kind=kind, is_virtual=virtual, addresses=addresses)


def host(*, devices=(), nccl="2.27.5", mpi=None, memlock=-1, capabilities=0, without_files=(), **values):
    """A host with these RDMA devices, whose verbs files are all there but for ``without_files``."""
    files = tuple(
        of.DeviceFile(path=f"/dev/infiniband/uverbs{at}", rdma_device=one.name)
        for at, one in enumerate(devices)
        if one.name not in without_files
    )
    return of.HostFacts(
        **{
            "hostname": "node1",
            "clock": of.Clock(read_at=0.0),
            "kernel": "6.8.0-45-generic",
            "process": of.Process(
                uid=0,
                capabilities=capabilities,
                bounding_capabilities=capabilities,
                limits={"memlock": of.Limit(soft=memlock, hard=memlock)},
            ),
            "software": of.Software(
                python="3.12.3",
                executable="/usr/bin/python3",
                ringleader="1",
                nccl=(of.Library(name="libnccl.so.2", path="/x", version=nccl, source="wheel"),)
                if nccl
                else (),
                mpis=(mpi,) if mpi else (),
            ),
            "rdma_devices": devices,
            "rdma_files": files,
            **values,
        }
    )


def gpu_machine(*, gpus: int = 8, nics: int = 8, swapped: bool = False) -> of.HostFacts:
    """Two NUMA nodes with four switches each; behind each switch one GPU and one NIC.

    ``swapped``: the NICs' names run against the GPUs' order.
    """
    devices, bridges, cards, adapters = [], [], [], []
    for at in range(max(gpus, nics)):
        bus, node = 0x10 + 0x10 * at, at // 4
        root, upper = f"pci0000:{bus:02x}", f"0000:{bus:02x}:01.0"
        switch = f"0000:{bus + 1:02x}:00.0"
        ports = [f"0000:{bus + 2:02x}:0{number}.0" for number in (0, 1)]
        bridges += [pci(f"{root}/{upper}", node), pci(f"{root}/{upper}/{switch}", node)]
        bridges += [pci(f"{root}/{upper}/{switch}/{one}", node, acs_redirects=False) for one in ports]
        if at < gpus:
            address = f"0000:{bus + 3:02x}:00.0"
            devices.append(pci(f"{root}/{upper}/{switch}/{ports[0]}/{address}", node, vendor=0x10DE))
            cards.append(of.Gpu(index=at, pci_address=address, name="H100", vendor=0x10DE, driver="nvidia"))
        if at < nics:
            address = f"0000:{bus + 4:02x}:00.0"
            devices.append(pci(f"{root}/{upper}/{switch}/{ports[1]}/{address}", node, vendor=0x15B3))
            adapters.append(address)
    if swapped:
        adapters.reverse()
    found = tuple(rdma(f"mlx5_{at}", port(), pci=address) for at, address in enumerate(adapters))
    return host(
        devices=found,
        gpus=tuple(cards),
        pci_devices=(*bridges, *devices),
        numa_nodes=tuple(
            of.NumaNode(number=node, cpus=f"{32 * node}-{32 * node + 31}", memory=1 << 38) for node in (0, 1)
        ),
        modules=("nvidia", "nvidia_peermem"),
        nvidia=of.NvidiaDriver(version="570.1", open_modules=True),
    )


def changed(facts: of.HostFacts, **values) -> of.HostFacts:
    return replace(facts, **values)


GPU_HOST = host(
    devices=(
        rdma("mlx5_0", port("Ethernet"), pci="0000:01:00.0"),
        rdma("mlx5_1", port("Ethernet"), pci="0000:02:00.0"),
    ),
    without_files=("mlx5_1",),
    gpus=(of.Gpu(index=0, pci_address="0000:18:00.0"),),
    nccl="2.18.1",
)
"""RoCE with an old NCCL and a NIC that may not be opened: most of what can be set."""

"""What the kernel tells of PCI devices, network interfaces, RDMA devices and GPUs."""

import os
import struct
from typing import Any

from tests.fabric_hosts.file_tree import UNREADABLE, FileTree

COUNTERS = (
    "port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "unicast_xmit_packets",
    "unicast_rcv_packets", "multicast_xmit_packets", "multicast_rcv_packets", "port_xmit_wait",
    "port_xmit_discards", "port_rcv_errors", "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors", "port_xmit_constraint_errors", "port_rcv_constraint_errors",
    "symbol_error", "link_error_recovery", "link_downed", "local_link_integrity_errors",
    "excessive_buffer_overrun_errors", "VL15_dropped",
)  # fmt: skip
HW_COUNTERS = (
    "out_of_sequence", "packet_seq_err", "out_of_buffer", "rnr_nak_retry_err", "local_ack_timeout_err",
    "implied_nak_seq_err", "duplicate_request", "req_cqe_error", "resp_cqe_error", "rx_write_requests",
    "rx_read_requests", "roce_adp_retrans", "np_cnp_sent", "np_ecn_marked_roce_packets",
    "rp_cnp_handled", "rx_icrc_encapsulated",
)  # fmt: skip
KILLED_JOB = {
    "port_xmit_packets": 41_000_000_000, "port_rcv_packets": 40_000_000_000, "port_xmit_wait": 98_765_432,
    "port_xmit_discards": 23, "VL15_dropped": 4, "link_downed": 2, "symbol_error": 3,
}  # fmt: skip
KILLED_JOB_RDMA = {
    "local_ack_timeout_err": 280, "packet_seq_err": 40, "out_of_sequence": 3_000_000, "out_of_buffer": 700,
    "rnr_nak_retry_err": 12, "req_cqe_error": 56, "roce_adp_retrans": 130,
}  # fmt: skip
"""What ports of a host hold that is well: a job was killed, a cable was pulled, routes adapt."""
STATISTICS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
)  # fmt: skip


class DeviceTree(FileTree):
    """Files in which words for devices add theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.ipv4: list[tuple[str, str]] = [("lo", "127.0.0.1")]
        self._ipv6: list[str] = []
        self.netdev("lo", kind=772, mtu=65536, state="unknown", carrier=1)

    def pci(
        self,
        *path,
        vendor,
        device,
        code=131072,
        driver="",
        node=-1,
        speed="",
        width=0,
        speed_max="",
        width_max=0,
        bars=(),
        config=b"",
        physical_function="",
        group=None,
        interrupts=None,
    ):
        """Add a device: ``pci("pci0000:15", "0000:15:01.0", …)``, from the root complex to itself."""
        place = "sys/devices/" + "/".join(path)
        self.link(f"sys/bus/pci/devices/{path[-1]}", place)
        self.all(place, {"vendor": f"0x{vendor:04x}", "device": f"0x{device:04x}", "class": f"0x{code:06x}"})
        self.all(place, {"numa_node": node, "resource": _resource(bars)})
        if speed:
            best = f"{speed_max or speed} GT/s PCIe"
            self.all(place, {"current_link_speed": f"{speed} GT/s PCIe", "max_link_speed": best})
            self.all(place, {"current_link_width": width, "max_link_width": width_max or width})
        if config:
            self.file(f"{place}/config", config)
        if driver:
            self.file(f"sys/bus/pci/drivers/{driver}/uevent", "")
            self.link(f"{place}/driver", f"sys/bus/pci/drivers/{driver}")
        if physical_function:
            self.link(f"{place}/physfn", physical_function)
        for number, cpus in (interrupts or {}).items():
            self.file(f"{place}/msi_irqs/{number}", "msix")
            self.file(f"proc/irq/{number}/effective_affinity_list", cpus)
        if group is not None:
            self.file(f"sys/kernel/iommu_groups/{group}/type", "identity")
            self.link(f"{place}/iommu_group", f"sys/kernel/iommu_groups/{group}")
        return place

    def bridge(self, *path: str, node: int = -1, acs: bool | None = None, device: int = 0x1030) -> str:
        config = b"\0" * 64 if acs is None else config_space(acs_redirects=acs)
        fields: dict[str, Any] = {"code": 0x060400, "driver": "pcieport", "node": node, "config": config}
        return self.pci(*path, vendor=0x1000, device=device, speed="32.0", width=16, **fields)

    def netdev(
        self,
        name,
        *,
        device="",
        kind=1,
        mtu=1500,
        state="up",
        carrier=1,
        speed=None,
        ipv4="",
        statistics=None,
    ):
        """Add a network interface of ``device`` (what ``pci`` returned; empty: virtual); speed in Mb/s."""
        place = f"{device or 'sys/devices/virtual'}/net/{name}"
        self.link(f"sys/class/net/{name}", place)
        self.all(place, {"type": kind, "mtu": mtu, "operstate": state})
        self.file(f"{place}/carrier", carrier if state != "down" else UNREADABLE)
        self.file(f"{place}/speed", UNREADABLE if state == "down" else -1 if speed is None else speed)
        self.all(f"{place}/statistics", dict.fromkeys(STATISTICS, 0) | dict(statistics or {}))
        if device:
            self.link(f"{place}/device", device)
            # A virtio device is its own device below the PCI device.
            if os.path.basename(device).startswith("virtio"):
                self.file("sys/bus/virtio/drivers/virtio_net/uevent", "")
                self.link(f"{device}/driver", "sys/bus/virtio/drivers/virtio_net")
        if ipv4:
            self.ipv4.append((name, ipv4))

    def ipv6(self, name: str, address: str) -> None:
        self._ipv6.append(f"{address} 02 40 20 80 {name:>8}")
        self.file("proc/net/if_inet6", "\n".join(self._ipv6))

    def rdma(
        self,
        name,
        *,
        device="",
        node_type="1: CA",
        hca_type="",
        board="",
        firmware="",
        guid="0000:0000:0000:0000",
        parent="",
        verbs=None,
        device_file=True,
    ):
        """Add an RDMA device of ``device`` (what ``pci`` returned; empty: a soft one); return its place."""
        place = f"{device or 'sys/devices/virtual'}/infiniband/{name}"
        self.link(f"sys/class/infiniband/{name}", place)
        known = {"node_type": node_type, "hca_type": hca_type, "board_id": board, "fw_ver": firmware}
        known["node_guid"] = guid
        self.all(place, {one: content for one, content in known.items() if content})
        if device:
            self.link(f"{place}/device", device)
        if parent:
            self.file(f"{place}/parent", parent)
        if verbs is not None:
            uverbs = f"{device or 'sys/devices/virtual'}/infiniband_verbs/uverbs{verbs}"
            self.link(f"sys/class/infiniband_verbs/uverbs{verbs}", uverbs)
            self.all(uverbs, {"ibdev": name, "abi_version": 1})
            if device_file:
                self.file(f"dev/infiniband/uverbs{verbs}", "")
        return place

    def port(
        self,
        device,
        number=1,
        *,
        state="4: ACTIVE",
        physical="5: LinkUp",
        rate,
        link_layer="InfiniBand",
        lid=0,
        sm_lid=0,
        pkeys=(65535,),
        gids=(),
        table=8,
        counters=None,
        hw_counters=None,
    ):
        """Add a port; ``gids``: address, type and interface of each entry, ``table``: entries in all."""
        place = f"{device}/ports/{number}"
        self.all(place, {"state": state, "phys_state": physical, "rate": rate, "link_layer": link_layer})
        self.all(place, {"lid": f"0x{lid:x}", "sm_lid": f"0x{sm_lid:x}", "sm_sl": 0})
        keys = (*pkeys, *(0,) * (4 - len(pkeys)))
        self.all(f"{place}/pkeys", {str(index): f"0x{key:04x}" for index, key in enumerate(keys)})
        empty = ":".join(["0000"] * 8)
        for index in range(max(table, len(gids))):
            address, sort, netdev = gids[index] if index < len(gids) else (empty, UNREADABLE, UNREADABLE)
            self.file(f"{place}/gids/{index}", address)
            self.file(f"{place}/gid_attrs/types/{index}", sort)
            self.file(f"{place}/gid_attrs/ndevs/{index}", netdev)
        if counters is not None:
            self.all(f"{place}/counters", dict.fromkeys(COUNTERS, 0) | dict(counters))
        if hw_counters is not None:
            every = dict.fromkeys(HW_COUNTERS, 0) | {"lifespan": 10} | dict(hw_counters)
            self.all(f"{place}/hw_counters", every)

    def ndr(self, number: int, device: str, guid: str, *, firmware: str = "28.43.2566", **port: Any) -> None:
        """Add a ConnectX-7 of NDR InfiniBand of ``device``; ``port``: what ``port`` takes."""
        words = {"hca_type": "MT4129", "board": "MT_0000000838", "firmware": firmware, "guid": guid}
        place = self.rdma(f"mlx5_{number}", device=device, verbs=number, **words)
        gids = ((link_local_gid(guid), "IB/RoCE v1", UNREADABLE),)
        usual = {"rate": "400 Gb/sec (4X NDR)", "sm_lid": 1, "gids": gids, "counters": {}, "hw_counters": {}}
        self.port(place, **usual | port)

    def nvidia(self, version: str = "570.133.20", *, open_modules: bool = True) -> None:
        kind = "Open Kernel Module" if open_modules else "Kernel Module"
        self.file(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX {kind} for x86_64  {version}  Release Build\nGCC version:  gcc 13",
        )
        self.file("sys/module/nvidia/version", version)

    def gpu(self, *path, number, model, device, size=128 << 30, has_file=True, **pci):
        """Add an NVIDIA GPU with so large a BAR: the PCI device, what the driver tells of it, its file."""
        bars = (16 << 20, size, 32 << 20)
        self.pci(*path, vendor=0x10DE, device=device, code=0x030200, driver="nvidia", bars=bars, **pci)
        address = path[-1]
        self.file(
            f"proc/driver/nvidia/gpus/{address}/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 60\n"
            f"GPU UUID: \t GPU-{number:08x}-aaaa-bbbb-cccc-{number:012x}\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {number}\nGPU Excluded:\t No",
        )
        if has_file:
            self.file(f"dev/nvidia{number}", "")


def config_space(*, acs_redirects: bool) -> bytes:
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x5F, 0x1D if acs_redirects else 0)
    return bytes(config)


def nic_config(*, relaxed_ordering: bool = True, read_request: int = 4096) -> bytes:
    config = bytearray(256)
    config[0x06], config[0x34] = 0x10, 0x40
    struct.pack_into("<BB", config, 0x40, 0x01, 0x60)
    struct.pack_into("<BB", config, 0x60, 0x10, 0)
    control = (read_request // 128).bit_length() - 1 << 12 | (0x10 if relaxed_ordering else 0)
    struct.pack_into("<H", config, 0x68, control)
    return bytes(config)


def _resource(bars: tuple[int, ...]) -> str:
    lines = []
    start = 0x2000_0000_0000
    for size in (*bars, *(0,) * (13 - len(bars))):
        if size:
            lines.append(f"0x{start:016x} 0x{start + size - 1:016x} 0x000000000014220c")
            start += size
        else:
            lines.append(" ".join([f"0x{0:016x}"] * 3))
    return "\n".join(lines)


def ipv4_gid(address: str) -> str:
    high, upper, lower, low = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{high << 8 | upper:04x}:{lower << 8 | low:04x}"


def link_local_gid(guid: str) -> str:
    """Return the GID that a GUID has by itself: ``fe80:0000:0000:0000:`` and it."""
    return f"fe80:0000:0000:0000:{guid}"


def roce_gids(guid: str, netdev: str, ipv4: str = "") -> tuple[tuple[str, str | None, str | None], ...]:
    addresses = [link_local_gid(guid), *([ipv4_gid(ipv4)] if ipv4 else [])]
    return tuple((address, kind, netdev) for address in addresses for kind in ("IB/RoCE v1", "RoCE v2"))

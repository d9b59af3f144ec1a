"""A host's files as values, and words for the devices that they describe."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path

LIBRARIES = "usr/lib/x86_64-linux-gnu"
SITE_PACKAGES = "usr/lib/python3/dist-packages"
UNREADABLE = None
"""Content of a file on which the kernel answers EINVAL: a directory stands for it."""

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
STATISTICS = (
    "rx_bytes", "tx_bytes", "rx_packets", "tx_packets", "rx_errors", "tx_errors", "rx_dropped", "tx_dropped",
)  # fmt: skip

CAPABILITIES_OF_A_CONTAINER = 0x00000000A80425FB
"""What Docker and containerd grant root."""
IPC_LOCK = 1 << 14
ALL_CAPABILITIES = 0x000001FFFFFFFFFF


class Tree:
    """Files by path below the root; ``write`` makes them."""

    def __init__(self, hostname: str) -> None:
        self.files: dict[str, str | bytes | None] = {}
        self.links: dict[str, str] = {}
        self.environ: dict[str, str] = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/root"}
        self.ipv4: list[tuple[str, str]] = [("lo", "127.0.0.1")]
        self._ipv6: list[str] = []
        self.file("proc/sys/kernel/hostname", hostname)
        self.netdev("lo", kind=772, mtu=65536, state="unknown", carrier=1)

    # --- files --------------------------------------------------------------------------------------------

    def file(self, path: str, content: str | bytes | int | None = "") -> None:
        """Add a file; UNREADABLE stands for one that answers EINVAL."""
        self.files[path] = str(content) if isinstance(content, int) else content

    def all(self, place: str, contents: Mapping[str, object]) -> None:
        """Add several files of one directory."""
        for name, content in contents.items():
            self.file(f"{place}/{name}", content if isinstance(content, bytes | None) else str(content))

    def link(self, path: str, target: str) -> None:
        """Add a symbolic link to a path below the root, written relative as the kernel does."""
        self.links[path] = os.path.relpath(target, os.path.dirname(path))

    def write(self, root: Path) -> None:
        """Write all of it."""
        made = set()
        for path, content in self.files.items():
            place = root / path
            if place.parent not in made:
                place.parent.mkdir(parents=True, exist_ok=True)
                made.add(place.parent)
            if content is None:
                place.mkdir()
            elif isinstance(content, bytes):
                place.write_bytes(content)
            else:
                place.write_text(f"{content}\n")
                if content.startswith("#!"):
                    place.chmod(0o755)
        for path, target in self.links.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).symlink_to(target)

    # --- the system ---------------------------------------------------------------------------------------

    def system(
        self,
        *,
        kernel: str = "6.8.0-45-generic",
        name: str = "Ubuntu 24.04.1 LTS",
        memory: int,
        cpus: str,
        nodes: Mapping[int, str] | None = None,
        modules: Iterable[str] = (),
        command_line: str = "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro",
        shm: str = "",
        hypervisor: bool = False,
        group: str = "0::/user.slice/session-1.scope",
    ) -> None:
        """Add what /proc tells of the kernel, memory (GiB) and NUMA nodes (number → CPUs)."""
        self.all("proc/sys/kernel", {"osrelease": kernel, "arch": "x86_64"})
        self.file("etc/os-release", f'PRETTY_NAME="{name}"\nNAME="{name.split()[0]}"')
        self.file("proc/meminfo", f"MemTotal:  {memory << 20} kB\nMemAvailable:  {memory << 19} kB")
        self.file("proc/cmdline", command_line)
        self.file("proc/modules", "\n".join(f"{one} 16384 0 - Live 0x0000000000000000" for one in modules))
        flags = "fpu vme sse2 avx512f" + (" hypervisor" if hypervisor else "")
        self.file("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}")
        size = shm or f"{memory << 19}k"
        self.file("proc/mounts", f"proc /proc proc rw 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,size={size} 0 0")
        self.file("proc/self/cgroup", group)
        self.file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc")
        nodes = nodes or {0: cpus}
        for node, listing in nodes.items():
            place = f"sys/devices/system/node/node{node}"
            share = (memory << 20) // len(nodes)
            distances = " ".join("10" if other == node else "21" for other in nodes)
            self.all(
                place,
                {
                    "cpulist": listing,
                    "meminfo": f"Node {node} MemTotal:  {share} kB",
                    "distance": distances,
                },
            )
        self._cpus = cpus

    def process(
        self,
        *,
        uid: int = 0,
        capabilities: int = ALL_CAPABILITIES,
        bounding: int | None = None,
        memlock: str = "unlimited",
        nofile: int = 1048576,
        stack: str = "8388608",
        seccomp: int = 0,
        label: str = "unconfined",
    ) -> None:
        """Add what /proc/self tells."""
        bounding = capabilities if bounding is None else bounding
        self.file(
            "proc/self/status",
            f"Name:\tpython3\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nCapEff:\t{capabilities:016x}\n"
            f"CapBnd:\t{bounding:016x}\nSeccomp:\t{seccomp}\nCpus_allowed_list:\t{self._cpus}",
        )
        rows = {
            "Max stack size": (stack, "unlimited"),
            "Max core file size": ("0", "unlimited"),
            "Max processes": ("514209", "514209"),
            "Max open files": (str(nofile), str(nofile)),
            "Max locked memory": (memlock, memlock),
            "Max address space": ("unlimited", "unlimited"),
        }
        lines = [f"{name:<25} {soft:<20} {hard:<20} units" for name, (soft, hard) in rows.items()]
        self.file("proc/self/limits", "\n".join(["Limit  Soft Limit  Hard Limit  Units", *lines]))
        self.file("proc/self/attr/current", label)

    def sysctl(self, name: str, value: object) -> None:
        """Add a setting by its dotted name."""
        self.file(f"proc/sys/{name.replace('.', '/')}", str(value))

    def huge_pages(self, total: int, free: int | None = None, *, kibibytes: int = 2048) -> None:
        """Add one size of huge pages."""
        self.all(
            f"sys/kernel/mm/hugepages/hugepages-{kibibytes}kB",
            {"nr_hugepages": total, "free_hugepages": total if free is None else free},
        )

    # --- PCI ----------------------------------------------------------------------------------------------

    def pci(
        self,
        *path: str,
        vendor: int,
        device: int,
        code: int,
        driver: str = "",
        node: int = -1,
        speed: str = "",
        width: int = 0,
        speed_max: str = "",
        width_max: int = 0,
        bars: tuple[int, ...] = (),
        config: bytes = b"",
        physical_function: str = "",
        group: int | None = None,
    ) -> str:
        """Add a device: ``pci("pci0000:15", "0000:15:01.0", …)``, from the root complex to itself."""
        place = "sys/devices/" + "/".join(path)
        self.link(f"sys/bus/pci/devices/{path[-1]}", place)
        self.all(
            place,
            {
                "vendor": f"0x{vendor:04x}",
                "device": f"0x{device:04x}",
                "class": f"0x{code:06x}",
                "numa_node": node,
                "resource": _resource(bars),
            },
        )
        if speed:
            self.all(
                place,
                {
                    "current_link_speed": f"{speed} GT/s PCIe",
                    "max_link_speed": f"{speed_max or speed} GT/s PCIe",
                    "current_link_width": width,
                    "max_link_width": width_max or width,
                },
            )
        if config:
            self.file(f"{place}/config", config)
        if driver:
            self.file(f"sys/bus/pci/drivers/{driver}/uevent", "")
            self.link(f"{place}/driver", f"sys/bus/pci/drivers/{driver}")
        if physical_function:
            self.link(f"{place}/physfn", physical_function)
        if group is not None:
            self.file(f"sys/kernel/iommu_groups/{group}/type", "identity")
            self.link(f"{place}/iommu_group", f"sys/kernel/iommu_groups/{group}")
        return place

    def bridge(self, *path: str, node: int = -1, acs: bool | None = None, device: int = 0x1030) -> str:
        """Add a bridge; ``acs``: whether its access control redirects, ``None``: it is not to be read."""
        return self.pci(
            *path,
            vendor=0x1000,
            device=device,
            code=0x060400,
            driver="pcieport",
            node=node,
            speed="32.0",
            width=16,
            config=b"\0" * 64 if acs is None else config_space(acs_redirects=acs),
        )

    # --- network interfaces -------------------------------------------------------------------------------

    def netdev(
        self,
        name: str,
        *,
        device: str = "",
        kind: int = 1,
        mtu: int = 1500,
        state: str = "up",
        carrier: int = 1,
        speed: int | None = None,
        ipv4: str = "",
        statistics: Mapping[str, int] | None = None,
    ) -> None:
        """Add a network interface of ``device`` (what ``pci`` returned; empty: virtual); speed in Mb/s."""
        place = f"{device or 'sys/devices/virtual'}/net/{name}"
        self.link(f"sys/class/net/{name}", place)
        self.all(place, {"type": kind, "mtu": mtu, "operstate": state})
        self.file(f"{place}/carrier", carrier if state != "down" else UNREADABLE)
        self.file(f"{place}/speed", UNREADABLE if state == "down" else -1 if speed is None else speed)
        self.all(f"{place}/statistics", dict.fromkeys(STATISTICS, 0) | dict(statistics or {}))
        if device:
            self.link(f"{place}/device", device)
            # A virtio device is a device of its own below the PCI device.
            if os.path.basename(device).startswith("virtio"):
                self.file("sys/bus/virtio/drivers/virtio_net/uevent", "")
                self.link(f"{device}/driver", "sys/bus/virtio/drivers/virtio_net")
        if ipv4:
            self.ipv4.append((name, ipv4))

    def ipv6(self, name: str, address: str) -> None:
        """Add an IPv6 address, 32 hexadecimal digits."""
        self._ipv6.append(f"{address} 02 40 20 80 {name:>8}")
        self.file("proc/net/if_inet6", "\n".join(self._ipv6))

    # --- RDMA ---------------------------------------------------------------------------------------------

    def rdma(
        self,
        name: str,
        *,
        device: str = "",
        node_type: str = "1: CA",
        hca_type: str = "",
        board: str = "",
        firmware: str = "",
        guid: str = "0000:0000:0000:0000",
        parent: str = "",
        verbs: int | None = None,
        device_file: bool = True,
    ) -> str:
        """Add an RDMA device of ``device`` (what ``pci`` returned; empty: a soft one); return its place."""
        place = f"{device or 'sys/devices/virtual'}/infiniband/{name}"
        self.link(f"sys/class/infiniband/{name}", place)
        known = {
            "node_type": node_type,
            "hca_type": hca_type,
            "board_id": board,
            "fw_ver": firmware,
            "node_guid": guid,
        }
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
        device: str,
        number: int = 1,
        *,
        state: str = "4: ACTIVE",
        physical: str = "5: LinkUp",
        rate: str,
        link_layer: str = "InfiniBand",
        lid: int = 0,
        sm_lid: int = 0,
        pkeys: tuple[int, ...] = (0xFFFF,),
        gids: tuple[tuple[str, str | None, str | None], ...] = (),
        table: int = 8,
        counters: Mapping[str, object] | None = None,
        hw_counters: Mapping[str, object] | None = None,
    ) -> None:
        """Add a port; ``gids``: address, type and interface of each entry, ``table``: entries in all."""
        place = f"{device}/ports/{number}"
        self.all(
            place,
            {
                "state": state,
                "phys_state": physical,
                "rate": rate,
                "link_layer": link_layer,
                "lid": f"0x{lid:x}",
                "sm_lid": f"0x{sm_lid:x}",
                "sm_sl": 0,
            },
        )
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

    # --- GPUs and libraries -------------------------------------------------------------------------------

    def nvidia(self, version: str = "570.133.20", *, open_modules: bool = True) -> None:
        """Add the NVIDIA driver."""
        kind = "Open Kernel Module" if open_modules else "Kernel Module"
        self.file(
            "proc/driver/nvidia/version",
            f"NVRM version: NVIDIA UNIX {kind} for x86_64  {version}  Release Build\nGCC version:  gcc 13",
        )
        self.file("sys/module/nvidia/version", version)

    def nvidia_gpu(self, number: int, address: str, model: str, *, device_file: bool = True) -> None:
        """Add what the NVIDIA driver tells of a GPU, and its device file."""
        self.file(
            f"proc/driver/nvidia/gpus/{address}/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 60\n"
            f"GPU UUID: \t GPU-{number:08x}-aaaa-bbbb-cccc-{number:012x}\n"
            f"Bus Location: \t {address}\nDevice Minor: \t {number}\nGPU Excluded:\t No",
        )
        if device_file:
            self.file(f"dev/nvidia{number}", "")

    def library(self, name: str, version: str = "", place: str = LIBRARIES) -> None:
        """Add a shared library and, where it has a version, the link that programs load."""
        real = f"{name}.{version}" if version else name
        self.file(f"{place}/{real}", b"\x7fELF")
        if version:
            self.link(f"{place}/{name}", f"{place}/{real}")

    def verbs(self, *providers: str, release: str = "50.0") -> None:
        """Add rdma-core's libraries with some of its providers."""
        self.library("libibverbs.so.1", f"14.{release}")
        self.library("librdmacm.so.1", f"3.{release}")
        for one in providers:
            self.file(f"etc/libibverbs.d/{one}.driver", f"driver {one}")
            self.library(f"lib{one}-rdmav34.so", place=f"{LIBRARIES}/libibverbs")

    def program(self, *paths: str) -> None:
        """Add executable files, as scripts."""
        for path in paths:
            self.file(path.lstrip("/"), "#!/bin/sh")

    def package(self, name: str, version: str) -> None:
        """Add the record of a Python package."""
        self.file(f"{SITE_PACKAGES}/{name.replace('-', '_')}-{version}.dist-info/METADATA", f"Name: {name}")

    def software(self, *, gpus: bool) -> None:
        """Add what a host needs that can train: Python's packages, an MPI, ssh, and NVIDIA's libraries."""
        self.program("usr/bin/python3.12", "usr/bin/mpirun", "usr/bin/ssh", "usr/sbin/sshd")
        self.link("usr/bin/python3", "usr/bin/python3.12")
        packages = {"ringleader": "0.1.0", "numpy": "2.1.3", "mpi4py": "4.1.0", "torch": "2.6.0"}
        for name, version in packages.items():
            self.package(name, version)
        self.file(
            f"{LIBRARIES}/libmpi.so.40", b"\x7fELF\0v5.0.8\0 mca_pml_ucx_component mca_mtl_ofi_component"
        )
        self.library("libucp.so.0", "0.0")
        self.file(
            "var/lib/dpkg/status", "Package: libucx0\nStatus: install ok installed\nVersion: 1.16.0-1\n"
        )
        if gpus:
            self.package("nvidia-nccl-cu12", "2.27.5")
            self.file(f"{SITE_PACKAGES}/nvidia/nccl/lib/libnccl.so.2", b"\x7fELF")
            driver = self.files["sys/module/nvidia/version"]
            for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
                self.file(f"{LIBRARIES}/{name.removesuffix('1')}{driver}", b"\x7fELF")
                self.link(f"{LIBRARIES}/{name}", f"{LIBRARIES}/{name.removesuffix('1')}{driver}")


def config_space(*, acs_redirects: bool) -> bytes:
    """Return a configuration space with an AER and an ACS capability."""
    config = bytearray(4096)
    struct.pack_into("<I", config, 0x100, 0x0001 | 1 << 16 | 0x148 << 20)
    struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x5F, 0x1D if acs_redirects else 0)
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
    """Return the GID of an IPv4 address: ``0000:…:ffff:0a00:0001``."""
    high, upper, lower, low = (int(part) for part in address.split("."))
    return f"0000:0000:0000:0000:0000:ffff:{high << 8 | upper:04x}:{lower << 8 | low:04x}"


def link_local_gid(guid: str) -> str:
    """Return the GID that a GUID has by itself: ``fe80:0000:0000:0000:`` and it."""
    return f"fe80:0000:0000:0000:{guid}"


def roce_gids(guid: str, netdev: str, ipv4: str = "") -> tuple[tuple[str, str | None, str | None], ...]:
    """Return the usual table of a RoCE port: version 1 and 2 of the link-local and of the IPv4 address."""
    addresses = [link_local_gid(guid), *([ipv4_gid(ipv4)] if ipv4 else [])]
    return tuple((address, kind, netdev) for address in addresses for kind in ("IB/RoCE v1", "RoCE v2"))

"""The operating system: kernel, modules, settings, container, virtual machine, clock; memory and NUMA nodes.

`process_limits` has what this process may use of it.
"""

from __future__ import annotations

import os
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from ringleader.fabric.facts import Clock, HugePages, NumaNode
from ringleader.fabric.readers.sysfs_files import Files, number

SYSCTLS = (
    "kernel.numa_balancing",
    "kernel.yama.ptrace_scope",
    "kernel.pid_max",
    "kernel.shmmax",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.core.somaxconn",
    "net.core.netdev_max_backlog",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.conf.all.arp_announce",
    "net.ipv4.conf.all.arp_filter",
    "vm.max_map_count",
    "vm.nr_hugepages",
    "vm.overcommit_memory",
    "vm.swappiness",
    "vm.zone_reclaim_mode",
)
"""Settings that transports depend on. In a Pod those of net. are its own network namespace's."""
BUILT_IN = (
    "efa", "erdma", "gdrdrv", "ib_core", "ib_ipoib", "ib_umad", "ib_uverbs", "mlx4_ib", "mlx5_core",
    "mlx5_ib", "nv_peer_mem", "nvidia", "nvidia_fs", "nvidia_peermem", "nvidia_uvm", "rdma_cm", "rdma_rxe",
    "rdma_ucm", "siw", "xpmem",
)  # fmt: skip
"""Modules that may be part of the kernel, which /proc/modules does not list."""
MACHINES = {
    "amazon ec2": "Amazon EC2",
    "google": "Google Compute Engine",
    "alibaba cloud": "Alibaba Cloud",
    "microsoft corporation": "Hyper-V",
    "vmware": "VMware",
    "qemu": "KVM",
    "kvm": "KVM",
    "openstack": "KVM",
    "oraclecloud": "Oracle Cloud",
    "xen": "Xen",
    "virtualbox": "VirtualBox",
    "parallels": "Parallels",
}
"""Words of the firmware's vendor and product → hypervisor or cloud."""


def read(files: Files, environ: Mapping[str, str]) -> dict[str, Any]:
    """Return all but the clock, as fields of ``HostFacts``."""
    return {
        "hostname": files.text("proc/sys/kernel/hostname")
        or ("" if files.replaced else socket.gethostname()),
        "kernel": files.text("proc/sys/kernel/osrelease"),
        "architecture": files.architecture,
        "system": _system(files),
        "container": _container(files, environ),
        "hypervisor": _hypervisor(files),
        "kernel_command_line": files.text("proc/cmdline"),
        "modules": _modules(files),
        "sysctls": {
            name: value
            for name in (*SYSCTLS, *_filters(files))
            if (value := " ".join(files.text(f"proc/sys/{_path(name)}").split()))
        },
        "iommus": files.names("sys/class/iommu"),
        "cpu_governors": _governors(files),
        "uptime": float(up[0]) if (up := re.match(r"\d{1,12}", files.text("proc/uptime"))) else None,
    }


def _filters(files: Files) -> list[str]:
    """Return the settings of reverse path filtering of the interfaces of hardware."""
    names = [one for one in files.names("sys/class/net") if files.exists(f"sys/class/net/{one}/device")]
    return [f"net.ipv4.conf.{one}.rp_filter" for one in names]


def _path(name: str) -> str:
    # The name of an interface may have dots of its own.
    start, end = "net.ipv4.conf.", ".rp_filter"
    if name.startswith(start) and name.endswith(end):
        return f"net/ipv4/conf/{name.removeprefix(start).removesuffix(end)}/rp_filter"
    return name.replace(".", "/")


def _governors(files: Files) -> tuple[str, ...]:
    place = "sys/devices/system/cpu/cpufreq"
    policies = [f"{place}/{one}" for one in files.names(place) if one.startswith("policy")]
    found = (
        " ".join(files.text(f"{one}/{name}") for name in ("scaling_driver", "scaling_governor"))
        for one in policies
    )
    return tuple(sorted({one.strip() for one in found if one.strip()}))


def _system(files: Files) -> str:
    text = files.text("etc/os-release") or files.text("usr/lib/os-release")
    found: dict[str, str] = dict(re.findall(r"^(\w+)=[\"']?(.*?)[\"']?$", text, re.MULTILINE))
    return found.get("PRETTY_NAME") or found.get("NAME", "")


def _modules(files: Files) -> tuple[str, ...]:
    loaded = {line.split()[0] for line in files.text("proc/modules").splitlines() if line.strip()}
    return tuple(sorted(loaded | {name for name in BUILT_IN if files.exists(f"sys/module/{name}")}))


def _container(files: Files, environ: Mapping[str, str]) -> str:
    groups = files.text("proc/self/cgroup")
    # A session of sshd in a Pod has no variables of Kubernetes, but the kubelet also writes /etc/hosts.
    if (
        "KUBERNETES_SERVICE_HOST" in environ
        or files.exists("var/run/secrets/kubernetes.io")
        or "kubepods" in groups
        or files.text("etc/hosts").startswith("# Kubernetes-managed hosts file")
    ):
        return "kubernetes"
    if files.exists("run/.containerenv"):
        return "podman"
    if files.exists(".dockerenv"):
        return "docker"
    if "APPTAINER_CONTAINER" in environ or "SINGULARITY_CONTAINER" in environ:
        return "apptainer"
    if re.search(r"docker|containerd|libpod|lxc", groups):
        return "container"
    # Version 2 of control groups hides the path; the root of a container is layers.
    return "container" if re.search(r"^\S+ / overlay ", files.text("proc/mounts"), re.MULTILINE) else ""


def _hypervisor(files: Files) -> str:
    """Return whose virtual machine this is; on x86 the processor itself says whether it is one."""
    xen = files.text("sys/hypervisor/type")
    flags = re.search(r"^flags\s*: (.*)$", files.text("proc/cpuinfo", limit=16384), re.MULTILINE)
    if flags and "hypervisor" not in flags[1].split() and not xen:
        return ""
    words = [files.text(f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name", "bios_vendor")]
    words.append(files.text("sys/class/dmi/id/chassis_asset_tag"))
    if ".metal" in words[1]:
        return ""
    named = " ".join(words).lower()
    found = next((name for word, name in MACHINES.items() if word in named), "")
    # A board's vendor may be a cloud whose machine is bare metal: only the flag is sure.
    if flags:
        return found or xen or "virtual machine"
    return found or xen


def read_clock(files: Files) -> Clock:
    """Return the time, and whether the kernel holds its clock for synchronized (``adjtimex``)."""
    return Clock(read_at=time.time(), synchronized=None if files.replaced else _synchronized())


def _synchronized() -> bool | None:
    import ctypes

    # struct timex, and more; its first member, modes, is 0: nothing is to be changed.
    buffer = ctypes.create_string_buffer(512)
    try:
        state: int = ctypes.CDLL(None).adjtimex(buffer)
    except (OSError, AttributeError):
        return None
    return None if state < 0 else state != 5  # TIME_ERROR: the clock is not synchronized


# --- memory -----------------------------------------------------------------------------------------------

HUGE_PAGES = "sys/kernel/mm/hugepages"
NODES = "sys/devices/system/node"
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def read_memory(files: Files) -> dict[str, Any]:
    """Return memory, huge pages and /dev/shm, as fields of ``HostFacts``."""
    info = dict(re.findall(r"^(\w+):\s+(\d{1,15}) kB$", files.text("proc/meminfo"), re.MULTILINE))
    size, free = _shared_memory(files)
    return {
        "memory": _bytes(info.get("MemTotal")),
        "memory_available": _bytes(info.get("MemAvailable")),
        "huge_pages": tuple(_huge_pages(files)),
        "shm_size": size,
        "shm_free": free,
    }


def _bytes(kibibytes: str | None) -> int | None:
    return int(kibibytes) * 1024 if kibibytes else None


def _huge_pages(files: Files) -> list[HugePages]:
    found = []
    for name in files.names(HUGE_PAGES):
        size = re.fullmatch(r"hugepages-(\d{1,12})kB", name)
        total = files.number(f"{HUGE_PAGES}/{name}/nr_hugepages")
        free = files.number(f"{HUGE_PAGES}/{name}/free_hugepages")
        if size and total is not None and free is not None:
            found.append(HugePages(size=int(size[1]) * 1024, total=total, free=free))
    return found


def _shared_memory(files: Files) -> tuple[int | None, int | None]:
    """Return size and free bytes; below another root the size that it was mounted with, and nothing free."""
    if files.replaced:
        mounted = re.search(
            r"^\S+ /dev/shm tmpfs (?:\S*,)?size=(\d{1,15})([kmg]?)\b", files.text("proc/mounts"), re.MULTILINE
        )
        return (int(mounted[1]) * UNITS[mounted[2]], None) if mounted else (None, None)
    try:
        found = os.statvfs(files.path("dev/shm"))
    except OSError as error:
        if files.exists("dev/shm"):
            files.note("dev/shm", error.strerror or str(error))
        return None, None
    return found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize


def read_nodes(files: Files) -> tuple[NumaNode, ...]:
    """Return the nodes by number; none on a kernel without NUMA."""
    numbers = (re.fullmatch(r"node(\d{1,5})", name) for name in files.names(NODES))
    return tuple(_node(files, int(one[1])) for one in numbers if one)


def _node(files: Files, node: int) -> NumaNode:
    place = f"{NODES}/node{node}"
    memory = re.search(r"MemTotal:\s+(\d{1,15}) kB", files.text(f"{place}/meminfo"))
    distances = [number(word) for word in files.text(f"{place}/distance").split()]
    return NumaNode(
        number=node,
        cpus=files.text(f"{place}/cpulist"),
        memory=int(memory[1]) * 1024 if memory else None,
        distances=tuple(one for one in distances if one is not None),
    )

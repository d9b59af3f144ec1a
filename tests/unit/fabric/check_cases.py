"""A passing and a failing host for every check, made of the hosts in ``tests.fabric_hosts``."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

from tests.fabric_hosts import facts

from ringleader.fabric import facts as of
from ringleader.fabric.byte_size import MIB
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks import HOST_CHECKS
from ringleader.fabric.checks.quantities import GIB
from ringleader.fabric.facts import HostFacts

replace = dataclasses.replace
LIBRARIES = (
    *("libibverbs.so.1", "librdmacm.so.1", "libcuda.so.1", "libnvidia-ml.so.1", "libucp.so.0"),
    "libfabric.so.1",
)
SYSCTLS = {
    "vm.overcommit_memory": "0",
    "vm.max_map_count": "65530",
    "kernel.numa_balancing": "0",
    "kernel.yama.ptrace_scope": "0",
    "net.ipv4.conf.all.rp_filter": "2",
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
}
SOFTWARE = of.Software(
    python="3.12.3",
    executable="/usr/bin/python3",
    ringleader="1.0",
    packages={"torch": "2.8.0", "nvidia-nccl-cu12": "2.27.3"},
    mpis=(
        of.MpiFacts(family="Open MPI", version="5.0.8", mpirun="/usr/bin/mpirun", built_with={"ucx": True}),
    ),
    nccl=(of.Library(name="libnccl.so.2", path="/venv/libnccl.so.2", version="2.27.3", source="wheel"),),
)


def said(*texts: str, **event: Any) -> HostFacts:
    events = tuple(of.KernelEvent(text=text, **event) for text in texts)
    return replace(hgx(), kernel_log=of.KernelLog(source="/dev/kmsg", events=events))


def worst(id: str, host: HostFacts) -> CheckResult:
    check = next(one for one in HOST_CHECKS if one.id == id)
    return min(check.results(host), key=lambda one: list(Verdict).index(one.verdict))


def _complete(name: str, *providers: str) -> HostFacts:
    """Return a host of the trees with what no tree shows: NVML's values, libraries, software, settings."""
    host = facts(name)
    memory = {"memory": 80 * GIB, "bar1_memory": 128 * GIB, "uncorrected_errors": 0, "remap_failed": False}
    power = {"power_limit": 700.0, "power_limit_default": 700.0, "throttle_reasons": 0x1, "persistence": True}
    clocks = {"clock_limit": 1980, "clock_limit_default": 1980, "mig": False, "remap_pending": False}
    links = {"nvlinks": 18, "nvlinks_active": 18}
    gpus = tuple(
        replace(one, p2p={other.index: "ok" for other in host.gpus if other != one}, **memory, **power)
        for one in host.gpus
    )
    driver = replace(host.nvidia, nvml="loaded", fabric_manager_version=host.nvidia.version)
    return replace(
        host,
        gpus=tuple(replace(one, **clocks, **links) for one in gpus),
        nvidia=driver if gpus else of.NvidiaDriver(),
        libraries=tuple(of.Library(name=one, path=f"/usr/lib/{one}", version="1.2") for one in LIBRARIES),
        verbs_providers=providers,
        software=SOFTWARE,
        sysctls=SYSCTLS,
        shm_free=host.shm_size,
        nccl_files={"/etc/nccl.conf": {"NCCL_DEBUG": "WARN"}},
    )


@functools.cache
def hgx() -> HostFacts:
    """Eight GPUs, eight ports of InfiniBand; nothing is wrong with it."""
    return _complete("hgx_ndr", "mlx5")


@functools.cache
def pod() -> HostFacts:
    """A Pod with one RoCE port, for which the network's traffic class is known, and its lossless priority."""
    host = _complete("connectx_pod", "mlx5")
    host = interface("net1", host, pfc=(3,), dscp={code: code >> 3 for code in range(64)}, ecn=(3,))
    return environment(host, NCCL_IB_TC="106")


@functools.cache
def efa() -> HostFacts:
    return _complete("efa", "efa")


def changed(kind: str, base: HostFacts | None = None, fields: Any = None, **which: Any) -> HostFacts:
    """Return a host with a change of its GPUs, devices, …, of those that have what ``which`` says."""
    host = base or hgx()
    made = tuple(
        replace(one, **fields) if all(getattr(one, name) == value for name, value in which.items()) else one
        for one in getattr(host, kind)
    )
    return replace(host, **{kind: made})


def port(base: HostFacts | None = None, **fields: Any) -> HostFacts:
    host = base or hgx()
    name = min({one.rdma_device for one in host.rdma_files} - {""})
    (ports,) = (one.ports for one in host.rdma_devices if one.name == name)
    return changed("rdma_devices", host, {"ports": (replace(ports[0], **fields), *ports[1:])}, name=name)


def read_twice(host: HostFacts, seconds: float = 30) -> HostFacts:
    """Return a host that was read before, when all counters stood where they stand."""
    ports = {
        f"{one.name} port {port.number}": port.counters for one in host.rdma_devices for port in one.ports
    }
    interfaces = {one.name: one.statistics for one in host.net_devices}
    earlier = of.Counters(read_at=host.clock.read_at - seconds, ports=ports, interfaces=interfaces)
    return replace(host, earlier=earlier)


def counters(base: HostFacts | None = None, **values: int) -> HostFacts:
    host = base or hgx()
    name = min({one.rdma_device for one in host.rdma_files} - {""})
    (ports,) = (one.ports for one in host.rdma_devices if one.name == name)
    return port(host, counters={**ports[0].counters, **values})


def environment(base: HostFacts | None = None, **values: str) -> HostFacts:
    host = base or hgx()
    return replace(host, environment={**host.environment, **values})


def gpu(**fields: Any) -> HostFacts:
    return changed("gpus", None, fields, index=0)


def nvidia(**fields: Any) -> HostFacts:
    return replace(hgx(), nvidia=replace(hgx().nvidia, **fields))


def gpus(**fields: Any) -> HostFacts:
    return changed("gpus", None, fields)


def pci(address: str, **fields: Any) -> HostFacts:
    return changed("pci_devices", None, fields, address=address)


def interface(name: str, base: HostFacts | None = None, **fields: Any) -> HostFacts:
    return changed("net_devices", base, fields, name=name)


def process(**fields: Any) -> HostFacts:
    plain = {"uid": 1000, "capabilities": 0, "bounding_capabilities": 0, **fields}
    return replace(hgx(), process=replace(hgx().process, **plain))


def limit(name: str, soft: int, hard: int) -> HostFacts:
    return process(limits={**hgx().process.limits, name: of.Limit(soft=soft, hard=hard)})


def group(**fields: Any) -> HostFacts:
    return replace(hgx(), control_group=of.ControlGroup(version=2, **fields))


def sysctl(name: str, value: str) -> HostFacts:
    return replace(hgx(), sysctls={**SYSCTLS, name: value})


def library(name: str, base: HostFacts | None = None) -> HostFacts:
    return changed("libraries", base, {"path": ""}, name=name)


def software(base: HostFacts | None = None, **fields: Any) -> HostFacts:
    return replace(base or hgx(), software=replace(SOFTWARE, **fields))


def nccl(*versions: str, base: HostFacts | None = None) -> HostFacts:
    found = tuple(of.Library(name="libnccl.so.2", path=f"/lib/{one}", version=one) for one in versions)
    return software(base, nccl=found, packages={})


def without_modules(*names: str, base: HostFacts | None = None) -> HostFacts:
    host = base or hgx()
    return replace(host, modules=tuple(one for one in host.modules if one not in names))


def pauses(count: int) -> HostFacts:
    return interface("net1", pod(), statistics={"rx_packets": 100_000, "rx_prio3_pause": count})


Case = Callable[[], HostFacts]
UPSTREAM = "0000:17:01.0"
"""The bridge right above the first GPU."""
PASSING: Mapping[str, Case] = {
    **dict.fromkeys(("gid.v2", "gid.index", "roce.mtu", "roce.netdev", "roce.address", "roce.tc"), pod),
    **dict.fromkeys(("roce.congestion", "roce.pfc", "roce.ecn", "env.device-plugin"), pod),
    "roce.pauses": lambda: read_twice(pauses(0)),
    "port.xmit-wait": lambda: read_twice(hgx()),
    **dict.fromkeys(("kernel.xid", "kernel.nic", "kernel.link", "kernel.pcie", "kernel.oom"), said),
    **dict.fromkeys(("efa.hugepages", "efa.libfabric", "efa.fork"), efa),
}
"""Checks that the sound host ``hgx`` cannot pass, since it has nothing for them to judge."""

WARNS: Mapping[str, Case] = {
    "dev.match": lambda: facts("connectx_pod"),
    "dev.rdma_cm": lambda: replace(hgx(), rdma_files=(of.DeviceFile(path="/dev/infiniband/uverbs0"),)),
    "dev.driver": lambda: replace(hgx(), rdma_devices=hgx().rdma_devices[1:]),
    "dev.soft": lambda: facts("soft_rxe"),
    "port.rate": lambda: facts("broken_ports"),
    "port.linklayer": lambda: port(link_layer="Ethernet"),
    "port.count": lambda: port(state="DOWN"),
    "port.fw": lambda: facts("broken_ports"),
    "port.pkey": lambda: facts("broken_ports"),
    "port.counters": lambda: facts("no_pma"),
    "port.saturated": lambda: facts("saturated_counters"),
    "port.errors": lambda: facts("saturated_counters"),
    "port.flaps": lambda: facts("saturated_counters"),
    "port.discards": lambda: counters(facts("no_pma"), port_xmit_discards=500),
    "port.constraints": lambda: counters(port_rcv_constraint_errors=30),
    "port.timeouts": lambda: counters(read_twice(hgx()), local_ack_timeout_err=281),
    "port.resends": lambda: counters(facts("no_pma"), packet_seq_err=1001),
    "port.receiver": lambda: counters(facts("no_pma"), out_of_buffer=5000),
    "port.icrc": lambda: counters(rx_icrc_encapsulated=100),
    "port.xmit-wait": lambda: counters(
        read_twice(hgx()), port_xmit_wait=900_000_000, port_xmit_data=123_456_789_012 + 600_000_000
    ),
    "roce.mtu": lambda: interface("net1", pod(), mtu=1500),
    "roce.address": lambda: interface("net1", pod(), addresses=("fe80::1",)),
    "roce.tc": lambda: environment(pod(), NCCL_IB_TC="0"),
    "roce.congestion": lambda: counters(pod(), roce_slow_restart=4000),
    "roce.pfc": lambda: interface("net1", pod(), pfc=tuple(range(8))),
    "roce.ecn": lambda: interface("net1", pod(), ecn=()),
    "roce.pauses": lambda: interface(
        "net1", read_twice(pauses(0)), statistics={"rx_packets": 200_000, "rx_prio3_pause": 9000}
    ),
    "limit.shm-free": lambda: replace(hgx(), shm_free=GIB),
    "limit.nofile": lambda: limit("nofile", 1024, 32768),
    "limit.stack": lambda: limit("stack", -1, -1),
    "limit.numa-calls": lambda: replace(nccl("2.25.1"), process=replace(process().process, seccomp=2)),
    "efa.hugepages": lambda: replace(efa(), huge_pages=(of.HugePages(size=2 * MIB, total=100, free=100),)),
    "cgroup.rdma": lambda: group(rdma=(of.RdmaLimit(device="mlx5_0", handles=2, objects=2000),)),
    "cgroup.memory": lambda: group(memory=hgx().shm_size),
    "cgroup.cpu": lambda: group(cpus=6.0),
    "cgroup.pids": lambda: group(processes=512),
    "gpu.given": lambda: gpus(device_file=""),
    "gpu.driver": lambda: gpu(driver="vfio-pci"),
    "gpu.nvml": lambda: replace(hgx(), nvidia=of.NvidiaDriver(nvml="Driver/library version mismatch")),
    "gpu.model": lambda: gpu(name="NVIDIA A100-SXM4-80GB"),
    "gpu.p2p": lambda: gpu(p2p={1: "chipset not supported"}),
    "gpu.throttle": lambda: gpu(throttle_reasons=0x40),
    "gpu.power-limit": lambda: gpu(power_limit=500.0),
    "gpu.clock-limit": lambda: gpus(clock_limit=1200),
    "gpu.mig": lambda: gpu(mig=True),
    "gpu.persistence": lambda: gpus(persistence=False),
    "pci.width": lambda: facts("half_width"),
    "pci.speed": lambda: facts("half_width"),
    "pci.bandwidth": lambda: facts("half_width"),
    "pci.iommu": lambda: pci(hgx().gpus[0].pci_address, iommu_type="DMA-FQ"),
    "pci.relaxed-ordering": lambda: pci("0000:18:00.0", relaxed_ordering=False),
    "pci.read-request": lambda: pci("0000:18:00.0", max_read_request=512),
    "pci.bar1": lambda: gpu(bar1_memory=256 * MIB),
    "pci.numa": lambda: pci(hgx().gpus[0].pci_address, numa_node=None),
    "lib.rdmacm": lambda: library("librdmacm.so.1"),
    "lib.nvml": lambda: library("libnvidia-ml.so.1"),
    "lib.nccl-duplicates": lambda: nccl("2.27.3", "2.18.5"),
    "mpi.ucx": lambda: software(mpis=(replace(SOFTWARE.mpis[0], built_with={"ucx": False, "ofi": False}),)),
    "lib.ucx": lambda: library("libucp.so.0"),
    "nccl.conf": lambda: environment(NCCL_DEBUG="INFO"),
    "nccl.debugging": lambda: environment(NCCL_P2P_DISABLE="1"),
    "nccl.gdr-level": lambda: environment(NCCL_NET_GDR_LEVEL="LOC"),
    "nccl.sockets": lambda: environment(NCCL_SOCKET_NTHREADS="16", NCCL_NSOCKS_PERTHREAD="16"),
    "nccl.timeout": lambda: environment(NCCL_IB_TIMEOUT="10"),
    "nccl.log": lambda: environment(NCCL_DEBUG="TRACE"),
    "env.ucx-cuda": lambda: environment(UCX_TLS="rc,sm"),
    "env.ucx-rdma": lambda: environment(UCX_TLS="tcp,cuda"),
    "env.ucx-log": lambda: environment(UCX_LOG_LEVEL="trace"),
    "env.ompi-pml": lambda: environment(OMPI_MCA_pml="ob1"),
    "env.fi-provider": lambda: environment(FI_PROVIDER="tcp"),
    "efa.fork": lambda: replace(efa(), kernel="5.10.230-223.amzn2"),
    "env.cuda-blocking": lambda: environment(CUDA_LAUNCH_BLOCKING="1"),
    "env.nvidia-devices": lambda: environment(NVIDIA_VISIBLE_DEVICES="void"),
    "env.preload": lambda: environment(LD_PRELOAD="/opt/libnccl.so.2"),
    "net.up": lambda: replace(hgx(), net_devices=()),
    "net.down": lambda: interface("ibp0s0", up=False),
    "net.mtu": lambda: interface("ibp0s0", mtu=2044),
    "net.errors": lambda: interface(
        "eno1", statistics={"rx_errors": 900, "rx_packets": 1000, "tx_packets": 0}
    ),
    "net.drops": lambda: interface("eno1", statistics={"rx_dropped": 900, "rx_packets": 1000}),
    "net.speed": lambda: interface("ibp0s0", speed=100e9),
    "net.fast": lambda: interface("eth0", facts("cloud_vm"), speed=1e9, is_virtual=False),
    "net.rp-filter": lambda: sysctl("net.ipv4.conf.all.rp_filter", "1"),
    "net.buffers": lambda: sysctl("net.ipv4.tcp_rmem", "4096 87380 212992"),
    "host.clock": lambda: replace(hgx(), clock=replace(hgx().clock, synchronized=False)),
    "host.uvm-module": lambda: without_modules("nvidia_uvm"),
    "host.overcommit": lambda: sysctl("vm.overcommit_memory", "2"),
    "host.maps": lambda: sysctl("vm.max_map_count", "4096"),
    "host.numa-balancing": lambda: sysctl("kernel.numa_balancing", "1"),
    "host.numa-memory": lambda: changed("numa_nodes", None, {"memory": GIB}, number=0),
    "host.ptrace": lambda: replace(sysctl("kernel.yama.ptrace_scope", "2"), process=process().process),
    "host.sysfs": lambda: replace(
        hgx(), unreadable=(of.Unreadable(path="/sys/class/infiniband", reason="Permission denied"),)
    ),
    "kernel.oom": lambda: said("Killed process 7 (python3) total-vm:1kB", kind="oom", number=7),
    "host.governor": lambda: replace(hgx(), cpu_governors=("acpi-cpufreq powersave",)),
    "host.irq-affinity": lambda: pci("0000:18:00.0", irq_cpus=("0", "0", "0")),
    "host.kernel": lambda: replace(hgx(), kernel="3.10.0-1160.el7"),
    "host.processors": lambda: process(cpus=8),
    "host.virtual": lambda: replace(
        hgx(),
        hypervisor="KVM",
        pci_devices=tuple(replace(one, ancestors=("pci0000:00",)) for one in hgx().pci_devices),
    ),
}
FAILS: Mapping[str, Case] = {
    "dev.sysfs": lambda: replace(hgx(), rdma_devices=()),
    "dev.chardev": lambda: replace(hgx(), rdma_files=()),
    "dev.guid": lambda: changed("rdma_devices", None, {"node_guid": "0000:0000:0000:0000"}, name="mlx5_0"),
    "port.state": lambda: facts("broken_ports"),
    "port.phys": lambda: facts("broken_ports"),
    "port.sm": lambda: port(sm_lid=0),
    "port.lid": lambda: port(lid=0),
    "gid.v2": lambda: port(pod(), gids=()),
    "gid.index": lambda: environment(pod(), NCCL_IB_GID_INDEX="0"),
    "roce.netdev": lambda: interface("net1", pod(), up=False),
    "limit.memlock": lambda: limit("memlock", 8 * MIB, 8 * MIB),
    "limit.shm": lambda: facts("connectx_pod"),
    "limit.nproc": lambda: limit("nproc", 200, 200),
    "gpu.peermem": lambda: without_modules("nvidia_peermem", base=nvidia(open_modules=False)),
    "gpu.nvlink": lambda: gpu(nvlinks_active=17),
    "gpu.ecc": lambda: gpu(uncorrected_errors=1),
    "gpu.remap": lambda: gpu(remap_pending=True),
    "gpu.fabric-version": lambda: nvidia(fabric_manager_version="570.124.06"),
    "gpu.fabric-manager": lambda: nvidia(fabric_manager="not running"),
    "gpu.topo": lambda: replace(hgx(), rdma_devices=hgx().rdma_devices[:1]),
    "pci.acs": lambda: pci(UPSTREAM, acs_redirects=True),
    "lib.ibverbs": lambda: library("libibverbs.so.1"),
    "lib.provider": lambda: replace(hgx(), verbs_providers=("rxe",)),
    "lib.cuda": lambda: library("libcuda.so.1"),
    "lib.nccl-version": lambda: replace(nccl("2.18.5", base=pod()), gpus=hgx().gpus),
    "lib.cuda-driver": lambda: nvidia(version="470.256.02"),
    "efa.libfabric": lambda: library("libfabric.so.1", efa()),
    "nccl.ib-disable": lambda: environment(NCCL_IB_DISABLE="1"),
    "nccl.contradiction": lambda: environment(NCCL_IB_DISABLE="1", NCCL_NET="IB"),
    "nccl.hca": lambda: environment(NCCL_IB_HCA="mlx4_0"),
    "nccl.ifname": lambda: environment(NCCL_SOCKET_IFNAME="bond0"),
    "env.ucx-devices": lambda: environment(UCX_NET_DEVICES="mlx5_9:1"),
    "env.ompi-openib": lambda: environment(OMPI_MCA_btl="openib,self"),
    "env.mpi-interfaces": lambda: environment(OMPI_MCA_btl_tcp_if_include="eth7"),
    "env.gloo-interface": lambda: environment(GLOO_SOCKET_IFNAME="eth7"),
    "env.cuda-devices": lambda: environment(CUDA_VISIBLE_DEVICES="0,8"),
    "env.device-plugin": lambda: environment(pod(), PCIDEVICE_NVIDIA_COM_RDMA_VF="0000:3b:01.7"),
    "net.address": lambda: replace(hgx(), net_devices=(replace(hgx().net_devices[0], addresses=()),)),
    "host.rdma-modules": lambda: without_modules("ib_uverbs"),
    "host.memory": lambda: replace(hgx(), memory_available=100 * MIB),
    "kernel.xid": lambda: said(
        "NVRM: Xid (PCI:0000:1a:00): 48, pid=7, DBE (double bit error)", kind="xid", number=48
    ),
    "kernel.nic": lambda: said(
        "mlx5_core 0000:18:00.0: poll_health: device's health compromised", kind="nic"
    ),
    "kernel.link": lambda: said("Link down", kind="link", device="0000:18:00.0", count=5),
    "kernel.pcie": lambda: said("severity=Uncorrectable (Fatal)", kind="pcie", device="0000:18:00.0"),
}
FAILING: Mapping[str, tuple[str, Case]] = {
    **{id: ("warn", case) for id, case in WARNS.items()},
    **{id: ("fail", case) for id, case in FAILS.items()},
}
"""Each check → the verdict it comes to, and the host that is not well."""

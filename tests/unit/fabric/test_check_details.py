"""Checks whose verdict hangs on more than one thing, case by case."""

import dataclasses
from typing import Any

from tests.fabric_hosts import facts
from tests.unit.fabric.check_cases import (
    counters,
    efa,
    environment,
    gpu,
    gpus,
    group,
    hgx,
    interface,
    limit,
    nccl,
    nvidia,
    pci,
    pod,
    port,
    process,
    sysctl,
    worst,
)

from ringleader.fabric.byte_size import MIB
from ringleader.fabric.checks import judge_host
from ringleader.fabric.checks.rdma import SATURATED
from ringleader.fabric.facts import UNLIMITED, DeviceFile, Gid, HostFacts, Limit
from ringleader.fabric.nccl_name_list import matches
from ringleader.fabric.port_selection import select_ports
from ringleader.fabric.topology.gpudirect import iommu_translates

replace = dataclasses.replace


def check(*cases: tuple[str, str, str, HostFacts]) -> None:
    for id, verdict, words, host in cases:
        result = worst(id, host)
        assert result.verdict == verdict and words in f"{result.seen} → {result.remedy}", (words, result)


def test_gid_index() -> None:
    for version, value, verdict, words in (
        ("2.27.3", None, "pass", "NCCL 2.27.3 chooses"),
        ("2.20.5", None, "fail", "takes index 0"),
        ("2.20.5", None, "fail", "set NCCL_IB_GID_INDEX=3, or use NCCL 2.21 or newer"),
        ("2.20.5", "3", "pass", "index 3"),
        ("2.20.5", "0", "fail", "IB/RoCE v1"),
        ("2.20.5", "1", "fail", "fe80"),
        ("2.27.3", "9", "fail", "empty"),
        ("2.27.3", "-1", "pass", "chooses"),
        ("2.27.3", "three", "fail", "three"),
        ("", None, "skip", "no NCCL"),
    ):
        host = nccl(*filter(None, [version]), base=pod())
        check(("gid.index", verdict, words, environment(host, NCCL_IB_GID_INDEX=value) if value else host))


FILE = {"/etc/nccl.conf": {"NCCL_IB_GID_INDEX": "3", "NCCL_IB_DISABLE": "1"}}


def test_nccls_file_counts_and_the_environment_wins() -> None:
    old = replace(nccl("2.18.5", base=pod()), gpus=hgx().gpus)
    check(("gid.index", "pass", "", replace(old, nccl_files=FILE)))
    check(
        ("lib.nccl-version", "fail", "", old), ("lib.nccl-version", "pass", "", replace(old, nccl_files=FILE))
    )
    host = replace(hgx(), nccl_files=FILE)
    check(("nccl.ib-disable", "fail", "", host))
    check(("nccl.ib-disable", "pass", "", environment(host, NCCL_IB_DISABLE="0")))


def test_why_there_is_no_gid() -> None:
    v1 = Gid(index=0, address="fe80::1", kind="IB/RoCE v1", netdev="net1")
    for gids, seen in (
        ((), "its GID table is empty"),
        ((Gid(index=0, address="fe80::1"),), "none of its GIDs has an interface in this network namespace"),
        ((v1,), "RoCE v1 alone, which is not routed"),
        ((replace(v1, kind="RoCE v2"),), "link-local RoCE v2 alone"),
    ):
        check(("gid.v2", "fail", seen, port(pod(), gids=gids)))


def test_an_address_of_roce_v1_or_of_ipv6_alone_is_a_warning() -> None:
    gid = Gid(index=0, address=f"{'0000:' * 5}ffff:c0a8:0114", kind="IB/RoCE v1", netdev="net1")
    host = port(pod(), gids=(gid,))
    six = Gid(index=2, address="2001:0db8:0000:0000:0000:0000:0000:0001", kind="RoCE v2", netdev="net1")
    check(("gid.v2", "warn", "", host), ("gid.v2", "warn", "AF_INET6", port(pod(), gids=(six,))))
    assert select_ports(host).ports


IPC_LOCK = 1 << 14


def test_locked_memory() -> None:
    def locked(soft: int, hard: int, container: str = "kubernetes", **changes: Any) -> HostFacts:
        host = process(limits={"memlock": Limit(soft=soft, hard=hard)}, **changes)
        return replace(host, container=container)

    mib = 8 * MIB
    check(
        ("limit.memlock", "pass", "", locked(UNLIMITED, UNLIMITED)),
        ("limit.memlock", "pass", "", locked(mib, mib, capabilities=IPC_LOCK)),
        ("limit.memlock", "warn", "limits.conf", locked(64 * MIB, 64 * MIB)),
        ("limit.memlock", "fail", "limits.conf", locked(mib, mib)),
        ("limit.memlock", "fail", "ulimit -l unlimited", locked(mib, UNLIMITED)),
    )
    bounded = locked(mib, mib, bounding_capabilities=IPC_LOCK)
    check(("limit.memlock", "fail", "no effect for a user other than root", bounded))
    assert "root" not in worst("limit.memlock", replace(bounded, container="")).remedy


def test_limits_of_a_process() -> None:
    for soft, hard, verdict in ((1024, 1048576, "pass"), (1024, 32768, "warn"), (1000, 1000, "fail")):
        check(("limit.nofile", verdict, "", limit("nofile", soft, hard)))
    check(("limit.nofile", "pass", "", limit("nofile", UNLIMITED, UNLIMITED)))
    for hard, verdict in ((8192, "pass"), (2048, "warn")):
        check(("limit.nofile", verdict, "", replace(limit("nofile", 1024, hard), gpus=(), rdma_devices=())))
    # Nobody raises the soft limit of threads, unlike that of files.
    for soft, hard, verdict in ((64, UNLIMITED, "warn"), (1024, 2048, "warn"), (200, 200, "fail")):
        check(("limit.nproc", verdict, "", limit("nproc", soft, hard)))
    laptop, cloud = facts("laptop"), facts("efa")
    check(
        ("limit.nproc", "pass", "", limit("nproc", 4096, 4096)),
        ("limit.shm", "warn", "", replace(laptop, shm_size=64 * MIB)),
        ("limit.shm", "fail", "", replace(laptop, shm_size=8 * MIB)),
        ("limit.shm", "fail", "", replace(laptop, shm_size=None)),
        ("limit.shm", "fail", "", replace(cloud, shm_size=64 * MIB)),
    )


def test_numa_calls_of_some_versions_of_nccl() -> None:
    for version, seccomp, verdict in (
        ("2.23.4", 2, "pass"),
        ("2.24.3", 2, "warn"),
        ("2.26.4", 2, "warn"),
        ("2.26.5", 2, "pass"),
        ("2.25.1", 0, "pass"),
    ):
        host = replace(nccl(version), process=process(seccomp=seccomp).process)
        check(("limit.numa-calls", verdict, "", host))


def test_the_host() -> None:
    late = replace(hgx(), clock=replace(hgx().clock, synchronized=False))
    small, far = group(memory=512 * MIB), pci("0000:18:00.0", irq_cpus=("56", "57"), numa_node=0)
    check(
        ("host.kernel", "skip", "", replace(hgx(), kernel="nvidia")),
        ("host.kernel", "warn", "", replace(hgx(), kernel="3.10.0")),
        ("host.clock", "warn", "", late),
        ("host.clock", "skip", "hosts.clock", replace(late, rdma_devices=())),  # only beside RDMA
        ("host.memory", "fail", "512 MiB of 512 MiB available", small),
        ("host.memory", "pass", "", group(memory=1 << 40)),
        ("host.irq-affinity", "warn", "NUMA node 0", far),
        ("host.irq-affinity", "pass", "", pci("0000:18:00.0", irq_cpus=("0-99999999999",))),
        ("host.rdma-modules", "pass", "", efa()),
    )
    for governors, verdict in (
        (("intel_pstate powersave",), "pass"),
        (("acpi-cpufreq schedutil",), "pass"),
        (("acpi-cpufreq performance", "acpi-cpufreq schedutil"), "warn"),
        (("cppc_cpufreq userspace",), "warn"),
        ((), "skip"),
    ):
        check(("host.governor", verdict, "", replace(hgx(), cpu_governors=governors)))
    for every, own, verdict, words in (
        ("0", "1", "warn", "1 (strict) on eno1"),
        ("2", "1", "pass", ""),
        ("0", "2", "pass", ""),
        ("1", "0", "warn", ""),
    ):
        host = sysctl("net.ipv4.conf.all.rp_filter", every)
        host = replace(host, sysctls={**host.sysctls, "net.ipv4.conf.eno1.rp_filter": own})
        check(("net.rp-filter", verdict, words, host))


def test_gpus_and_their_paths() -> None:
    def peermem(modules: tuple[str, ...], open_modules: bool | None, kernel: str) -> HostFacts:
        return replace(nvidia(open_modules=open_modules), modules=modules, kernel=kernel)

    virtual = replace(hgx(), hypervisor="KVM", rdma_devices=hgx().rdma_devices[:1])
    cards = replace(gpus(nvlinks_active=6, name="NVIDIA A40"), nvidia=nvidia(fabric_manager="").nvidia)
    loose = replace(cards, gpus=tuple(replace(one, nvlinks_active=0) for one in cards.gpus))
    root = next(one for one in hgx().pci_devices if one.address == "0000:15:01.0")
    check(
        ("gpu.peermem", "pass", "", peermem(("nvidia_peermem",), False, "5.4.0")),
        ("gpu.peermem", "pass", "", peermem((), True, "5.15.0")),
        ("gpu.peermem", "fail", "", peermem((), True, "5.4.0")),
        ("gpu.peermem", "fail", "", peermem((), False, "6.8.0")),
        ("gpu.peermem", "skip", "", peermem((), None, "6.8.0")),
        ("gpu.topo", "warn", "", virtual),
        ("pci.acs", "skip", "", virtual),
        ("pci.iommu", "skip", "", virtual),
        ("pci.speed", "pass", "", pci(hgx().gpus[0].pci_address, link_speed=2.5)),  # an idle GPU
        # Of cards without switches the links count that peers have.
        ("gpu.nvlink", "pass", "", cards),
        ("gpu.nvlink", "skip", "", loose),
        ("gpu.remap", "fail", "replace", gpu(remap_failed=True)),
        # A root port that redirects is on no path behind a switch.
        ("pci.acs", "pass", "", pci(root.address, acs_redirects=True)),
    )
    assert len(root.ancestors) == 1


def test_the_traffic_class_of_roce() -> None:
    for value, fields, verdict in (
        ("106", {}, "pass"),
        ("", {}, "warn"),
        ("64", {}, "warn"),
        ("64", {"dscp": {}}, "pass"),
        ("64", {"pfc": None}, "pass"),
        ("64", {"pfc": ()}, "pass"),
        ("300", {}, "fail"),
    ):
        check(("roce.tc", verdict, "", interface("net1", environment(pod(), NCCL_IB_TC=value), **fields)))
    for value, verdict in (("rc,tcp", "fail"), ("", "skip"), ("1", "pass")):  # of software
        devices = tuple(replace(one, pci_address="", traffic_class=None) for one in pod().rdma_devices)
        host = replace(environment(pod(), NCCL_IB_TC=value), rdma_devices=devices, net_devices=())
        check(("roce.tc", verdict, "", host))
    devices = tuple(replace(one, traffic_class=106) for one in pod().rdma_devices)
    check(("roce.tc", "pass", "", replace(environment(pod(), NCCL_IB_TC=""), rdma_devices=devices)))


def test_one_judge_says_whether_the_iommu_translates() -> None:
    for types, command_line, translates in (
        ("identity", "intel_iommu=on", False),
        ("DMA-FQ", "iommu=pt", True),
        ("", "iommu.passthrough=1", False),
        ("", "iommu=pt", False),
        ("", "intel_iommu=on", True),
    ):
        devices = tuple(replace(one, iommu_type=types) for one in hgx().pci_devices)
        host = replace(hgx(), pci_devices=devices, iommus=("dmar0",), kernel_command_line=command_line)
        assert iommu_translates(host) is translates
        assert (worst("pci.iommu", host).verdict == "warn") is translates


def test_lists_of_devices() -> None:
    for names, lost, chosen in (
        ("mlx5_1", [], ["mlx5_1", "mlx5_10"]),
        ("=mlx5_1", [], ["mlx5_1"]),
        ("mlx5_1:1,mlx5_2:1", [], ["mlx5_1", "mlx5_2", "mlx5_10"]),
        ("^mlx5_1", [], ["mlx5_0", "mlx5_2"]),
        ("mlx4_0,mlx5_2", ["mlx4_0"], ["mlx5_2"]),
        ("", [], []),
    ):
        assert matches(names, ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10"]) == (lost, chosen)


def test_variables() -> None:
    for id, variables, verdict in (
        ("env.ucx-rdma", {"UCX_TLS": "rc_x,cuda_copy"}, "pass"),
        ("env.ucx-rdma", {"UCX_TLS": "^rc,dc,ud"}, "warn"),
        ("env.ucx-cuda", {"UCX_TLS": "^cuda_copy"}, "warn"),
        ("env.ucx-devices", {"UCX_NET_DEVICES": "mlx5_0:1,eth9"}, "warn"),
        ("env.ompi-openib", {"OMPI_MCA_btl": "^openib"}, "pass"),
        ("env.mpi-interfaces", {"OMPI_MCA_btl_tcp_if_include": "10.1.0.0/16,eno1"}, "pass"),
        ("env.gloo-interface", {"GLOO_SOCKET_IFNAME": "eno1"}, "pass"),
        ("env.gloo-interface", {"GLOO_SOCKET_IFNAME": "eno"}, "fail"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "0,0"}, "fail"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": ""}, "warn"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "GPU-ffff"}, "fail"),
        ("nccl.ib-disable", {"NCCL_NET": "Socket"}, "fail"),
        ("nccl.contradiction", {"NCCL_IB_HCA": "mlx5", "NCCL_IB_DISABLE": "1"}, "warn"),
        ("nccl.hca", {"NCCL_IB_HCA": "^mlx5"}, "fail"),
        ("nccl.hca", {"NCCL_IB_HCA": "mlx5:1"}, "pass"),
        ("nccl.hca", {"NCCL_IB_HCA": "mlx5_0"}, "warn"),
        ("nccl.ifname", {"NCCL_SOCKET_IFNAME": "^docker0,lo"}, "pass"),
        ("nccl.sockets", {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "16"}, "pass"),
        ("nccl.sockets", {"NCCL_SOCKET_NTHREADS": "many"}, "fail"),
        ("nccl.timeout", {"NCCL_IB_TIMEOUT": "40"}, "fail"),
        ("nccl.timeout", {"NCCL_IB_TIMEOUT": "²"}, "fail"),
        ("nccl.gdr-level", {"NCCL_NET_GDR_LEVEL": "SYS"}, "pass"),
        (
            "nccl.debugging",
            {"NCCL_ALGO": "Ring,Tree", "NCCL_NVLS_ENABLE": "0", "NCCL_SHM_DISABLE": "0"},
            "pass",
        ),
        ("nccl.log", {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}, "warn"),
    ):
        assert worst(id, environment(**variables)).verdict == verdict


def test_the_second_connector_of_a_card_may_be_without_a_cable() -> None:
    """ConnectX cards have an RDMA device for each connector, as two functions of one PCI device."""
    first = hgx().rdma_devices[0]
    (other,) = (replace(one, number=1, state="DOWN", physical_state="Disabled") for one in first.ports)
    place = first.pci_address[:-1] + "1"
    second = replace(first, name="mlx5_8", node_guid="1:2:3:4", pci_address=place, ports=(other,))
    file = DeviceFile(path="/dev/infiniband/uverbs8", rdma_device="mlx5_8")
    host = replace(hgx(), rdma_devices=(*hgx().rdma_devices, second), rdma_files=(*hgx().rdma_files, file))
    for id in ("port.state", "port.phys"):
        assert worst(id, host).verdict == "warn"


def test_a_counter_at_its_largest_value_counts_no_further() -> None:
    for name, most in SATURATED.items():
        check(("port.saturated", "warn", "", counters(**{name: most})))
        check(("port.saturated", "pass", "", counters(**{name: most - 1})))


def test_state_of_a_port() -> None:
    for fields, verdict, words in (
        ({"state": "INIT"}, "fail", "opensm"),
        ({"state": "INIT", "link_layer": "Ethernet"}, "fail", "cable"),
        ({"state": "ARMED"}, "warn", "subnet manager"),
        ({"state": "DOWN"}, "fail", "cable"),
        ({"state": ""}, "skip", ""),
        ({"state": "ACTIVE_DEFER"}, "pass", ""),
    ):
        check(("port.state", verdict, words, port(**fields)))
    assert worst("port.state", port(state="DOWN")).subject == "mlx5_0 port 1"
    check(("nccl.hca", "fail", "none is ACTIVE", environment(port(state="DOWN"), NCCL_IB_HCA="=mlx5_0")))


def test_devices_and_their_files() -> None:
    file = DeviceFile(path="/dev/infiniband/uverbs0", rdma_device="mlx5_0", error="Operation not permitted")
    closed = replace(hgx(), rdma_files=(file,))
    check(
        ("dev.chardev", "fail", "device control group", closed),
        ("dev.sysfs", "warn", "modprobe", replace(hgx(), rdma_devices=(), rdma_files=(), verbs_devices={})),
        ("dev.rdma_cm", "pass", "", efa()),
    )
    assert worst("dev.chardev", closed).subject == "/dev/infiniband/uverbs0"


def test_gpus_that_this_container_was_not_given_are_not_judged() -> None:
    some = tuple(replace(one, device_file="") if one.index > 1 else one for one in hgx().gpus)
    host = replace(environment(CUDA_VISIBLE_DEVICES="0,2"), gpus=some, container="docker")
    assert worst("env.cuda-devices", host).verdict == "fail"
    assert worst("port.count", host).seen == "8 active for 2 GPUs"
    none = replace(host, gpus=tuple(replace(one, device_file="") for one in some))
    ids = [one.id for one in judge_host(none)]
    assert "gpu.given" in ids and "nvidia" in ids and "lib.cuda" not in ids

"""Checks whose verdict hangs on more than one thing, case by case."""

import dataclasses
from typing import Any

import pytest
from tests.fabric_hosts import facts
from tests.unit.fabric.check_cases import efa, environment, gpu, hgx, limit, nccl, pod, port, process, worst

from ringleader.fabric.byte_size import MIB
from ringleader.fabric.checks import judge_host
from ringleader.fabric.checks.rdma import SATURATED
from ringleader.fabric.facts import UNLIMITED, DeviceFile, Gid, Limit
from ringleader.fabric.nccl_name_list import matches
from ringleader.fabric.port_selection import select_ports
from ringleader.fabric.settings.recommended_settings import recommend

replace = dataclasses.replace


@pytest.mark.parametrize(
    ("version", "value", "verdict", "word"),
    [
        ("2.27.3", None, "pass", "NCCL 2.27.3 chooses"),
        ("2.21", None, "pass", "chooses"),
        ("2.20.5", None, "fail", "takes index 0"),
        ("2.20.5", "3", "pass", "index 3"),
        ("2.20.5", "0", "fail", "IB/RoCE v1"),
        ("2.20.5", "1", "fail", "fe80"),
        ("2.27.3", "3", "pass", "index 3"),
        ("2.27.3", "9", "fail", "empty"),
        ("2.27.3", "-1", "pass", "chooses"),
        ("2.27.3", "three", "fail", "three"),
        ("", None, "skip", "no NCCL"),
        ("", "3", "pass", "index 3"),
    ],
)
def test_gid_index(version: str, value: str | None, verdict: str, word: str) -> None:
    host = nccl(*filter(None, [version]), base=pod())
    result = worst("gid.index", environment(host, NCCL_IB_GID_INDEX=value) if value else host)
    assert result.verdict == verdict and word in result.seen


def test_gid_index_of_old_nccl_is_computed_for_the_reader() -> None:
    result = worst("gid.index", nccl("2.18.5", base=pod()))
    assert result.remedy == "set NCCL_IB_GID_INDEX=3, or use NCCL 2.21 or newer"


def test_gid_index_in_nccl_conf_counts() -> None:
    host = replace(nccl("2.18.5", base=pod()), nccl_files={"/etc/nccl.conf": {"NCCL_IB_GID_INDEX": "3"}})
    assert worst("gid.index", host).verdict == "pass"


@pytest.mark.parametrize(
    ("gids", "seen"),
    [
        ((), "its GID table is empty"),
        ((Gid(index=0, address="fe80::1"),), "none of its GIDs has an interface in this network namespace"),
        (
            (Gid(index=0, address="fe80::1", kind="IB/RoCE v1", netdev="net1"),),
            "RoCE v1 alone, which is not routed",
        ),
        ((Gid(index=1, address="fe80::1", kind="RoCE v2", netdev="net1"),), "link-local RoCE v2 alone"),
    ],
)
def test_why_there_is_no_gid(gids: tuple[Gid, ...], seen: str) -> None:
    result = worst("gid.v2", port(pod(), gids=gids))
    assert (result.verdict, result.seen) == ("fail", seen)


def test_an_address_of_roce_v1_alone_is_a_warning_for_it_works_in_one_subnet() -> None:
    gid = Gid(index=0, address=f"{'0000:' * 5}ffff:c0a8:0114", kind="IB/RoCE v1", netdev="net1")
    host = port(pod(), gids=(gid,))
    assert worst("gid.v2", host).verdict == "warn" and select_ports(host).ports


def test_settings_do_not_steer_to_a_port_without_an_address() -> None:
    gids = next(one for one in pod().rdma_devices if one.name == "mlx5_4").ports[0].gids
    host = port(pod(), gids=tuple(one for one in gids if one.address.startswith("fe80")))
    assert worst("gid.v2", host).verdict == "fail"
    found = recommend(host)
    assert not {"UCX_NET_DEVICES", "NCCL_IB_HCA"} & set(found.variables)
    assert "mlx5_4:1: its addresses for RoCE are all link-local" in found.not_set[-1].reason


def test_ipv6_alone_is_a_warning_with_its_own_remedy() -> None:
    gid = Gid(index=2, address="2001:0db8:0000:0000:0000:0000:0000:0001", kind="RoCE v2", netdev="net1")
    result = worst("gid.v2", port(pod(), gids=(gid,)))
    assert result.verdict == "warn" and "AF_INET6" in result.remedy


IPC_LOCK = 1 << 14


@pytest.mark.parametrize(
    ("soft", "hard", "changes", "verdict", "word"),
    [
        (UNLIMITED, UNLIMITED, {}, "pass", ""),
        (8 * MIB, 8 * MIB, {"capabilities": IPC_LOCK}, "pass", ""),
        (64 * MIB, 64 * MIB, {}, "warn", "limits.conf"),
        (8 * MIB, 8 * MIB, {}, "fail", "limits.conf"),
        (8 * MIB, UNLIMITED, {}, "fail", "ulimit -l unlimited"),
        (
            8 * MIB,
            8 * MIB,
            {"bounding_capabilities": IPC_LOCK},
            "fail",
            "no effect for a user other than root",
        ),
    ],
)
def test_locked_memory(soft: int, hard: int, changes: dict[str, Any], verdict: str, word: str) -> None:
    limits = {"memlock": Limit(soft=soft, hard=hard)}
    host = replace(process(limits=limits, **changes), container="kubernetes")
    result = worst("limit.memlock", host)
    assert result.verdict == verdict and word in result.remedy


def test_bounding_capabilities_of_a_host_without_containers_say_nothing() -> None:
    host = process(limits={"memlock": Limit(soft=8 * MIB, hard=8 * MIB)}, bounding_capabilities=IPC_LOCK)
    assert "root" not in worst("limit.memlock", host).remedy


@pytest.mark.parametrize(
    ("soft", "hard", "verdict"),
    [
        (1048576, 1048576, "pass"),
        (1024, 1048576, "pass"),
        (1024, 32768, "warn"),
        (1000, 1000, "fail"),
        (UNLIMITED, UNLIMITED, "pass"),
    ],
)
def test_open_files(soft: int, hard: int, verdict: str) -> None:
    assert worst("limit.nofile", limit("nofile", soft, hard)).verdict == verdict


@pytest.mark.parametrize(
    ("soft", "hard", "verdict"),
    [(64, UNLIMITED, "warn"), (1024, 2048, "warn"), (200, 200, "fail"), (4096, 4096, "pass")],
)
def test_threads_are_judged_by_the_soft_limit(soft: int, hard: int, verdict: str) -> None:
    """Nobody raises it, unlike that of files."""
    assert worst("limit.nproc", limit("nproc", soft, hard)).verdict == verdict


@pytest.mark.parametrize(("kernel", "verdict"), [("nvidia", "skip"), ("3.10.0", "warn"), ("6.8.0", "pass")])
def test_a_kernel_whose_release_is_no_number_is_not_known(kernel: str, verdict: str) -> None:
    assert worst("host.kernel", replace(hgx(), kernel=kernel)).verdict == verdict


@pytest.mark.parametrize(
    ("name", "size", "verdict"),
    [
        ("laptop", 64 * MIB, "warn"),
        ("laptop", 8 * MIB, "fail"),
        ("laptop", None, "fail"),
        ("hgx_ndr", 64 * MIB, "fail"),
        ("efa", 64 * MIB, "fail"),
    ],
)
def test_shared_memory(name: str, size: int | None, verdict: str) -> None:
    assert worst("limit.shm", replace(facts(name), shm_size=size)).verdict == verdict


@pytest.mark.parametrize(("hard", "verdict"), [(65536, "pass"), (8192, "pass"), (2048, "warn")])
def test_open_files_without_gpus_and_rdma(hard: int, verdict: str) -> None:
    host = replace(limit("nofile", 1024, hard), gpus=(), rdma_devices=())
    assert worst("limit.nofile", host).verdict == verdict


def test_a_clock_is_judged_alone_only_beside_rdma() -> None:
    host = replace(hgx(), clock=replace(hgx().clock, synchronized=False))
    assert worst("host.clock", host).verdict == "warn"
    alone = worst("host.clock", replace(host, rdma_devices=()))
    assert alone.verdict == "skip" and "hosts.clock" in alone.seen


@pytest.mark.parametrize(
    ("version", "seccomp", "verdict"),
    [
        ("2.23.4", 2, "pass"),
        ("2.24.3", 2, "warn"),
        ("2.26.4", 2, "warn"),
        ("2.26.5", 2, "pass"),
        ("2.25.1", 0, "pass"),
    ],
)
def test_numa_calls_of_some_versions_of_nccl(version: str, seccomp: int, verdict: str) -> None:
    host = replace(nccl(version), process=process(seccomp=seccomp).process)
    assert worst("limit.numa-calls", host).verdict == verdict


@pytest.mark.parametrize(
    ("names", "lost", "chosen"),
    [
        ("mlx5_1", [], ["mlx5_1", "mlx5_10"]),
        ("=mlx5_1", [], ["mlx5_1"]),
        ("mlx5_1:1,mlx5_2:1", [], ["mlx5_1", "mlx5_2", "mlx5_10"]),
        ("^mlx5_1", [], ["mlx5_0", "mlx5_2"]),
        ("^=mlx5_1", [], ["mlx5_0", "mlx5_2", "mlx5_10"]),
        ("mlx4_0,mlx5_2", ["mlx4_0"], ["mlx5_2"]),
        ("", [], []),
    ],
)
def test_lists_of_devices(names: str, lost: list[str], chosen: list[str]) -> None:
    assert matches(names, ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_10"]) == (lost, chosen)


@pytest.mark.parametrize(
    ("id", "variables", "verdict"),
    [
        ("env.ucx-rdma", {"UCX_TLS": "rc_x,cuda_copy"}, "pass"),
        ("env.ucx-rdma", {"UCX_TLS": "^tcp"}, "pass"),
        ("env.ucx-rdma", {"UCX_TLS": "^rc,dc,ud"}, "warn"),
        ("env.ucx-rdma", {"UCX_TLS": "all"}, "pass"),
        ("env.ucx-cuda", {"UCX_TLS": "rc,cuda"}, "pass"),
        ("env.ucx-cuda", {"UCX_TLS": "^cuda_copy"}, "warn"),
        ("env.ucx-devices", {"UCX_NET_DEVICES": "mlx5_0:1,eno1"}, "pass"),
        ("env.ucx-devices", {"UCX_NET_DEVICES": "mlx5_0:1,eth9"}, "warn"),
        ("env.ucx-devices", {"UCX_NET_DEVICES": "mlx5_0"}, "fail"),
        ("env.ompi-openib", {"OMPI_MCA_btl": "^openib"}, "pass"),
        ("env.ompi-pml", {"OMPI_MCA_pml": "^ucx"}, "warn"),
        ("env.ompi-pml", {"OMPI_MCA_pml": "^ob1"}, "pass"),
        ("env.mpi-interfaces", {"OMPI_MCA_btl_tcp_if_include": "10.1.0.0/16,eno1"}, "pass"),
        ("env.gloo-interface", {"GLOO_SOCKET_IFNAME": "eno1"}, "pass"),
        ("env.gloo-interface", {"GLOO_SOCKET_IFNAME": "eno"}, "fail"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "0,1,7"}, "pass"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "0,0"}, "fail"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": ""}, "warn"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "GPU-0000"}, "pass"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "GPU-ffff"}, "fail"),
        ("env.cuda-devices", {"CUDA_VISIBLE_DEVICES": "MIG-1234"}, "pass"),
        ("env.preload", {"LD_PRELOAD": "/usr/lib/libtcmalloc.so"}, "pass"),
        ("nccl.ib-disable", {"NCCL_IB_DISABLE": "0"}, "pass"),
        ("nccl.ib-disable", {"NCCL_NET": "Socket"}, "fail"),
        ("nccl.ib-disable", {"NCCL_NET": "IB"}, "pass"),
        ("nccl.contradiction", {"NCCL_IB_HCA": "mlx5", "NCCL_IB_DISABLE": "1"}, "warn"),
        ("nccl.hca", {"NCCL_IB_HCA": "mlx5_0,mlx4_0"}, "warn"),
        ("nccl.hca", {"NCCL_IB_HCA": "^mlx5"}, "fail"),
        ("nccl.hca", {"NCCL_IB_HCA": "=mlx5_0:2"}, "fail"),
        ("nccl.hca", {"NCCL_IB_HCA": "mlx5:1"}, "pass"),
        ("nccl.hca", {"NCCL_IB_HCA": "mlx5_0"}, "warn"),
        ("nccl.ifname", {"NCCL_SOCKET_IFNAME": "eno"}, "pass"),
        ("nccl.ifname", {"NCCL_SOCKET_IFNAME": "lo"}, "warn"),
        ("nccl.ifname", {"NCCL_SOCKET_IFNAME": "^docker0,lo"}, "pass"),
        ("nccl.sockets", {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "16"}, "pass"),
        ("nccl.sockets", {"NCCL_SOCKET_NTHREADS": "many"}, "fail"),
        ("nccl.timeout", {"NCCL_IB_TIMEOUT": "22"}, "pass"),
        ("nccl.timeout", {"NCCL_IB_TIMEOUT": "40"}, "fail"),
        ("nccl.timeout", {"NCCL_IB_TIMEOUT": "0"}, "warn"),
        ("nccl.timeout", {"NCCL_IB_TIMEOUT": "²"}, "fail"),
        ("nccl.log", {"NCCL_DEBUG": "INFO"}, "pass"),
        ("nccl.log", {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,COLL"}, "warn"),
    ],
)
def test_variables(id: str, variables: dict[str, str], verdict: str) -> None:
    assert worst(id, environment(**variables)).verdict == verdict


def test_a_port_that_is_down_is_no_choice_for_nccl() -> None:
    down = environment(port(state="DOWN"), NCCL_IB_HCA="=mlx5_0")
    assert "none is ACTIVE" in worst("nccl.hca", down).seen


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


def test_the_environment_wins_over_nccl_conf() -> None:
    host = replace(hgx(), nccl_files={"/etc/nccl.conf": {"NCCL_IB_DISABLE": "1"}})
    assert worst("nccl.ib-disable", host).verdict == "fail"
    assert worst("nccl.ib-disable", environment(host, NCCL_IB_DISABLE="0")).verdict == "pass"


@pytest.mark.parametrize(("name", "most"), SATURATED.items())
def test_a_counter_at_its_largest_value_counts_no_further(name: str, most: int) -> None:
    host = hgx()
    seen = host.rdma_devices[0].ports[0].counters
    for value, verdict in ((most, "warn"), (most - 1, "pass")):
        assert worst("port.saturated", port(counters={**seen, name: value})).verdict == verdict


@pytest.mark.parametrize(
    ("fields", "verdict", "word"),
    [
        ({"state": "INIT"}, "fail", "opensm"),
        ({"state": "INIT", "link_layer": "Ethernet"}, "fail", "cable"),
        ({"state": "ARMED"}, "warn", "subnet manager"),
        ({"state": "DOWN"}, "fail", "cable"),
        ({"state": ""}, "skip", ""),
        ({"state": "ACTIVE_DEFER"}, "pass", ""),
    ],
)
def test_state_of_a_port(fields: dict[str, str], verdict: str, word: str) -> None:
    result = worst("port.state", port(**fields))
    assert result.verdict == verdict and word in result.remedy
    if verdict != "pass":
        assert result.subject == "mlx5_0 port 1"


def test_the_unused_port_of_a_card_is_a_warning() -> None:
    first = hgx().rdma_devices[0]
    both = (first.ports[0], replace(first.ports[0], number=2, state="DOWN", physical_state="Polling"))
    host = replace(hgx(), rdma_devices=(replace(first, ports=both), *hgx().rdma_devices[1:]))
    assert worst("port.state", host).verdict == worst("port.phys", host).verdict == "warn"


def test_devices_that_this_container_was_not_given_are_not_judged() -> None:
    pod_without = facts("connectx_pod")
    devices = tuple(
        replace(one, ports=(replace(one.ports[0], state="DOWN"),)) if one.name != "mlx5_4" else one
        for one in pod_without.rdma_devices
    )
    assert worst("port.state", replace(pod_without, rdma_devices=devices)).verdict == "pass"


def test_a_file_that_cannot_be_opened_says_what_forbids_it() -> None:
    files = (
        DeviceFile(path="/dev/infiniband/uverbs0", rdma_device="mlx5_0", error="Operation not permitted"),
    )
    result = worst("dev.chardev", replace(hgx(), rdma_files=files))
    assert result.verdict == "fail" and "device control group" in result.remedy
    assert result.subject == "/dev/infiniband/uverbs0"


def test_a_nic_without_its_driver_is_no_laptop() -> None:
    host = replace(hgx(), rdma_devices=(), rdma_files=(), verbs_devices={})
    result = worst("dev.sysfs", host)
    assert result.verdict == "warn" and "modprobe" in result.remedy


@pytest.mark.parametrize(
    ("modules", "open_modules", "kernel", "verdict"),
    [
        (("nvidia_peermem",), False, "5.4.0", "pass"),
        ((), True, "5.15.0", "pass"),
        ((), True, "5.4.0", "fail"),
        ((), False, "6.8.0", "fail"),
        ((), None, "6.8.0", "skip"),
    ],
)
def test_gpu_memory_for_nics(
    modules: tuple[str, ...], open_modules: bool | None, kernel: str, verdict: str
) -> None:
    nvidia = replace(hgx().nvidia, open_modules=open_modules)
    host = replace(hgx(), modules=modules, nvidia=nvidia, kernel=kernel)
    assert worst("gpu.peermem", host).verdict == verdict


def test_in_a_virtual_machine_distance_and_access_control_are_not_failures() -> None:
    host = replace(hgx(), hypervisor="KVM", rdma_devices=hgx().rdma_devices[:1])
    assert worst("gpu.topo", host).verdict == "warn"
    assert worst("pci.acs", host).verdict == "skip"
    assert worst("pci.iommu", host).verdict == "skip"


def test_idle_gpus_may_lower_their_links() -> None:
    address = gpu().gpus[0].pci_address
    slow = tuple(replace(one, link_speed=2.5) if one.address == address else one for one in hgx().pci_devices)
    assert worst("pci.speed", replace(hgx(), pci_devices=slow)).verdict == "pass"


def test_efa_needs_no_connection_manager() -> None:
    assert worst("dev.rdma_cm", efa()).verdict == "pass"
    assert worst("host.rdma-modules", efa()).verdict == "pass"


def test_checks_that_lack_the_same_thing_are_one_result() -> None:
    results = judge_host(facts("cloud_vm"))
    ids = [one.id for one in results if one.verdict == "skip"]
    assert ids.count("rdma") == 1
    assert len([one for one in ids if one.startswith(("dev.", "port.", "roce.", "gid."))]) == 0


def test_gpus_that_this_container_was_not_given_are_not_judged() -> None:
    some = tuple(replace(one, device_file="") if one.index > 1 else one for one in hgx().gpus)
    host = replace(environment(CUDA_VISIBLE_DEVICES="0,2"), gpus=some, container="docker")
    assert worst("env.cuda-devices", host).verdict == "fail"
    assert worst("port.count", host).seen == "8 active for 2 GPUs"
    none = replace(host, gpus=tuple(replace(one, device_file="") for one in some))
    ids = [one.id for one in judge_host(none)]
    assert "gpu.given" in ids and "nvidia" in ids and "lib.cuda" not in ids


def test_ipoib_and_ethernet_of_one_driver_are_not_compared() -> None:
    cards = tuple(
        replace(one, kind="ethernet", mtu=1500, speed=25e9) if one.name == "ibp0s0" else one
        for one in hgx().net_devices
    )
    host = replace(hgx(), net_devices=cards)
    assert {worst(id, host).verdict for id in ("net.mtu", "net.speed")} == {"pass"}

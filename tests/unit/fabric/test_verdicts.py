"""Hosts that are well give no warning, and a planted fault one finding, with what follows from it beneath."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.fabric_hosts import facts, tree
from tests.unit.fabric.check_cases import (
    bridge,
    counters,
    environment,
    gpu,
    gpus,
    group,
    hgx,
    interface,
    nccl,
    pci,
    pod,
    port,
    read_twice,
    sysctl,
    worst,
)
from tests.unit.fabric.test_between_hosts import three

from ringleader.cli.doctor.judged_hosts import judgement_text
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import FOLLOWS, host_results, judge, since
from ringleader.fabric.byte_size import MIB
from ringleader.fabric.check_result import CheckResult, failed, together, warned
from ringleader.fabric.checks.check import with_causes
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.readers import net_devices, read_host
from ringleader.fabric.readers.pci_devices import device_control
from ringleader.fabric.topology.gpudirect import iommu_translates

replace = dataclasses.replace


def bad(host: HostFacts) -> list[CheckResult]:
    return [one for one in host_results(host) if one.is_bad]


@pytest.mark.parametrize("name", ["hgx_ndr", "roce_node", "gpu_vm", "laptop"])
def test_a_host_that_is_well_gives_no_warning(name: str) -> None:
    assert [(one.name, one.seen) for one in bad(facts(name))] == []


def without_cable() -> HostFacts:
    return interface("ibp0s0", port(state="DOWN", physical_state="Polling", rate=10e9), up=False)


def without_driver() -> HostFacts:
    host = hgx()
    files = tuple(one for one in host.rdma_files if one.rdma_device != "mlx5_0")
    return replace(host, rdma_devices=host.rdma_devices[1:], rdma_files=files)


def bad_cable() -> HostFacts:
    host = counters(read_twice(hgx()), symbol_error=900, link_downed=4, local_ack_timeout_err=900)
    return counters(host, packet_seq_err=5000, port_xmit_discards=90)


def other_fabric_manager() -> HostFacts:
    nvidia = replace(hgx().nvidia, fabric_manager="not running", fabric_manager_version="550.54.15")
    p2p = {other: "not supported" for other in range(1, 8)}
    return replace(gpus(nvlinks_active=0, p2p=p2p), nvidia=nvidia)


def link_local_alone() -> HostFacts:
    host = interface("net1", pod(), addresses=("fe80::1",))
    gids = next(one for one in host.rdma_devices if one.name == "mlx5_4").ports[0].gids
    return port(host, gids=tuple(one for one in gids if one.address.startswith("fe80")))


PLANTED: dict[str, tuple[Callable[[], HostFacts], str, set[str]]] = {
    "a port without a cable": (
        without_cable, "port.phys mlx5_0 port 1", {"port.state", "port.count", "net.down", "gpu.topo"},
    ),
    "a NIC without its driver": (without_driver, "dev.driver 0000:18:00.0", {"port.count", "gpu.topo"}),
    "a bad cable": (
        bad_cable, "port.errors mlx5_0 port 1",
        {"port.flaps", "port.timeouts", "port.resends", "port.discards"},
    ),
    "Fabric Manager of another version": (
        other_fabric_manager, "gpu.fabric-version", {"gpu.fabric-manager", "gpu.nvlink", "gpu.p2p"},
    ),
    "a link that was trained down": (
        lambda: interface("ibp0s0", port(rate=200e9, rate_text="200 Gb/sec (4X HDR)"), speed=200e9),
        "port.rate mlx5_0 port 1", {"net.speed"},
    ),
    "half of the lanes": (
        lambda: pci("0000:18:00.0", link_width=8), "pci.width 0000:18:00.0", {"pci.bandwidth"},
    ),
    "a RoCE interface without an address": (link_local_alone, "gid.v2 mlx5_4 port 1", {"roce.address"}),
    "RDMA switched off": (
        lambda: environment(NCCL_IB_DISABLE="1", NCCL_IB_HCA="mlx5"),
        "nccl.ib-disable", {"nccl.contradiction"},
    ),
    "a Pod without GPUs": (
        lambda: environment(gpus(device_file=""), NVIDIA_VISIBLE_DEVICES="void"),
        "env.nvidia-devices", {"gpu.given"},
    ),
    "17 of 18 links on all GPUs": (lambda: gpus(nvlinks_active=17), "gpu.nvlink", set()),
    "all NICs at half rate": (
        lambda: replace(
            hgx(),
            rdma_devices=tuple(
                replace(one, ports=(replace(one.ports[0], rate=200e9, rate_text="200 Gb/sec (4X HDR)"),))
                for one in hgx().rdma_devices
            ),
        ),
        "port.rate", set(),
    ),
    "a GPU that is capped": (lambda: gpu(power_limit=450.0), "gpu.power-limit GPU 0", set()),
}  # fmt: skip
"""Fault → the host, the one finding, and the checks whose results follow from it."""


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_one_finding(fault: str) -> None:
    host, root, consequences = PLANTED[fault]
    usual = {one.name for one in bad(pod())}
    found = [one for one in bad(host()) if one.name not in usual]
    assert [one.name for one in found if not one.cause] == [root], found
    assert {one.id for one in found if one.cause} == consequences
    assert {one.cause for one in found if one.cause} <= {root}


def test_a_fault_of_one_of_several_hosts_explains_what_differs() -> None:
    hosts = three(hgx())
    broken = without_cable()
    hosts["c"] = replace(
        hosts["c"],
        rdma_devices=tuple(
            replace(one, ports=other.ports)
            for one, other in zip(hosts["c"].rdma_devices, broken.rdma_devices, strict=True)
        ),
    )
    found = judge(hosts).results()
    of_c = [one for one in found if one.is_bad and one.hosts == ("c",) and one.id != "dev.guid"]
    assert [one.name for one in of_c if not one.cause] == ["port.phys mlx5_0 port 1"]
    follow = {"hosts.hcas", "hosts.rate", "port.state", "port.count", "gpu.topo"}
    assert {one.id for one in of_c if one.cause == "port.phys mlx5_0 port 1"} == follow
    text = judgement_text(judge(hosts), HostsReading(facts=hosts), False, width=100)
    assert "        ↳ WARN  hosts.hcas  7 (expected: 8, as on 2 hosts) [c]\n" in text


@pytest.mark.parametrize(
    ("odd", "expected", "causes"),
    [
        (("h1",), "8", 1),
        (("h1", "h2"), "8", 1),
        (("h1", "h2", "h3"), "8", 0),  # a cable of two hosts says nothing of the third
        (("h1", "h4"), "", 1),  # of two hosts that differ one has a cause
        (("h1", "h2", "h3", "h4"), "", 0),
    ],
)
def test_a_difference_is_explained_where_all_odd_hosts_are(
    odd: tuple[str, ...], expected: str, causes: int
) -> None:
    results = (failed("DOWN", id="a", hosts=("h1", "h2")), warned("7", id="b", hosts=odd, expected=expected))
    assert sum(bool(one.cause) for one in with_causes(results, {"b": ("a",)})) == causes


def test_causes_are_found_through_others_and_never_in_a_circle() -> None:
    results = (
        warned("x", id="c"),
        failed("y", id="b", subject="d0 port 1"),
        failed("z", id="a", subject="d0 port 2"),
        failed("z", id="a", subject="d1 port 1"),
    )
    follows = {"c": ("b",), "b": ("a",), "a": ("c",)}
    named = {one.name: one.cause for one in with_causes(results, {**follows, "a": ()})}
    assert named == {"c": "a d0 port 2", "b d0 port 1": "a d0 port 2", "a d0 port 2": "", "a d1 port 1": ""}
    assert len(with_causes(results, follows)) == 4
    apart = (warned("x", id="c", hosts=("h1",)), failed("y", id="b", hosts=("h2",)))
    assert not any(one.cause for one in with_causes(apart, follows))
    assert with_causes(with_causes(results[:2], follows), follows) == with_causes(results[:2], follows)


def test_what_is_bad_alike_on_all_is_said_once() -> None:
    each = [failed("17 of 18", expected="18", subject=f"GPU {index}") for index in range(3)]
    assert [one.seen for one in together(each, 3)] == ["17 of 18 on all 3"]
    assert together(each, 4) == each and together(each[:1], 1) == each[:1]


# --- counters ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("id", "values", "verdict"),
    [
        ("port.errors", {"symbol_error": 13}, "pass"),  # of 81,000,000,000 packets
        ("port.errors", {"symbol_error": 1000}, "warn"),
        ("port.flaps", {"link_downed": 100}, "pass"),  # in forty days
        ("port.flaps", {"link_downed": 200}, "warn"),
        ("port.timeouts", {"local_ack_timeout_err": 5000}, "pass"),
        ("port.xmit-wait", {"port_xmit_wait": 1 << 60}, "skip"),
    ],
)
def test_one_reading_holds_what_happened_long_ago(id: str, values: dict[str, int], verdict: str) -> None:
    assert worst(id, counters(**values)).verdict == verdict


@pytest.mark.parametrize(
    ("id", "values", "verdict"),
    [
        ("port.errors", {}, "pass"),
        ("port.errors", {"symbol_error": 4}, "warn"),
        ("port.flaps", {"link_downed": 3}, "warn"),
        ("port.flaps", {"link_downed": 1}, "warn"),  # cleared in between, and one since then
        ("port.timeouts", {"local_ack_timeout_err": 281}, "warn"),
        ("port.resends", {"packet_seq_err": 49}, "pass"),
        ("port.resends", {"packet_seq_err": 60}, "warn"),
    ],
)
def test_between_two_readings_only_what_grew_counts(id: str, values: dict[str, int], verdict: str) -> None:
    result = worst(id, counters(read_twice(hgx()), **values))
    assert result.verdict == verdict
    assert verdict == "pass" or result.seen.endswith("in 30 s"), result


def test_an_earlier_reading_of_the_host_is_what_counters_are_compared_with() -> None:
    host = since(counters(symbol_error=1_000_000), counters(symbol_error=1_000_000))
    assert worst("port.errors", host).verdict == "pass"
    assert host.earlier and host.earlier.interfaces["eno1"] == {**hgx().net_devices[0].statistics}


# --- verdicts that were wrong -----------------------------------------------------------------------------


def test_nvlinks_of_cards_without_switches_are_those_that_peers_have() -> None:
    nvidia = replace(hgx().nvidia, fabric_manager="")
    cards = replace(gpus(nvlinks_active=6, name="NVIDIA A40"), nvidia=nvidia)
    assert worst("gpu.nvlink", cards).verdict == "pass"
    loose = replace(cards, gpus=tuple(replace(one, nvlinks_active=0) for one in cards.gpus))
    assert worst("gpu.nvlink", loose).verdict == "skip"


@pytest.mark.parametrize(
    ("types", "command_line", "translates"),
    [
        ("identity", "intel_iommu=on", False),
        ("DMA-FQ", "iommu=pt", True),
        ("", "iommu.passthrough=1", False),
        ("", "iommu=pt", False),
        ("", "intel_iommu=on", True),
    ],
)
def test_one_judge_says_whether_the_iommu_translates(types: str, command_line: str, translates: bool) -> None:
    devices = tuple(replace(one, iommu_type=types) for one in hgx().pci_devices)
    host = replace(hgx(), pci_devices=devices, iommus=("dmar0",), kernel_command_line=command_line)
    assert iommu_translates(host) is translates
    assert (worst("pci.iommu", host).verdict == "warn") is translates


def test_a_root_port_that_redirects_is_on_no_path_behind_a_switch() -> None:
    root = next(one for one in hgx().pci_devices if one.address == "0000:15:01.0")
    assert len(root.ancestors) == 1
    assert worst("pci.acs", pci(root.address, acs_redirects=True)).verdict == "pass"
    assert worst("pci.acs", bridge(acs_redirects=True)).verdict == "fail"


def test_the_control_groups_limit_is_the_memory_there_is() -> None:
    small = worst("host.memory", group(memory=512 * MIB))
    assert small.verdict == "fail" and small.seen == "512 MiB of 512 MiB available"
    assert worst("host.memory", group(memory=1 << 40)).verdict == "pass"


@pytest.mark.parametrize(
    ("every", "own", "verdict"),
    [("0", "1", "warn"), ("2", "1", "pass"), ("0", "2", "pass"), ("1", "0", "warn")],
)
def test_the_kernel_uses_the_larger_filter(every: str, own: str, verdict: str) -> None:
    host = sysctl("net.ipv4.conf.all.rp_filter", every)
    host = replace(host, sysctls={**host.sysctls, "net.ipv4.conf.eno1.rp_filter": own})
    result = worst("net.rp-filter", host)
    assert result.verdict == verdict
    assert (every, verdict) != ("0", "warn") or result.seen == "1 (strict) on eno1"


def test_a_row_that_could_not_be_remapped_needs_another_gpu() -> None:
    result = worst("gpu.remap", gpu(remap_failed=True))
    assert result.verdict == "fail" and "replace" in result.remedy


def test_level_sys_of_gpudirect_is_what_clouds_set() -> None:
    assert worst("nccl.gdr-level", environment(NCCL_NET_GDR_LEVEL="SYS")).verdict == "pass"


def test_variables_that_clouds_set_are_no_leftovers() -> None:
    asked = {
        "NCCL_ALGO": "Ring,Tree",
        "NCCL_PROTO": "Simple",
        "NCCL_NVLS_ENABLE": "0",
        "NCCL_SHM_DISABLE": "0",
    }
    assert worst("nccl.debugging", environment(**asked)).verdict == "pass"


@pytest.mark.parametrize(
    ("value", "fields", "verdict"),
    [
        ("106", {}, "pass"),
        ("", {}, "warn"),
        ("64", {}, "warn"),
        ("64", {"dscp": {}}, "pass"),
        ("64", {"pfc": None}, "pass"),
        ("64", {"pfc": ()}, "pass"),
        ("300", {}, "fail"),
    ],
)
def test_traffic_goes_in_a_priority_that_is_lossless(
    value: str, fields: dict[str, Any], verdict: str
) -> None:
    host = interface("net1", environment(pod(), NCCL_IB_TC=value), **fields)
    assert worst("roce.tc", host).verdict == verdict


@pytest.mark.parametrize(("value", "verdict"), [("rc,tcp", "fail"), ("", "skip"), ("1", "pass")])
def test_a_traffic_class_of_software_is_judged_where_it_is_set(value: str, verdict: str) -> None:
    host = environment(pod(), NCCL_IB_TC=value)
    devices = tuple(replace(one, pci_address="", traffic_class=None) for one in host.rdma_devices)
    host = replace(host, rdma_devices=devices, net_devices=())
    assert worst("roce.tc", host).verdict == verdict


def test_what_the_driver_sets_for_all_traffic_wins_over_nccl() -> None:
    host = environment(pod(), NCCL_IB_TC="")
    devices = tuple(replace(one, traffic_class=106) for one in host.rdma_devices)
    assert worst("roce.tc", replace(host, rdma_devices=devices)).verdict == "pass"


def test_cards_at_half_the_generation_are_old_only_on_infiniband() -> None:
    assert worst("port.rate", port(rate_text="200 Gb/sec (2X NDR)")).verdict == "pass"
    devices = tuple(replace(one, hca_type="MT4129") for one in pod().rdma_devices)
    assert worst("port.rate", replace(pod(), rdma_devices=devices)).verdict == "pass"


@pytest.mark.parametrize(
    ("governors", "verdict"),
    [
        (("intel_pstate powersave",), "pass"),
        (("acpi-cpufreq schedutil",), "pass"),
        (("acpi-cpufreq performance", "acpi-cpufreq schedutil"), "warn"),
        (("cppc_cpufreq userspace",), "warn"),
        ((), "skip"),
    ],
)
def test_governors(governors: tuple[str, ...], verdict: str) -> None:
    assert worst("host.governor", replace(hgx(), cpu_governors=governors)).verdict == verdict


def test_interrupts_on_the_other_node() -> None:
    far = pci("0000:18:00.0", irq_cpus=("56", "57"), numa_node=0)
    result = worst("host.irq-affinity", far)
    assert result.verdict == "warn" and "NUMA node 0" in result.seen
    assert worst("host.irq-affinity", pci("0000:18:00.0", irq_cpus=("0-99999999999",))).verdict == "pass"


def test_nccl_before_2_21_with_an_index_in_its_file_is_right() -> None:
    host = replace(nccl("2.18.5", base=pod()), gpus=hgx().gpus)
    assert worst("lib.nccl-version", host).verdict == "fail"
    known = replace(host, nccl_files={"/etc/nccl.conf": {"NCCL_IB_GID_INDEX": "3"}})
    assert worst("lib.nccl-version", known).verdict == "pass"


def test_every_check_that_follows_from_others_names_some() -> None:
    assert sum(bool(causes) for causes in FOLLOWS.values()) > 50


# --- what readers find of it ------------------------------------------------------------------------------


def test_new_facts_of_the_trees() -> None:
    found = facts("hgx_ndr")
    nic = found.pci_device("0000:18:00.0")
    assert nic and (nic.relaxed_ordering, nic.max_read_request, nic.iommu_type) == (True, 4096, "identity")
    assert nic.irq_cpus == ("0", "1", "2", "3")
    assert found.cpu_governors == ("intel_pstate performance",) and found.uptime == 3456789.0
    laptop = facts("laptop")
    assert laptop.sysctls["net.ipv4.conf.wlp0s20f3.rp_filter"] == "2"


def test_the_registers_of_a_nic_are_read_only_by_root() -> None:
    assert device_control(b"\0" * 64) is None and device_control(b"") is None
    loop = bytearray(256)
    loop[6], loop[0x34], loop[0x40], loop[0x41] = 0x10, 0x40, 0x05, 0x40
    assert device_control(bytes(loop)) is None


def attribute(kind: int, value: bytes) -> bytes:
    return net_devices.ATTRIBUTE.pack(4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def test_lossless_priorities_are_read_by_netlink() -> None:
    """The layout of dcbnl_ieee_fill of Linux 6.8, net/dcb/dcbnl.c: struct ieee_pfc and struct dcb_app."""
    pfc = attribute(2, bytes((8, 0b1000, 0)) + bytes(5 + 128))
    table = attribute(3 | 0x8000, attribute(1, bytes((5, 3, 26, 0))) + attribute(1, bytes((1, 4, 2, 0))))
    body = net_devices.MESSAGE.pack(0, 21, 0) + attribute(1, b"eth0\0") + attribute(13, pfc + table)
    header = net_devices.HEADER.pack(16 + len(body), 78, 0, 1, 0)
    found = net_devices.parsed(header + body)
    assert found and (found.lossless, found.dscp) == ((3,), {26: 3})
    error = net_devices.HEADER.pack(36, 2, 0, 1, 0) + bytes(20)
    assert net_devices.parsed(error) is None and net_devices.parsed(b"") is None
    assert b"eth0\0" in net_devices.request("eth0")
    assert net_devices.bridging_of("no-such-device") is None


def test_ecn_and_the_traffic_class_of_nvidias_driver(tmp_path: Path) -> None:
    described = tree("roce_node")
    interface, device = (
        os.path.normpath(f"{name}/../{described.links[name]}")
        for name in ("sys/class/net/rail0", "sys/class/infiniband/mlx5_0")
    )
    for part in ("roce_np", "roce_rp"):
        described.all(f"{interface}/ecn/{part}/enable", {"3": 1, "4": 0})
    described.file(f"{device}/tc/1/traffic_class", "Global tclass=106")
    described.write(tmp_path)
    found = read_host(tmp_path, {})
    assert next(one for one in found.net_devices if one.name == "rail0").ecn == (3,)
    assert [one.traffic_class for one in found.rdma_devices] == [106, None, None, None]

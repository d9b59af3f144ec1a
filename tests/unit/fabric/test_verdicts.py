"""Hosts that are well give no warning, and a planted fault one finding, with what follows from it beneath."""

import dataclasses
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fabric_hosts import tree
from tests.unit.fabric.check_cases import (
    counters,
    environment,
    gpus,
    hgx,
    interface,
    pod,
    port,
    read_twice,
    worst,
)
from tests.unit.fabric.test_between_hosts import three

from ringleader.cli.doctor.judged_hosts import judgement_text
from ringleader.doctor.hosts_reading import HostsReading
from ringleader.doctor.judgement import host_results, judge, since
from ringleader.fabric.check_result import CheckResult, failed, warned
from ringleader.fabric.checks.check import with_causes
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.readers import net_devices, read_host
from ringleader.fabric.readers.pci_devices import device_control

replace = dataclasses.replace


def bad(host: HostFacts) -> list[CheckResult]:
    return [one for one in host_results(host) if one.is_bad]


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
    "a RoCE interface without an address": (link_local_alone, "gid.v2 mlx5_4 port 1", {"roce.address"}),
    "RDMA switched off": (
        lambda: environment(NCCL_IB_DISABLE="1", NCCL_IB_HCA="mlx5"),
        "nccl.ib-disable", {"nccl.contradiction"},
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


def test_a_difference_is_explained_where_all_odd_hosts_are():
    for odd, expected, causes in (
        (("h1", "h2"), "8", 1),
        (("h1", "h2", "h3"), "8", 0),  # a cable of two hosts says nothing of the third
        (("h1", "h4"), "", 1),  # of two hosts that differ one has a cause
        (("h1", "h2", "h3", "h4"), "", 0),
    ):
        down = failed("DOWN", id="a", hosts=("h1", "h2"))
        results = (down, warned("7", id="b", hosts=odd, expected=expected))
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


def test_counters_of_one_reading_and_between_two() -> None:
    for id, values, verdict in (
        ("port.errors", {"symbol_error": 13}, "pass"),  # of 81,000,000,000 packets
        ("port.errors", {"symbol_error": 1000}, "warn"),
        ("port.flaps", {"link_downed": 100}, "pass"),  # in forty days
        ("port.flaps", {"link_downed": 200}, "warn"),
        ("port.timeouts", {"local_ack_timeout_err": 5000}, "pass"),
        ("port.xmit-wait", {"port_xmit_wait": 1 << 60}, "skip"),
    ):
        assert worst(id, counters(**values)).verdict == verdict, (id, values)
    for id, values, verdict in (
        ("port.errors", {}, "pass"),
        ("port.errors", {"symbol_error": 4}, "warn"),
        ("port.flaps", {"link_downed": 1}, "warn"),  # cleared in between, and one since then
        ("port.timeouts", {"local_ack_timeout_err": 281}, "warn"),
        ("port.resends", {"packet_seq_err": 49}, "pass"),
        ("port.resends", {"packet_seq_err": 60}, "warn"),
    ):
        result = worst(id, counters(read_twice(hgx()), **values))
        assert result.verdict == verdict and (verdict == "pass" or result.seen.endswith("in 30 s")), result


def test_an_earlier_reading_of_the_host_is_what_counters_are_compared_with() -> None:
    host = since(counters(symbol_error=1_000_000), counters(symbol_error=1_000_000))
    assert worst("port.errors", host).verdict == "pass"
    assert host.earlier and host.earlier.interfaces["eno1"] == {**hgx().net_devices[0].statistics}


def attribute(kind: int, value: bytes) -> bytes:
    return net_devices.ATTRIBUTE.pack(4 + len(value), kind) + value + b"\0" * (-len(value) % 4)


def test_registers_of_a_nic_that_are_cut_or_a_circle() -> None:
    loop = bytearray(256)
    loop[6], loop[0x34], loop[0x40], loop[0x41] = 0x10, 0x40, 0x05, 0x40
    assert device_control(bytes(loop)) is device_control(b"\0" * 64) is device_control(b"") is None


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

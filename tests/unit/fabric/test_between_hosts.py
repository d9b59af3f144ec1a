"""What differs between hosts, and who is the odd one."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from tests.fabric_hosts import NAMES, facts
from tests.unit.fabric.check_cases import SOFTWARE, hgx, pod

from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks.between_hosts import COMPARISONS, compare_hosts, odd_hosts
from ringleader.fabric.facts import Clock, HostFacts, Library, Limit, MpiFacts

replace = dataclasses.replace


def own(facts: HostFacts, number: int) -> HostFacts:
    """Return a host like another, with a name, addresses and NICs of its own."""
    devices = tuple(replace(one, node_guid=f"{one.node_guid[:-1]}{number:x}") for one in facts.rdma_devices)
    interfaces = tuple(
        replace(one, addresses=tuple(f"{address}{number}" for address in one.addresses))
        for one in facts.net_devices
    )
    return replace(facts, hostname=f"node{number}", rdma_devices=devices, net_devices=interfaces)


def changed(**fields: Any) -> Callable[[HostFacts], HostFacts]:
    return lambda host: replace(host, **fields)


def software(**fields: Any) -> Callable[[HostFacts], HostFacts]:
    return changed(software=replace(SOFTWARE, **fields))


def ports(**fields: Any) -> Callable[[HostFacts], HostFacts]:
    def change(host: HostFacts) -> HostFacts:
        devices = tuple(
            replace(one, ports=tuple(replace(each, **fields) for each in one.ports))
            for one in host.rdma_devices
        )
        return replace(host, rdma_devices=devices)

    return change


def interfaces(**fields: Any) -> Callable[[HostFacts], HostFacts]:
    return lambda host: replace(host, net_devices=tuple(replace(one, **fields) for one in host.net_devices))


def gpus(**fields: Any) -> Callable[[HostFacts], HostFacts]:
    return lambda host: replace(host, gpus=tuple(replace(one, **fields) for one in host.gpus))


def environment(**values: str) -> Callable[[HostFacts], HostFacts]:
    return lambda host: replace(host, environment={**host.environment, **values})


def limits(name: str) -> Callable[[HostFacts], HostFacts]:
    def change(host: HostFacts) -> HostFacts:
        found = {**host.process.limits, name: Limit(soft=1024, hard=1024)}
        return replace(host, process=replace(host.process, limits=found))

    return change


Change = Callable[[HostFacts], HostFacts]
WARNS: Mapping[str, Change] = {
    "hosts.hcas": lambda host: replace(host, rdma_devices=host.rdma_devices[1:]),
    "hosts.rate": ports(rate=200e9),
    "hosts.firmware": lambda host: replace(
        host, rdma_devices=tuple(replace(one, firmware="28.39.1002") for one in host.rdma_devices)
    ),
    "hosts.guid": lambda host: replace(host, rdma_devices=own(hgx(), 1).rdma_devices),
    "hosts.mtu": interfaces(mtu=9000),
    "hosts.address": lambda host: replace(host, net_devices=own(hgx(), 1).net_devices),
    "hosts.gpus": lambda host: replace(host, gpus=host.gpus[:7]),
    "hosts.gpu-model": gpus(name="NVIDIA A100"),
    "hosts.power-limit": gpus(power_limit=500.0),
    "hosts.governor": changed(cpu_governors=("acpi-cpufreq schedutil",)),
    "hosts.numa": lambda host: replace(host, numa_nodes=host.numa_nodes[:1]),
    "hosts.memory": lambda host: replace(host, memory=(host.memory or 0) // 2),
    "hosts.kernel": changed(kernel="5.15.0-100-generic"),
    "hosts.system": changed(system="Ubuntu 22.04.5 LTS"),
    "hosts.container": changed(container="docker"),
    "hosts.driver": lambda host: replace(host, nvidia=replace(host.nvidia, version="535.129.03")),
    "hosts.ucx": changed(libraries=(Library(name="libucp.so.0"),)),
    "hosts.verbs": changed(libraries=(Library(name="libibverbs.so.1"),)),
    "hosts.packages": software(packages={**SOFTWARE.packages, "torch": "2.7.1"}),
    "hosts.memlock": limits("memlock"),
    "hosts.nofile": limits("nofile"),
    "hosts.shm": changed(shm_size=64 * 1024**2),
    "hosts.cpus": lambda host: replace(host, process=replace(host.process, cpus=2)),
    "hosts.modules": lambda host: replace(
        host, modules=tuple(one for one in host.modules if one != "nvidia_peermem")
    ),
    "hosts.environment": environment(NCCL_IB_TC="106"),
    "hosts.nccl-conf": changed(nccl_files={}),
    "hosts.hostname": changed(hostname="node1"),
    "hosts.clock": changed(clock=Clock(read_at=0, offset=-3.2)),
}
FAILS: Mapping[str, Change] = {
    "hosts.link-layer": ports(link_layer="Ethernet"),
    "hosts.pkey": ports(pkeys=(0x8001,)),
    "hosts.architecture": changed(architecture="aarch64"),
    "hosts.nccl": software(nccl=(replace(SOFTWARE.nccl[0], version="2.21.5"),)),
    "hosts.mpi": software(mpis=(MpiFacts(family="MPICH", version="4.2.1", mpirun="mpirun"),)),
    "hosts.python": software(python="3.11.9"),
    "hosts.ringleader": software(ringleader="0.9"),
    "hosts.ifname": changed(net_devices=hgx().net_devices[1:2]),
}
ODD = {
    id: (verdict, change) for verdict, odd in (("warn", WARNS), ("fail", FAILS)) for id, change in odd.items()
}
"""Each comparison → its verdict on the third of three hosts, and how that one differs."""
OTHER_HOSTS = {"hosts.guid": ("a", "c"), "hosts.address": ("a", "c"), "hosts.hostname": ("a", "c")}


def three(host: HostFacts) -> dict[str, HostFacts]:
    clock = Clock(read_at=0, offset=0.001)
    return {name: replace(own(host, number), clock=clock) for number, name in enumerate("abc", 1)}


def results(hosts: Mapping[str, HostFacts], id: str) -> list[CheckResult]:
    return [one for one in compare_hosts(hosts) if one.id == id]


def test_each_comparison_has_a_case() -> None:
    ids = [one.id for one in COMPARISONS]
    assert len(set(ids)) == len(ids) >= 15
    assert {*ODD, "hosts.roce-mtu", "hosts.pfc"} == set(ids)


def test_equal_hosts_differ_in_nothing() -> None:
    (only,) = compare_hosts(three(hgx()))
    assert only.verdict is Verdict.PASS and only.id == "hosts.same"
    assert only.seen.startswith(f"{len(COMPARISONS)} of {len(COMPARISONS)} things are the same on 3 hosts")


@pytest.mark.parametrize("id", ODD)
def test_the_odd_host_is_named(id: str) -> None:
    verdict, change = ODD[id]
    hosts = three(hgx())
    if id == "hosts.ifname":
        hosts = {name: environment(NCCL_SOCKET_IFNAME="eno1")(host) for name, host in hosts.items()}
    hosts["c"] = change(hosts["c"])
    found = results(hosts, id)
    assert found and {one.verdict for one in found} == {Verdict(verdict)}
    assert {one.hosts for one in found} == {OTHER_HOSTS.get(id, ("c",))}
    assert all(one.remedy and one.seen for one in found)


def test_with_a_tie_nobody_is_odd() -> None:
    hosts = {name: host for name, host in three(hgx()).items() if name != "c"}
    hosts["b"] = changed(kernel="5.15.0")(hosts["b"])
    (result,) = results(hosts, "hosts.kernel")
    assert result.hosts == ("a", "b") and result.expected == ""
    assert result.seen == "6.8.0-45-generic on a; 5.15.0 on b"


def test_the_remedy_for_a_shared_address_goes_by_the_interface() -> None:
    hosts = three(hgx())
    bridge = replace(hgx().net_devices[0], name="docker0", addresses=("172.17.0.1",), up=True)
    bridged = {
        name: replace(one, net_devices=(*one.net_devices, bridge))
        for name, one in hosts.items()
        if name < "c"
    }
    (result,) = results(bridged, "hosts.address")
    assert "^docker0," in result.remedy and "172.17.0.1" in result.seen
    hosts["b"] = replace(hosts["b"], net_devices=hosts["a"].net_devices)
    (result,) = results(hosts, "hosts.address")
    assert "docker0" not in result.remedy and "clone" in result.remedy
    assert result.hosts == ("a", "b") and "more are on 2 hosts" in result.seen


@pytest.mark.parametrize(
    ("seconds", "verdict"), [(0.4, None), (1.5, Verdict.WARN), (59.0, Verdict.WARN), (3600.0, Verdict.FAIL)]
)
def test_clocks(seconds: float, verdict: Verdict | None) -> None:
    hosts = three(hgx())
    hosts["c"] = replace(hosts["c"], clock=Clock(read_at=0, offset=seconds, offset_uncertainty=0.01))
    found = results(hosts, "hosts.clock")
    assert [one.verdict for one in found] == ([verdict] if verdict else [])
    assert all(one.hosts == ("c",) and one.seen.endswith("ahead") for one in found)


def test_variables_that_each_host_has_its_own_of_are_not_compared() -> None:
    hosts = three(hgx())
    mpi = replace(SOFTWARE.mpis[0], version="5.0.7")
    minor = {**hosts, "a": software(mpis=(mpi,), python="3.12.1")(hosts["a"])}
    for id in ("hosts.mpi", "hosts.python"):
        assert [one.verdict for one in results(minor, id)] == ["warn"], "a minor version is a warning"
    ours = {"UCX_LOG_FILE": "/tmp/j/ucx.0.log", "NCCL_DEBUG": "INFO", "OMP_NUM_THREADS": "8"}
    hosts["a"] = environment(PCIDEVICE_X="0000:01:00.1", OMPI_MCA_ess_base_vpid="3", **ours)(hosts["a"])
    assert results(hosts, "hosts.environment") == []


def test_differences_of_one_host_and_of_several_values() -> None:
    for host, change, id, verdict, seen in (
        (pod(), interfaces(mtu=1500), "hosts.roce-mtu", "fail", "1500"),
        (pod(), interfaces(pfc=(4,)), "hosts.pfc", "warn", "4"),
        (hgx(), changed(rdma_devices=()), "hosts.hcas", "fail", "0"),
    ):
        hosts = three(host)
        hosts["b"] = change(hosts["b"])
        (result,) = results(hosts, id)
        assert (result.verdict, result.hosts, result.seen) == (verdict, ("b",), seen)
        assert result.expected.endswith(", as on 2 hosts")
    found = list(odd_hosts({"a": "1", "b": "1", "c": "2", "d": ""}, lambda usual, value: Verdict.WARN))
    assert [(one.seen, one.hosts) for one in found] == [("2", ("c",)), ("not there", ("d",))]
    assert compare_hosts({"a": hgx()}) == compare_hosts({}) == ()
    found = list(compare_hosts({name: facts(name) for name in NAMES}))
    assert not [one for one in found if "could not compare" in one.seen]

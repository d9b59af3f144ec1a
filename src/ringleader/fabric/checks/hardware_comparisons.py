"""Comparisons of hosts' hardware: NICs, GPUs, links, addresses, partitions. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ringleader.agents.host_facts_script import BRIDGES
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult, Verdict, listed
from ringleader.fabric.checks.comparison import Comparison, Hosts, odd_hosts, same
from ringleader.fabric.checks.conditions import active_ports, usable_devices, usable_gpus
from ringleader.fabric.checks.roce import preferred_gid
from ringleader.fabric.facts import HostFacts
from ringleader.fabric.rate_text import bit_rate
from ringleader.fabric.wires import Wire, wire_of_port

OWN_ADDRESS = "give each host an address of its own; look whether one is a clone of the other"


def _hcas(facts: HostFacts) -> dict[str, str | None]:
    return {"": str(len(active_ports(facts)))}


def _rates(facts: HostFacts) -> dict[str, str | None]:
    counts = Counter(bit_rate(port.rate) for _, port in active_ports(facts) if port.rate)
    shown = ", ".join(f"{count} × {rate}" for rate, count in sorted(counts.items()))
    return {"": shown or None}


def _link_layers(facts: HostFacts) -> dict[str, str | None]:
    wires = {wire_of_port(device, port).value for device, port in active_ports(facts)}
    return {"": ", ".join(sorted(wires)) or None}


def _firmware(facts: HostFacts) -> dict[str, str | None]:
    found: dict[str, set[str]] = {}
    for one in usable_devices(facts):
        if one.firmware:
            found.setdefault(one.board_id or one.hca_type or one.driver, set()).add(one.firmware)
    return {board: ", ".join(sorted(versions)) for board, versions in found.items()}


def _gpus(facts: HostFacts) -> dict[str, str | None]:
    return {"": str(len(usable_gpus(facts)))}


def _gpu_models(facts: HostFacts) -> dict[str, str | None]:
    kinds = sorted(
        {f"{one.name} {byte_size(one.memory)}" if one.memory else one.name for one in usable_gpus(facts)}
    )
    return {"": ", ".join(kinds) if all(one.name for one in usable_gpus(facts)) and kinds else None}


def _roce_mtu(facts: HostFacts) -> dict[str, str | None]:
    names = {
        gid.netdev for _, port in active_ports(facts, Wire.ROCE) if (gid := preferred_gid(port)) is not None
    }
    values = {one.mtu for one in facts.net_devices if one.name in names and one.mtu is not None}
    return {"": ", ".join(str(value) for value in sorted(values)) or None}


def _mtu(facts: HostFacts) -> dict[str, str | None]:
    """Return the MTU by interface; of names that all hosts have, so of one network in most clusters."""
    return {
        one.name: str(one.mtu)
        for one in facts.net_devices
        if one.mtu is not None and one.up and one.kind != "loopback" and not one.name.startswith("veth")
    }


def _numa(facts: HostFacts) -> dict[str, str | None]:
    return {"": str(len(facts.numa_nodes)) if facts.numa_nodes else None}


def _memory(facts: HostFacts) -> dict[str, str | None]:
    """Return the memory in steps of 8 GiB: hosts of one kind differ by what firmware keeps."""
    step = 8 * 1024**3
    return {"": f"about {byte_size(round(facts.memory / step) * step or step)}" if facts.memory else None}


def _partitions(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield a failure where no partition key is on all hosts that have InfiniBand."""
    keys = {
        host: {key & 0x7FFF for _, port in active_ports(facts, Wire.INFINIBAND) for key in port.pkeys}
        for host, facts in hosts.items()
    }
    known = {host: found for host, found in keys.items() if found}
    if len(known) > 1 and not set.intersection(*known.values()):
        shown = {
            host: ", ".join(f"{key | 0x8000:#06x}" for key in sorted(found)) for host, found in known.items()
        }
        yield from odd_hosts(shown, Verdict.FAIL)


def _addresses(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield addresses that several hosts have: a bridge of Docker's, or a mistake."""
    owners: dict[str, dict[str, str]] = {}
    for host, facts in hosts.items():
        for interface in facts.net_devices:
            for address in interface.addresses if interface.up else ():
                if not address.startswith(("127.", "::1", "fe80:", "169.254.")):
                    owners.setdefault(address, {}).setdefault(host, interface.name)
    bridges = {
        address: sorted(set(names.values()))
        for address, names in owners.items()
        if all(BRIDGES.match(name) for name in names.values())
    }
    shared = [name for address, names in bridges.items() if len(owners[address]) > 1 for name in names]
    lists = ",".join(dict.fromkeys(shared))
    leave_out = f"leave the bridge out: NCCL_SOCKET_IFNAME=^{lists}, OMPI_MCA_btl_tcp_if_exclude={lists},lo"
    own = {one: list(names) for one, names in owners.items() if one not in bridges}
    yield from _on_several(own, f"{OWN_ADDRESS}, or two names lead to one host")
    yield from _on_several({one: list(owners[one]) for one in bridges}, leave_out)


def _guids(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield GUIDs of NICs that several hosts have."""
    owners: dict[str, list[str]] = {}
    for host, facts in hosts.items():
        for guid in dict.fromkeys(
            one.node_guid for one in usable_devices(facts) if one.node_guid.strip("0:")
        ):
            owners.setdefault(guid, []).append(host)
    yield from _on_several(owners)


def _on_several(owners: dict[str, list[str]], remedy: str = "") -> Iterator[CheckResult]:
    """Yield a warning for each group of hosts that share something: address or GUID → its hosts."""
    shared: dict[tuple[str, ...], list[str]] = {}
    for thing, found in owners.items():
        if len(found) > 1:
            shared.setdefault(tuple(found), []).append(thing)
    for named, things in shared.items():
        verb = "is" if len(things) == 1 else "are"
        seen = f"{listed(things)} {verb} on {len(named)} hosts"
        yield CheckResult(id="", verdict=Verdict.WARN, seen=seen, hosts=named, remedy=remedy)


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        id="hosts.hcas",
        title="Number of active RDMA ports",
        reads="/sys/class/infiniband",
        why="the host with fewer NICs slows all others down; without any, the whole job is on TCP",
        remedy="look which NIC is missing there: lspci, dmesg",
        warns="the numbers differ",
        fails="some hosts have none",
        judge=same(_hcas, lambda usual, value: Verdict.FAIL if "0" in (usual, value) else Verdict.WARN),
    ),
    Comparison(
        id="hosts.rate",
        title="Rates of RDMA ports",
        reads="/sys/class/infiniband/*/ports/*/rate",
        why="every ring runs at the rate of its slowest port",
        remedy="reseat or replace the cable there; look at the switch port's speed",
        warns="the rates differ",
        judge=same(_rates, Verdict.WARN),
    ),
    Comparison(
        id="hosts.link-layer",
        title="Kind of RDMA",
        reads="/sys/class/infiniband/*/ports/*/link_layer",
        why="InfiniBand, RoCE and EFA do not talk to each other",
        remedy="use hosts of one kind, or name the common devices in NCCL_IB_HCA",
        fails="the kinds differ",
        judge=same(_link_layers, Verdict.FAIL),
    ),
    Comparison(
        id="hosts.firmware",
        title="Firmware of NICs of one board",
        reads="/sys/class/infiniband/*/{board_id,fw_ver}",
        why="firmware decides about congestion control and routing; one odd host is slow in ways no log"
        " tells",
        remedy="bring the hosts to one version: mlxfwmanager",
        warns="the versions differ",
        judge=same(_firmware, Verdict.WARN),
    ),
    Comparison(
        id="hosts.pkey",
        title="A partition that all are in",
        reads="/sys/class/infiniband/*/ports/*/pkeys",
        why="ports without a common partition key cannot talk to each other",
        remedy="put the hosts' ports into one partition (subnet manager's partitions.conf, UFM, the cloud)",
        fails="no key is on all hosts",
        judge=_partitions,
    ),
    Comparison(
        id="hosts.guid",
        title="Each host has NICs of its own",
        reads="/sys/class/infiniband/*/node_guid",
        why="these hosts share NICs, and so their rate: Pods on one machine, or one host under two names;"
        " or they are clones of one virtual machine, whose ports the subnet manager takes for one",
        remedy="spread the Pods over machines; look whether two names lead to one host; give each virtual"
        " function"
        " a GUID of its own",
        warns="one GUID is on several hosts",
        judge=_guids,
    ),
    Comparison(
        id="hosts.roce-mtu",
        title="MTU of RoCE interfaces",
        reads="/sys/class/net/*/mtu of the interfaces of RoCE ports",
        why="RDMA connections between ports of different MTU fail, or lose large packets",
        remedy="set one MTU on interfaces and switches",
        fails="it differs",
        judge=same(_roce_mtu, Verdict.FAIL),
    ),
    Comparison(
        id="hosts.mtu",
        title="MTU of interfaces of one name",
        reads="/sys/class/net/*/mtu",
        why="the host with the larger MTU sends packets that the other drops: connections hang at the first"
        " large"
        " message",
        remedy="set one MTU on all hosts and the switch between them",
        warns="it differs",
        judge=same(_mtu, Verdict.WARN),
    ),
    Comparison(
        id="hosts.address",
        title="No address is on several hosts",
        reads="addresses of the interfaces",
        why="MPI takes such an address (Docker's 172.17.0.1) for a way to the other host, and connects to"
        " itself",
        remedy=f"{OWN_ADDRESS}, or two names lead to one host; a container's bridge: leave it out"
        " (NCCL_SOCKET_IFNAME=^docker0, OMPI_MCA_btl_tcp_if_exclude=docker0,lo)",
        warns="one is",
        source="Open MPI, FAQ on TCP: several hosts with the same address",
        judge=_addresses,
    ),
    Comparison(
        id="hosts.gpus",
        title="Number of GPUs",
        reads="PCI devices, NVML",
        why="ranks are placed by local rank: a host with fewer GPUs cannot take as many",
        remedy="give each host its own slots in the hostfile; look whether a GPU fell off the bus (Xid 79)",
        warns="the numbers differ",
        judge=same(_gpus, Verdict.WARN),
    ),
    Comparison(
        id="hosts.gpu-model",
        title="Model of GPUs",
        reads="NVML, PCI devices",
        why="each step waits for the slowest GPU, and the batch must fit the smallest",
        remedy="use hosts of one kind",
        warns="the models differ",
        judge=same(_gpu_models, Verdict.WARN),
    ),
    Comparison(
        id="hosts.numa",
        title="Number of NUMA nodes",
        reads="/sys/devices/system/node",
        why="ranks are bound alike on all hosts; another number is another machine, or another BIOS setting",
        remedy="look at the BIOS (NUMA nodes per socket)",
        warns="the numbers differ",
        judge=same(_numa, Verdict.WARN),
    ),
    Comparison(
        id="hosts.memory",
        title="Memory",
        reads="/proc/meminfo",
        why="a host with less memory is the first on which a rank is killed; a module may have failed",
        remedy="look at dmidecode -t memory there",
        warns="it differs by more than 8 GiB or so",
        source="steps of 8 GiB: ours",
        judge=same(_memory, Verdict.WARN),
    ),
)

"""Checks of the ports of RDMA devices: state, speed, link layer, subnet, partition. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import (
    INFINIBAND,
    RDMA_DEVICE,
    active_ports,
    port_name,
    ports,
    usable_devices,
    usable_gpus,
)
from ringleader.fabric.facts import HostFacts, RdmaDevice, RdmaPort
from ringleader.fabric.rate_text import bit_rate
from ringleader.fabric.wires import Wire

_check = partial(check, group="RDMA ports")


@_check(
    "port.state",
    "The ports are ACTIVE",
    reads="/sys/class/infiniband/*/ports/*/state",
    why="NCCL and UCX take ports whose state is ACTIVE; the others are left out without a word",
    remedy="DOWN: look at cable, transceiver and the switch's port",
    passes="every port is ACTIVE",
    warns="a port is ARMED, or DOWN on a card with another that is ACTIVE",
    fails="a port is DOWN, or INIT (InfiniBand: no subnet manager has set it up)",
    source="Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    needs=RDMA_DEVICE,
)
def state(facts: HostFacts) -> Iterator[CheckResult]:
    found = list(ports(facts))
    well = [(device, port) for device, port in found if port.state in ("ACTIVE", "ACTIVE_DEFER")]
    for device, port in found:
        if (device, port) not in well:
            yield _state(facts, device, port)
    if found and len(well) == len(found):
        yield passed(f"{len(found)} ACTIVE")


def _beside(facts: HostFacts, device: RdmaDevice) -> list[RdmaPort]:
    """Return all ports of a device's card, whose connectors are functions of it; of a virtual one its own."""
    found = facts.pci_device(device.pci_address)
    card = device.pci_address.rpartition(".")[0]
    if not card or (found is not None and found.is_virtual_function):
        return list(device.ports)
    return [port for other, port in ports(facts) if other.pci_address.rpartition(".")[0] == card]


def _state(facts: HostFacts, device: RdmaDevice, port: RdmaPort) -> CheckResult:
    subject = port_name(device, port)
    if not port.state:
        return skipped("its state is not readable", subject=subject)
    if port.state == "DOWN" and any(one.state == "ACTIVE" for one in _beside(facts, device)):
        return warned("DOWN; another port of the card is ACTIVE", expected="ACTIVE", subject=subject)
    if port.state == "INIT" and port.link_layer == "InfiniBand":
        remedy = "no subnet manager has set the port up: start opensm, or look at the switch's"
        return failed("INIT", expected="ACTIVE", subject=subject, remedy=remedy)
    if port.state == "ARMED":
        remedy = "the subnet manager is setting it up: wait, then look at its log"
        return warned("ARMED", expected="ACTIVE", subject=subject, remedy=remedy)
    return failed(port.state, expected="ACTIVE", subject=subject)


@_check(
    "port.phys",
    "The links are up",
    reads="/sys/class/infiniband/*/ports/*/phys_state",
    why="below LinkUp there is no signal: cable, transceiver, or a port that was switched off",
    remedy="Polling: no partner is heard; reseat or replace the cable, look at the switch's port",
    passes="every link is LinkUp",
    warns="a link is not up on a card with another that is",
    fails="a link is not up",
    source="Linux, Documentation/ABI/stable/sysfs-class-infiniband",
    needs=RDMA_DEVICE,
)
def physical_state(facts: HostFacts) -> Iterator[CheckResult]:
    found = [(device, port) for device, port in ports(facts) if port.physical_state]
    low = [(device, port) for device, port in found if port.physical_state != "LinkUp"]
    for device, port in low:
        remedy = (
            "somebody switched it off: ibportstate LID PORT enable, or mlxlink"
            if "Dis" in port.physical_state
            else ""
        )
        told = warned if any(one.physical_state == "LinkUp" for one in _beside(facts, device)) else failed
        yield told(port.physical_state, expected="LinkUp", subject=port_name(device, port), remedy=remedy)
    if not found:
        yield skipped("no physical state is readable")
    elif not low:
        yield passed(f"{len(found)} LinkUp")


@_check(
    "port.rate",
    "Equal devices run at equal rates",
    reads="/sys/class/infiniband/*/{board_id,ports/*/rate}",
    why="a cable that is not well lets a link train at a lower rate; the whole ring then runs at that rate",
    remedy="the link was trained down: reseat or replace the cable, look at the switch port's speed",
    passes="active ports of the same board run at the same rate",
    warns="a port is slower than the fastest of its board",
    source="ours; what a host should reach is for an expectation (--expect)",
    needs=RDMA_DEVICE,
)
def rate(facts: HostFacts) -> Iterator[CheckResult]:
    fastest: dict[tuple[str, str], float] = {}
    known = [(device, port, port.rate) for device, port in active_ports(facts) if port.rate]
    for device, port, bits in known:
        key = _model(device, port)
        fastest[key] = max(bits, fastest.get(key, 0.0))
    slow = [one for one in known if one[2] < fastest[_model(one[0], one[1])]]
    for device, port, bits in slow:
        best = fastest[_model(device, port)]
        yield warned(
            bit_rate(bits), expected=f"{bit_rate(best)}, as its peers", subject=port_name(device, port)
        )
    if not known:
        yield skipped("no active port tells its rate")
    elif not slow:
        rates = sorted({bit_rate(bits) for _, _, bits in known})
        yield passed(f"{len(known)} ports, {' and '.join(rates)}")


def _model(device: RdmaDevice, port: RdmaPort) -> tuple[str, str]:
    return device.board_id or device.hca_type or device.driver, port.link_layer


@_check(
    "port.linklayer",
    "The active ports speak one link layer",
    reads="/sys/class/infiniband/*/ports/*/link_layer",
    why="NCCL takes all devices it finds; connecting InfiniBand to RoCE ends with 'incompatible devices'",
    remedy="name the devices of one kind: NCCL_IB_HCA=mlx5_0,mlx5_1,… or leave the other out:"
    " NCCL_IB_HCA=^mlx5_bond_0",
    passes="all are the same, or NCCL_IB_HCA chooses",
    warns="InfiniBand and Ethernet are mixed and NCCL_IB_HCA is not set",
    source="NCCL, 'Attempted to connect incompatible devices'",
    needs=RDMA_DEVICE,
)
def link_layer(facts: HostFacts) -> Iterator[CheckResult]:
    layers: dict[str, list[str]] = {}
    for device, port in active_ports(facts):
        if port.link_layer:
            layers.setdefault(port.link_layer, []).append(device.name)
    chosen = facts.environment.get("NCCL_IB_HCA")
    if not layers:
        yield skipped("no active port tells its link layer")
    elif len(layers) == 1:
        yield passed(f"{next(iter(layers))} on all")
    elif chosen:
        yield passed(f"{' and '.join(sorted(layers))}; NCCL_IB_HCA={chosen} chooses")
    else:
        each = "; ".join(
            f"{layer}: {', '.join(sorted(set(names)))}" for layer, names in sorted(layers.items())
        )
        yield warned(each, expected="one link layer, or NCCL_IB_HCA")


@_check(
    "port.count",
    "The GPUs share the ports evenly",
    reads="/sys/class/infiniband, GPUs by PCI class",
    why="seven NICs for eight GPUs usually means that one NIC is gone, and two GPUs share what is left",
    remedy="look which NIC is missing: lspci, dmesg, ibdev2netdev",
    passes="there are as many active ports as GPUs, more, or a number that divides theirs",
    warns="the ports cannot be shared evenly",
    fails="no port is active",
    source="ours",
    needs=RDMA_DEVICE,
)
def count(facts: HostFacts) -> Iterator[CheckResult]:
    active, gpus = len(active_ports(facts)), len(usable_gpus(facts))
    if active == 0:
        yield failed("no port is ACTIVE", expected="at least one")
    elif gpus > active and gpus % active:
        yield warned(
            f"{active} active ports for {gpus} GPUs", expected=f"{gpus}, or a number that divides it"
        )
    else:
        yield passed(f"{active} active" + (f" for {gpus} GPUs" if gpus else ""))


@_check(
    "port.sm",
    "InfiniBand ports know their subnet manager",
    reads="/sys/class/infiniband/*/ports/*/sm_lid",
    why="without a subnet manager there are no routes, and connections time out",
    remedy="start opensm, or look at the switch's or UFM's subnet manager: sminfo",
    passes="each active port has the LID of one",
    fails="it is 0",
    needs=INFINIBAND,
)
def subnet_manager(facts: HostFacts) -> Iterator[CheckResult]:
    known = [
        (device, port) for device, port in active_ports(facts, Wire.INFINIBAND) if port.sm_lid is not None
    ]
    for device, port in known:
        if port.sm_lid == 0:
            yield failed("no subnet manager (sm_lid 0)", subject=port_name(device, port))
    if not known:
        yield skipped("no active InfiniBand port tells it")
    elif all(port.sm_lid for _, port in known):
        yield passed(f"LID {', '.join(str(lid) for lid in sorted({port.sm_lid or 0 for _, port in known}))}")


@_check(
    "port.lid",
    "InfiniBand ports have an address",
    reads="/sys/class/infiniband/*/ports/*/lid",
    why="the LID is a port's address in its subnet; 0 and 0xffff are none",
    remedy="look at the subnet manager's log: it may not know this port's GUID",
    passes="each active port has one",
    fails="an active port has none",
    source="InfiniBand Architecture: unicast LIDs are 0x0001 to 0xbfff",
    needs=INFINIBAND,
)
def address(facts: HostFacts) -> Iterator[CheckResult]:
    known = [(device, port) for device, port in active_ports(facts, Wire.INFINIBAND) if port.lid is not None]
    lost = [(device, port) for device, port in known if port.lid in (0, 0xFFFF)]
    for device, port in lost:
        yield failed(f"LID {port.lid}", subject=port_name(device, port))
    if not known:
        yield skipped("no active InfiniBand port tells it")
    elif not lost:
        yield passed(f"{len(known)} ports have one")


@_check(
    "port.fw",
    "Equal devices have equal firmware",
    reads="/sys/class/infiniband/*/{board_id,fw_ver}",
    why="firmware decides about congestion control and adaptive routing; one odd NIC is slow in ways that"
    " no log tells",
    remedy="bring them to one version: mlxfwmanager, or the machine's vendor's tool",
    passes="devices of the same board have the same version",
    warns="they differ",
    needs=RDMA_DEVICE,
)
def firmware(facts: HostFacts) -> Iterator[CheckResult]:
    versions: dict[str, dict[str, list[str]]] = {}
    for one in usable_devices(facts):
        if one.firmware:
            board = versions.setdefault(one.board_id or one.hca_type or one.driver, {})
            board.setdefault(one.firmware, []).append(one.name)
    odd = {board: found for board, found in versions.items() if len(found) > 1}
    for model, found in odd.items():
        each = "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(found.items()))
        yield warned(each, expected="one version", subject=model)
    if not versions:
        yield skipped("no device tells its firmware")
    elif not odd:
        yield passed(", ".join(sorted({version for found in versions.values() for version in found})))


@_check(
    "port.pkey",
    "InfiniBand ports are full members of a partition",
    reads="/sys/class/infiniband/*/ports/*/pkeys",
    why="two limited members cannot talk to each other; NCCL uses index 0 unless NCCL_IB_PKEY says otherwise",
    remedy="let the subnet manager give the port full membership (partitions.conf: full)",
    passes="the key at the index that is used has its highest bit set",
    warns="the first is a limited member's",
    fails="there is none",
    source="InfiniBand Architecture: the highest bit of a partition key says full member",
    needs=INFINIBAND,
)
def partition(facts: HostFacts) -> Iterator[CheckResult]:
    found = active_ports(facts, Wire.INFINIBAND)
    none = [(device, port) for device, port in found if not port.pkeys]
    limited = [(device, port) for device, port in found if port.pkeys and not port.pkeys[0] & 0x8000]
    for device, port in none:
        yield failed(
            "no partition key", expected="0xffff or another full member's", subject=port_name(device, port)
        )
    for device, port in limited:
        keys = ", ".join(f"{key:#06x}" for key in port.pkeys)
        yield warned(f"{keys}: a limited member", expected="0x8000 or above", subject=port_name(device, port))
    if not found:
        yield skipped("no active InfiniBand port")
    elif not none and not limited:
        yield passed(", ".join(sorted({f"{port.pkeys[0]:#06x}" for _, port in found})))


CHECKS: tuple[Check, ...] = (
    state,
    physical_state,
    rate,
    link_layer,
    count,
    subnet_manager,
    address,
    firmware,
    partition,
)

"""Checks of RDMA devices, their ports and RoCE; counters are judged by a rule. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from ringleader.fabric.check_result import CheckResult, failed, passed, skipped, together, unless, warned
from ringleader.fabric.checks.check import Found, judge
from ringleader.fabric.checks.conditions import (
    active_hardware_ports,
    active_ports,
    interfaces_of,
    is_rdma_nic,
    is_routable,
    model_of,
    nccl_variable,
    port_name,
    ports,
    preferred_gid,
    usable_devices,
    usable_gpus,
)
from ringleader.fabric.facts import DeviceFile, HostFacts, NetDevice, RdmaDevice, RdmaPort
from ringleader.fabric.port_selection import is_ipv4, roce_gids
from ringleader.fabric.rate_text import bit_rate
from ringleader.fabric.transport_proof.bytes_moved import PORT_BYTES
from ringleader.fabric.versions import nccl_version, shown
from ringleader.fabric.wires import Wire

SATURATED = {
    **dict.fromkeys(("link_downed", "link_error_recovery"), 0xFF),
    **dict.fromkeys(("port_xmit_constraint_errors", "port_rcv_constraint_errors"), 0xFF),
    **dict.fromkeys(("local_link_integrity_errors", "excessive_buffer_overrun_errors"), 0xF),
    **dict.fromkeys(("symbol_error", "port_rcv_errors", "port_rcv_remote_physical_errors"), 0xFFFF),
    **dict.fromkeys(("port_xmit_discards", "port_rcv_switch_relay_errors", "VL15_dropped"), 0xFFFF),
}
"""Largest value of the counters of PortCounters (InfiniBand Architecture, 16.1.3.5), where they stop."""
GENERATIONS = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
HCA_GENERATION = {
    **dict.fromkeys(("MT4113", "MT4099"), "FDR"),
    **dict.fromkeys(("MT4115", "MT4119"), "EDR"),
    "MT4123": "HDR",
    "MT4129": "NDR",
    "MT4131": "XDR",
}
"""InfiniBand HCA → the fastest links of its generation (NVIDIA: Connect-IB and ConnectX-3 to ConnectX-8)."""


# --- devices ----------------------------------------------------------------------------------------------


def _verbs_files(facts: HostFacts) -> list[DeviceFile]:
    return [one for one in facts.rdma_files if "uverbs" in one.path]


@judge("dev.sysfs")
def sysfs(facts: HostFacts) -> CheckResult:
    if facts.rdma_devices:
        return passed(f"{len(facts.rdma_devices)} in /sys/class/infiniband")
    if facts.rdma_files:
        return failed(f"{facts.rdma_files[0].path} is there, but /sys/class/infiniband is empty")
    names = ", ".join(one.address for one in facts.pci_devices if is_rdma_nic(one))
    return warned(
        f"no RDMA device, although there is a NIC that can do RDMA ({names or 'by its verbs file'})",
        remedy="load the NIC's RDMA driver on the host: modprobe mlx5_ib (erdma, efa)",
    )


@judge("dev.chardev")
def chardev(facts: HostFacts) -> Found:
    files = _verbs_files(facts)
    if not files:
        return failed("no /dev/infiniband/uverbs* here", expected="one for each RDMA device")
    remedy = (
        "the device control group forbids it: a hostPath without privileged, or a docker run without"
        " --device; request the RDMA resource instead"
    )
    bad = (
        failed(f"cannot be opened: {one.error}", subject=one.path, remedy=remedy)
        for one in files
        if one.error
    )
    return unless(bad, f"{len(files)} in /dev/infiniband can be opened")


@judge("dev.match")
def match(facts: HostFacts) -> Iterator[CheckResult]:
    names, files = {one.name for one in facts.rdma_devices}, _verbs_files(facts)
    if not files:
        yield skipped("no uverbs file here")
        return
    usable = {one.rdma_device for one in files}
    lost = [one for one in files if one.rdma_device and one.rdma_device not in names]
    for one in lost:
        yield failed(f"belongs to {one.rdma_device}, which sysfs does not list", subject=one.path)
    if not any(usable):
        yield skipped("sysfs does not say to which device a file belongs")
    elif without := sorted(names - usable):
        yield warned(f"{', '.join(without)}: visible, but without a file here")
    elif not lost:
        yield passed(f"each of {len(names)} has its file")


@judge("dev.rdma_cm")
def connection_manager(facts: HostFacts) -> CheckResult:
    file = next((one for one in facts.rdma_files if one.path.endswith("/rdma_cm")), None)
    if all(one.driver == "efa" for one in facts.rdma_devices):
        return passed("not needed: EFA does without")
    if file is None:
        return warned("no /dev/infiniband/rdma_cm here")
    if file.error:
        return warned(f"cannot be opened: {file.error}", subject=file.path)
    return passed("can be opened")


@judge("dev.driver")
def driver(facts: HostFacts) -> Found:
    with_device = {one.pci_address for one in facts.rdma_devices}
    nics = [one for one in facts.pci_devices if is_rdma_nic(one)]
    bad = (
        warned(f"its driver is {one.driver or 'none'}, and it has no RDMA device", subject=one.address)
        for one in nics
        if one.address not in with_device
    )
    well = f"each of {len(nics)} NICs has an RDMA device"
    return unless(bad, well, known=nics, unknown="no PCI device is known that can do RDMA")


@judge("dev.guid")
def guid(facts: HostFacts) -> Found:
    known = [one for one in usable_devices(facts) if one.node_guid]
    zero = [one for one in known if not one.node_guid.strip("0:")]
    twice = {guid for guid, count in Counter(one.node_guid for one in known).items() if count > 1}
    bad = [failed("its GUID is zero", subject=one.name) for one in zero]
    bad += [
        warned(f"shares its GUID {one.node_guid}", subject=one.name)
        for one in known
        if one.node_guid in twice and one not in zero
    ]
    return unless(bad, f"{len(known)} different", known=known, unknown="no GUID is readable")


# --- ports ------------------------------------------------------------------------------------------------


@judge("port.state")
def state(facts: HostFacts) -> Found:
    found = list(ports(facts))
    bad = (
        _state(facts, device, port) for device, port in found if port.state not in ("ACTIVE", "ACTIVE_DEFER")
    )
    return unless(bad, f"{len(found)} ACTIVE", known=found, unknown="nothing to judge here")


def _beside(facts: HostFacts, device: RdmaDevice) -> list[RdmaPort]:
    """Return all ports of a device's card, whose connectors are functions of it; of a virtual one its own."""
    found = facts.pci_device(device.pci_address)
    card = device.pci_address.rpartition(".")[0]
    if not card or (found is not None and found.is_virtual_function):
        return list(device.ports)
    return [port for other, port in ports(facts) if other.pci_address.rpartition(".")[0] == card]


def _state(facts: HostFacts, device: RdmaDevice, port: RdmaPort) -> CheckResult:
    subject, remedy = port_name(device, port), ""
    if not port.state:
        return skipped("its state is not readable", subject=subject)
    if port.state == "DOWN" and any(one.state == "ACTIVE" for one in _beside(facts, device)):
        return warned("DOWN; another port of the card is ACTIVE", expected="ACTIVE", subject=subject)
    if port.state == "INIT" and port.link_layer == "InfiniBand":
        remedy = "no subnet manager has set the port up: start opensm, or look at the switch's"
    if port.state == "ARMED":
        remedy = "the subnet manager is setting it up: wait, then look at its log"
        return warned("ARMED", expected="ACTIVE", subject=subject, remedy=remedy)
    return failed(port.state, expected="ACTIVE", subject=subject, remedy=remedy)


@judge("port.phys")
def physical_state(facts: HostFacts) -> Found:
    found = [(device, port) for device, port in ports(facts) if port.physical_state]

    def bad() -> Iterator[CheckResult]:
        for device, port in found:
            if port.physical_state == "LinkUp":
                continue
            off = "somebody switched it off: ibportstate LID PORT enable, or mlxlink"
            remedy = off if "Dis" in port.physical_state else ""
            spare = any(one.physical_state == "LinkUp" for one in _beside(facts, device))
            yield (warned if spare else failed)(
                port.physical_state, expected="LinkUp", subject=port_name(device, port), remedy=remedy
            )

    return unless(bad(), f"{len(found)} LinkUp", known=found, unknown="no physical state is readable")


@judge("port.rate")
def rate(facts: HostFacts) -> Found:
    """Judge rates against those of equal boards, and InfiniBand's generation against the HCA's own."""
    known = [(device, port, port.rate) for device, port in active_ports(facts) if port.rate]
    fastest: dict[tuple[str, str], float] = {}
    for device, port, bits in known:
        key = model_of(device), port.link_layer
        fastest[key] = max(bits, fastest.get(key, 0.0))

    bad = []
    older = []
    for device, port, bits in known:
        best, subject = fastest[model_of(device), port.link_layer], port_name(device, port)
        able = HCA_GENERATION.get(device.hca_type, "") if port.link_layer == "InfiniBand" else ""
        if bits < best:
            bad.append(warned(bit_rate(bits), expected=f"{bit_rate(best)}, as its peers", subject=subject))
        elif _is_older(port.rate_text, able):
            older.append(warned(port.rate_text, expected=f"{able}, as the HCA can", subject=subject))
    bad += together(older, len(known))
    rates = " and ".join(sorted({bit_rate(bits) for _, _, bits in known}))
    return unless(bad, f"{len(known)} ports, {rates}", known=known, unknown="no active port reports its rate")


def _is_older(rate: str, able: str) -> bool:
    """Tell whether a rate as the kernel writes it, ``200 Gb/sec (4X HDR)``, is of an older generation."""
    seen = rate.rpartition(" ")[2].rstrip(")")
    return able != "" and seen in GENERATIONS and GENERATIONS.index(seen) < GENERATIONS.index(able)


@judge("port.linklayer")
def link_layer(facts: HostFacts) -> CheckResult:
    layers: dict[str, list[str]] = {}
    for device, port in active_ports(facts):
        if port.link_layer:
            layers.setdefault(port.link_layer, []).append(device.name)
    chosen = facts.environment.get("NCCL_IB_HCA")
    if not layers:
        return skipped("no active port reports its link layer")
    if len(layers) == 1:
        return passed(f"{next(iter(layers))} on all")
    if chosen:
        return passed(f"{' and '.join(sorted(layers))}; NCCL_IB_HCA={chosen} chooses")
    each = "; ".join(f"{layer}: {', '.join(sorted(set(names)))}" for layer, names in sorted(layers.items()))
    return warned(each, expected="one link layer, or NCCL_IB_HCA")


@judge("port.count")
def count(facts: HostFacts) -> CheckResult:
    active, gpus = len(active_ports(facts)), len(usable_gpus(facts))
    if active == 0:
        return failed("no port is ACTIVE", expected="at least one")
    if gpus > active and gpus % active:
        expected = f"{gpus}, or a number that divides it"
        return warned(f"{active} active ports for {gpus} GPUs", expected=expected)
    return passed(f"{active} active" + (f" for {gpus} GPUs" if gpus else ""))


@judge("port.fw")
def firmware(facts: HostFacts) -> Found:
    boards: dict[str, dict[str, list[str]]] = {}
    for one in usable_devices(facts):
        if one.firmware:
            boards.setdefault(model_of(one), {}).setdefault(one.firmware, []).append(one.name)
    bad = (
        warned(
            "; ".join(f"{version}: {', '.join(names)}" for version, names in sorted(found.items())),
            expected="one version",
            subject=board,
        )
        for board, found in boards.items()
        if len(found) > 1
    )
    well = ", ".join(sorted({version for found in boards.values() for version in found}))
    return unless(bad, well, known=boards, unknown="no device reports its firmware")


@judge("port.pkey")
def partition(facts: HostFacts) -> Found:
    found = active_ports(facts, Wire.INFINIBAND)
    bad = [
        failed("no partition key", expected="0xffff or another full member's", subject=port_name(*pair))
        for pair in found
        if not pair[1].pkeys
    ]
    bad += [
        warned(
            f"{', '.join(f'{key:#06x}' for key in port.pkeys)}: a limited member",
            expected="0x8000 or above",
            subject=port_name(device, port),
        )
        for device, port in found
        if port.pkeys and not port.pkeys[0] & 0x8000
    ]
    well = ", ".join(sorted({f"{port.pkeys[0]:#06x}" for _, port in found if port.pkeys}))
    return unless(bad, well, known=found, unknown="no active InfiniBand port")


# --- counters that no rule fits ---------------------------------------------------------------------------


@judge("port.counters")
def readable(facts: HostFacts) -> Found:
    found = active_hardware_ports(facts)
    bad = (
        warned("its byte counters cannot be read", subject=port_name(device, port))
        for device, port in found
        if not any(sent in port.counters and received in port.counters for sent, received, _ in PORT_BYTES)
    )
    unknown = "no port of a hardware device is ACTIVE"
    return unless(bad, f"{len(found)} count their bytes", known=found, unknown=unknown)


@judge("port.saturated")
def saturated(facts: HostFacts) -> Found:
    known = [(device, port) for device, port in ports(facts) if SATURATED.keys() & port.counters.keys()]
    full = {
        port_name(device, port): [name for name, most in SATURATED.items() if port.counters.get(name) == most]
        for device, port in known
    }
    bad = (
        warned(f"{', '.join(names)}: full, it counts no further", subject=subject)
        for subject, names in full.items()
        if names
    )
    well = f"none on {len(known)} {'port' if len(known) == 1 else 'ports'}"
    return unless(bad, well, known=known, unknown="no such counter is readable")


# --- RoCE -------------------------------------------------------------------------------------------------


@judge("gid.v2")
def routable(facts: HostFacts) -> Found:
    found = active_ports(facts, Wire.ROCE)

    def bad() -> Iterator[CheckResult]:
        for device, port in found:
            gid, subject = preferred_gid(port), port_name(device, port)
            if gid is None and _has_version_1_alone(port):
                yield warned(_why_none(port), expected="a RoCE v2 GID", subject=subject)
            elif gid is None:
                yield failed(_why_none(port), expected="a RoCE v2 GID with an IPv4 address", subject=subject)
            elif not is_ipv4(gid):
                remedy = "set NCCL_IB_ADDR_FAMILY=AF_INET6, or give the interface an IPv4 address"
                yield warned(f"IPv6 alone ({gid.address})", subject=subject, remedy=remedy)

    return unless(bad(), f"{len(found)} ports have one", known=found, unknown="no RoCE port is ACTIVE")


def _has_version_1_alone(port: RdmaPort) -> bool:
    """Tell whether a port has an IP address here, but only for RoCE v1."""
    found = [one for one in roce_gids(port) if one.netdev]
    return bool(found) and all(one.kind == "IB/RoCE v1" for one in found)


def _why_none(port: RdmaPort) -> str:
    if not port.gids:
        return "its GID table is empty"
    if not any(one.netdev for one in port.gids):
        return "none of its GIDs has an interface in this network namespace"
    if not any(one.kind == "RoCE v2" for one in port.gids):
        return "RoCE v1 alone, which is not routed"
    return "link-local RoCE v2 alone"


@judge("gid.index")
def index(facts: HostFacts) -> Found:
    version = nccl_version(facts)
    text = nccl_variable(facts, "NCCL_IB_GID_INDEX").strip()
    if text and text != "-1":
        return _chosen_index(facts, text)
    if version is None:
        return skipped("not set, and no NCCL is known here")
    if version >= (2, 21):
        return passed(f"not set: NCCL {shown(version)} chooses")
    seen = f"not set: NCCL {shown(version)} takes index 0"
    bad = []
    for device, port in active_ports(facts, Wire.ROCE):
        gid = preferred_gid(port)
        if gid is None or not any(one.index == 0 and is_routable(one) for one in port.gids):
            remedy = f"set NCCL_IB_GID_INDEX={gid.index}, or use NCCL 2.21 or newer" if gid else ""
            bad.append(failed(seen, subject=port_name(device, port), remedy=remedy))
    return unless(bad, f"{seen}, a routable RoCE v2 GID")


def _chosen_index(facts: HostFacts, text: str) -> Found:
    if not text.isdecimal():
        return failed(f"NCCL_IB_GID_INDEX={text}", expected="a number")
    bad = []
    for device, port in active_ports(facts, Wire.ROCE):
        gid = next((one for one in port.gids if one.index == int(text)), None)
        if gid is None or not is_routable(gid):
            right = preferred_gid(port)
            what = f"{gid.kind or 'of unknown kind'}, {gid.address}" if gid else "empty"
            bad.append(
                failed(
                    f"NCCL_IB_GID_INDEX={int(text)} is {what}",
                    expected=f"index {right.index}" if right else "a routable RoCE v2 GID",
                    subject=port_name(device, port),
                )
            )
    return unless(bad, f"index {int(text)} is a routable RoCE v2 GID on each port")


def _interfaces(facts: HostFacts) -> list[NetDevice]:
    found = (one for pair in active_ports(facts, Wire.ROCE) for one in interfaces_of(facts, *pair))
    return list({one.name: one for one in found}.values())


def _of_interfaces(facts: HostFacts, bad: Iterable[CheckResult], well: str) -> Found:
    unknown = "no interface of a RoCE port is in this network namespace"
    return unless(bad, well, known=_interfaces(facts), unknown=unknown)


@judge("roce.address")
def interface_address(facts: HostFacts) -> Found:
    found = _interfaces(facts)
    bad = (
        warned(", ".join(one.addresses) or "no address", subject=one.name)
        for one in found
        if all(address.startswith(("fe80:", "169.254.")) for address in one.addresses)
    )
    return _of_interfaces(facts, bad, f"{len(found)} have one")


@judge("roce.tc")
def traffic_class(facts: HostFacts) -> Found:
    """Judge the traffic class by the priorities that are lossless, where the interfaces tell them."""
    text = nccl_variable(facts, "NCCL_IB_TC").strip()
    if not text and not any(device.pci_address for device, _ in ports(facts, Wire.ROCE)):
        return skipped("RoCE is made in software here")
    is_set = text not in ("", "0", "-1")
    if is_set and (not text.isdecimal() or int(text) > 255):
        return failed(f"NCCL_IB_TC={text}", expected="0 to 255")
    bad = []
    for device, port in active_ports(facts, Wire.ROCE):
        asked = int(text) if is_set else 0
        code = (asked if device.traffic_class is None else device.traffic_class) >> 2
        for interface in interfaces_of(facts, device, port):
            lossless, priority = interface.pfc or (), interface.dscp.get(code, 0)
            if lossless and interface.dscp and priority not in lossless:
                what = f"NCCL_IB_TC={text}" if is_set else "NCCL_IB_TC is not set"
                seen = f"{what}: DSCP {code} goes in priority {priority}, which is not lossless"
                expected = f"priority {', '.join(map(str, lossless))}"
                bad.append(warned(seen, expected=expected, subject=interface.name))
    return unless(bad, f"NCCL_IB_TC={text}" if is_set else "not set")


@judge("roce.pfc")
def flow_control(facts: HostFacts) -> Found:
    """Judge which priorities are lossless: the same few on all ports."""
    known = {one.name: one.pfc for one in _interfaces(facts) if one.pfc is not None}
    usual = Counter(known.values()).most_common(1)[0][0] if known else ()
    words = {name: ", ".join(map(str, found)) or "none" for name, found in known.items()}
    bad = [
        warned(f"on priority {words[name]}", expected=", ".join(map(str, usual)) or "none", subject=name)
        for name, found in known.items()
        if found != usual
    ]
    bad += [
        warned("on all priorities", expected="on those of RDMA", subject=name)
        for name, found in known.items()
        if len(found) == 8 and found == usual
    ]
    unknown = "no interface reports it (DCB is not supported, or it is in another network namespace)"
    return unless(bad, f"on priority {next(iter(words.values()), '')}", known=known, unknown=unknown)


@judge("roce.ecn")
def congestion_notification(facts: HostFacts) -> Found:
    """Judge whether lossless priorities also have ECN, which brakes senders before pauses spread."""
    known = [one for one in _interfaces(facts) if one.ecn is not None]
    bad = (
        warned(f"off on priority {', '.join(map(str, off))}", expected="on", subject=one.name)
        for one in known
        if (off := [priority for priority in one.pfc or () if priority not in (one.ecn or ())])
    )
    return unless(
        bad, f"{len(known)} ports", known=known, unknown="no interface reports it (/sys/class/net/*/ecn)"
    )

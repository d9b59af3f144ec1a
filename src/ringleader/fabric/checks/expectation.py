"""What every host of a cluster is expected to have: a profile, and hosts held against it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks.conditions import active_ports, hardware_interfaces, usable_gpus
from ringleader.fabric.checks.limits import GIB
from ringleader.fabric.facts import UNLIMITED, HostFacts
from ringleader.fabric.rate_text import bit_rate
from ringleader.fabric.unread_areas import UnreadError, known
from ringleader.fabric.versions import nccl_version, shown, version_of
from ringleader.fabric.wires import wire_of_port


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """A profile of a host. ``None`` and empty: nothing is expected."""

    rdma_ports: int | None = None
    """Active RDMA ports, at least."""
    rdma_rate: float | None = None
    """Bits per second of each of as many ports, at least."""
    rdma_wire: str = ""
    """``infiniband``, ``roce``, ``iwarp``, ``efa``: that of the active ports."""
    rdma_firmware: str = ""
    """The oldest."""
    gpu_count: int | None = None
    """GPUs, at least."""
    gpu_name: str = ""
    """A part of each GPU's name: ``H100``."""
    gpu_memory: int | None = None
    """Bytes of each GPU, at least."""
    gpu_driver: str = ""
    """The oldest."""
    pci_width: int | None = None
    """Lanes of each GPU and RDMA NIC, at least."""
    network_mtu: int | None = None
    """MTU of each card that is up, at least."""
    network_speed: float | None = None
    """Bits per second of the fastest card, at least."""
    memlock: int | None = None
    """Bytes that may be locked, at least; ``UNLIMITED``: no limit."""
    nofile: int | None = None
    shm: int | None = None
    """Bytes of /dev/shm, at least."""
    processors: int | None = None
    memory: int | None = None
    kernel: str = ""
    """The oldest."""
    modules: tuple[str, ...] = ()
    """Kernel modules that are loaded."""
    nccl: str = ""
    """The oldest."""
    mpi: str = ""
    """The family: ``Open MPI``."""
    mpi_version: str = ""
    """The oldest."""
    python: str = ""
    """The oldest."""


def judge_expectation(facts: HostFacts, expectation: Expectation) -> tuple[CheckResult, ...]:
    """Return one verdict for each thing that is expected: pass, fail, or skip where it is not known."""
    found: list[CheckResult] = []
    for name, judge in JUDGES.items():
        wanted = getattr(expectation, name)
        if wanted is not None and wanted not in ("", ()):
            try:
                found += list(judge(known(facts), expectation))
            except UnreadError as unread:
                found.append(_result(name, None, str(unread), str(wanted)))
    return tuple(found)


REMEDIES = {
    "rdma_ports": "look which port is missing or not ACTIVE: port.state, dev.driver",
    "rdma_rate": "the link was trained down, or is another kind: look at the cable and at the switch",
    "rdma_wire": "use hosts of one kind, or name the common devices in NCCL_IB_HCA",
    "gpu_count": "look whether a GPU is gone (dmesg: Xid 79), or was not given to this container: gpu.given",
    "gpu_name": "this is another kind of host: take it out of the job, or give it a profile of its own",
    "gpu_memory": "this is another kind of host: take it out of the job, or give it a profile of its own",
    "pci_width": "reseat the card or riser; look into the BIOS for bifurcation of the slot",
    "network_mtu": "ip link set DEV mtu …, and in the network's configuration",
    "network_speed": "look at the cable, the transceiver and the speed of the switch's port: ethtool DEV",
    "memlock": "raise it in limits.conf, sshd's unit or the container runtime: limit.memlock",
    "nofile": "raise it in limits.conf or the container runtime: limit.nofile",
    "shm": "Docker: --shm-size; Kubernetes: the sizeLimit of the emptyDir at /dev/shm",
    "processors": "ask the batch system or the cluster for more processors",
    "memory": "look whether a memory module has failed: dmidecode -t memory",
    "modules": "load them on the host: modprobe …, and in /etc/modules-load.d",
    "mpi": "install that MPI, or choose it: --mpi",
}
"""Field of ``Expectation`` → what to do where a host has less; of versions: update."""


def _result(name: str, good: bool | None, seen: str, expected: str, subject: str = "") -> CheckResult:
    verdict = Verdict.SKIP if good is None else Verdict.PASS if good else Verdict.FAIL
    remedy = REMEDIES.get(name, "update it, or ask for less in the profile") if good is False else ""
    return CheckResult(
        id=f"expect.{name.replace('_', '-')}",
        verdict=verdict,
        seen=seen,
        expected=expected,
        remedy=remedy,
        subject=subject,
    )


Judge = Callable[[HostFacts, Expectation], Iterator[CheckResult]]


def _number(name: str, read: Callable[[HostFacts], float | None], show: Callable[[float], str]) -> Judge:
    """Return a judge of a number that must be reached; ``UNLIMITED`` reaches all."""

    def judge(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
        value, wanted = read(facts), getattr(expectation, name)
        expected = "unlimited" if wanted == UNLIMITED else f"{show(wanted)} or more"
        if value is None:
            yield _result(name, None, "not known", expected)
        else:
            good = value == UNLIMITED or (wanted != UNLIMITED and value >= wanted)
            yield _result(name, good, "unlimited" if value == UNLIMITED else show(value), expected)

    return judge


def _version(name: str, read: Callable[[HostFacts], str]) -> Judge:
    """Return a judge of the oldest version that will do."""

    def judge(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
        wanted = getattr(expectation, name)
        value, least = read(facts), version_of(wanted)
        seen = version_of(value)
        good = None if seen is None or least is None else seen >= least
        yield _result(name, good, value or "not known", f"{wanted} or newer")

    return judge


def _plain(value: float) -> str:
    return f"{value:,.0f}"


def _bytes(value: float) -> str:
    return byte_size(int(value))


def _limit(name: str) -> Callable[[HostFacts], float | None]:
    def read(facts: HostFacts) -> float | None:
        limit = facts.process.limits.get(name)
        return limit.soft if limit else None

    return read


def _nccl(facts: HostFacts) -> str:
    return shown(nccl_version(facts) or ())


def _mpi_version(facts: HostFacts) -> str:
    return next((one.version for one in facts.software.mpis), "")


def _oldest_firmware(facts: HostFacts) -> str:
    versions = [one.firmware for one in facts.rdma_devices if version_of(one.firmware)]
    return min(versions, key=lambda one: version_of(one) or (), default="")


def _gpu_memory(facts: HostFacts) -> float | None:
    known = [one.memory for one in usable_gpus(facts) if one.memory]
    return min(known) if known else None


def _network_mtu(facts: HostFacts) -> float | None:
    return min((one.mtu for one in hardware_interfaces(facts) if one.mtu), default=None)


def _network_speed(facts: HostFacts) -> float | None:
    return max((one.speed for one in hardware_interfaces(facts) if one.speed), default=None)


def _rates(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
    """Judge as many ports as are expected, the fastest: a host may have slower ones for its storage."""
    rates = sorted((port.rate for _, port in active_ports(facts) if port.rate), reverse=True)
    judged = rates[: expectation.rdma_ports or None]
    wanted = expectation.rdma_rate or 0.0
    good = judged[-1] >= wanted if judged else None
    seen = bit_rate(judged[-1]) if judged else "not known"
    yield _result("rdma_rate", good, seen, f"{bit_rate(wanted)} or more")


def _wire(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
    wanted = expectation.rdma_wire
    wires = Counter(wire_of_port(device, port).value for device, port in active_ports(facts))
    seen = ", ".join(sorted(wires)) or "no active port"
    yield _result("rdma_wire", set(wires) == {wanted}, seen, wanted)


def _gpu_name(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
    wanted = expectation.gpu_name
    names = sorted({one.name for one in usable_gpus(facts)})
    good = None if names == [""] else bool(names) and all(wanted in one for one in names)
    yield _result("gpu_name", good, ", ".join(filter(None, names)) or "not known", wanted)


def _pci_width(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
    wanted = expectation.pci_width or 0
    known = _widths(facts)
    narrow = {address: lanes for address, lanes in known.items() if lanes < wanted}
    for address, lanes in narrow.items():
        yield _result("pci_width", False, f"{lanes} lanes", f"{wanted} or more", address)
    if not narrow:
        seen = f"{len(known)} links" if known else "not known"
        yield _result("pci_width", True if known else None, seen, f"{wanted} or more")


def _widths(facts: HostFacts) -> dict[str, int]:
    """Return the lanes of each GPU and RDMA NIC that tells them, by PCI address."""
    addresses = [
        *(one.pci_address for one in usable_gpus(facts)),
        *(one.pci_address for one in facts.rdma_devices),
    ]
    found = {address: facts.pci_device(address) for address in addresses}
    return {address: one.link_width for address, one in found.items() if one and one.link_width}


def _modules(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
    lost = [name for name in expectation.modules if name not in facts.modules]
    good = None if not facts.modules else not lost
    seen = (
        "not known" if not facts.modules else f"not loaded: {', '.join(lost)}" if lost else "all are loaded"
    )
    yield _result("modules", good, seen, ", ".join(expectation.modules))


def _mpi(facts: HostFacts, expectation: Expectation) -> Iterator[CheckResult]:
    wanted = expectation.mpi
    first = next(iter(facts.software.mpis), None)
    yield _result(
        "mpi", first is not None and first.family == wanted, first.family if first else "none", str(wanted)
    )


JUDGES: dict[str, Judge] = {
    "rdma_ports": _number("rdma_ports", lambda facts: len(active_ports(facts)), _plain),
    "rdma_rate": _rates,
    "rdma_wire": _wire,
    "rdma_firmware": _version("rdma_firmware", _oldest_firmware),
    "gpu_count": _number("gpu_count", lambda facts: len(usable_gpus(facts)), _plain),
    "gpu_name": _gpu_name,
    "gpu_memory": _number("gpu_memory", _gpu_memory, _bytes),
    "gpu_driver": _version("gpu_driver", lambda facts: facts.nvidia.version),
    "pci_width": _pci_width,
    "network_mtu": _number("network_mtu", _network_mtu, _plain),
    "network_speed": _number("network_speed", _network_speed, bit_rate),
    "memlock": _number("memlock", _limit("memlock"), _bytes),
    "nofile": _number("nofile", _limit("nofile"), _plain),
    "shm": _number("shm", lambda facts: facts.shm_size, _bytes),
    "processors": _number("processors", lambda facts: facts.process.cpus, _plain),
    "memory": _number("memory", lambda facts: facts.memory, _bytes),
    "kernel": _version("kernel", lambda facts: facts.kernel),
    "modules": _modules,
    "nccl": _version("nccl", _nccl),
    "mpi": _mpi,
    "mpi_version": _version("mpi_version", _mpi_version),
    "python": _version("python", lambda facts: facts.software.python),
}
"""Field of ``Expectation`` → its judge."""


def expectation_of(facts: HostFacts) -> Expectation:
    """Return the profile of a host as it is, to hold its peers against.

    Of memory and /dev/shm 95 %, in whole GiB: equal hosts differ by what their firmware keeps.
    """
    wires = {wire_of_port(device, port).value for device, port in active_ports(facts)}
    names = {one.name for one in usable_gpus(facts)}
    mpi = next(iter(facts.software.mpis), None)
    memlock, nofile = (facts.process.limits.get(name) for name in ("memlock", "nofile"))
    return Expectation(
        rdma_ports=len(active_ports(facts)) or None,
        rdma_rate=min((port.rate for _, port in active_ports(facts) if port.rate), default=None),
        rdma_wire=wires.pop() if len(wires) == 1 else "",
        rdma_firmware=_oldest_firmware(facts),
        gpu_count=len(usable_gpus(facts)) or None,
        gpu_name=names.pop() if len(names) == 1 else "",
        gpu_memory=min((one.memory for one in usable_gpus(facts) if one.memory), default=None),
        gpu_driver=_known(facts.nvidia.version),
        pci_width=min(_widths(facts).values(), default=None),
        network_mtu=min((one.mtu for one in hardware_interfaces(facts) if one.mtu), default=None),
        network_speed=_network_speed(facts),
        memlock=memlock.soft if memlock else None,
        nofile=nofile.soft if nofile else None,
        shm=_about(facts.shm_size),
        processors=facts.process.cpus,
        memory=_about(facts.memory),
        kernel=_known(facts.kernel),
        modules=tuple(name for name in ("ib_uverbs", "nvidia_peermem", "rdma_ucm") if name in facts.modules),
        nccl=_nccl(facts),
        mpi=mpi.family if mpi else "",
        mpi_version=_known(mpi.version if mpi else ""),
        python=_known(facts.software.python),
    )


def _about(size: int | None) -> int | None:
    return int(size * 0.95) // GIB * GIB or None if size else None


def _known(version: str) -> str:
    return version if version_of(version) else ""

"""Quantities of a host: how each is read, shown, compared and written into a profile; no limits. Pure.

Rows of ``checks.toml`` name a quantity to judge it (``least``, ``alike``), to compare hosts by it, and to
expect it in a profile. Longer than others, as it is one table: to read a quantity takes two or three lines,
and a second module would only make a reader look in both.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.checks.conditions import (
    active_hardware_ports,
    active_ports,
    gpu_name,
    hardware_interfaces,
    interfaces_of,
    model_of,
    nvidia_gpus,
    pci_devices_of,
    port_name,
    preferred_gid,
    usable_devices,
    usable_gpus,
)
from ringleader.fabric.facts import UNLIMITED, Gpu, HostFacts, NetDevice, RdmaDevice, RdmaPort
from ringleader.fabric.rate_text import bit_rate
from ringleader.fabric.versions import first_mpi, nccl_version, shown, version_of
from ringleader.fabric.wires import RDMA, Wire, wire_of_port

SIZES = {"": 1, "bytes": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
RATES = {"bit/s": 1.0, "kbit/s": 1e3, "Mbit/s": 1e6, "Gbit/s": 1e9, "Tbit/s": 1e12}
WIRES = tuple(sorted(one.value for one in RDMA))
GIB = 1 << 30


class WrongValueError(ValueError):
    """What a value of a profile should have been."""


# --- units ------------------------------------------------------------------------------------------------


def _at_least(value: Any, wanted: Any) -> bool | None:
    return bool(value == UNLIMITED or (wanted != UNLIMITED and value >= wanted))


def _not_older(value: str, oldest: str) -> bool | None:
    seen, least = version_of(value), version_of(oldest)
    return None if seen is None or least is None else seen >= least


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise WrongValueError("an integer, 0 or more")
    return value


def _size(value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return int(_with_unit(value, SIZES, 'a size: 64, "8 GiB", "512 MiB"'))


def _or_unlimited(parse: Callable[[Any], int]) -> Callable[[Any], int]:
    def parsed(value: Any) -> int:
        try:
            return UNLIMITED if value == "unlimited" else parse(value)
        except WrongValueError as error:
            raise WrongValueError(f'{error} or "unlimited"') from None

    return parsed


def _with_unit(value: Any, units: Mapping[str, float], wanted: str) -> float:
    text = value if isinstance(value, str) else ""
    match = re.fullmatch(r"\s*(\d{1,24}(?:\.\d{1,24})?)\s*(\S*)\s*", text)
    if match is None or match[2] not in units:
        raise WrongValueError(wanted)
    return (float(match[1]) if "." in match[1] else int(match[1])) * units[match[2]]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        raise WrongValueError("text")
    return value


def _version(value: Any) -> str:
    if not isinstance(value, str) or version_of(value) is None or not value.isprintable():
        raise WrongValueError('a version as text: "2.21.5"')
    return value


def _wire(value: Any) -> str:
    if value not in WIRES:
        raise WrongValueError(f"one of {', '.join(WIRES)}")
    return str(value)


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(
        isinstance(one, str) and one.isprintable() and one for one in value
    ):
        raise WrongValueError("a list of names")
    return tuple(value)


def _quoted(value: Any) -> str:
    # JSON's strings are TOML's basic strings, but for the letters beyond U+FFFF, which JSON writes as two.
    return json.dumps(value, ensure_ascii=False)


def _written_size(value: int) -> str:
    unit = next((unit for unit in ("TiB", "GiB", "MiB", "KiB") if value and value % SIZES[unit] == 0), "")
    return f'"{value // SIZES[unit]} {unit}"' if unit else str(value)


def _written_rate(value: float) -> str:
    unit = next((unit for unit in ("Gbit/s", "Mbit/s") if value % RATES[unit] == 0), "bit/s")
    return f'"{value / RATES[unit]:.0f} {unit}"'


@dataclass(frozen=True, kw_only=True)
class Unit:
    """How values of a kind are shown, compared with what is wanted, and written into a profile."""

    show: Callable[[Any], str] = str
    meets: Callable[[Any, Any], bool | None] = _at_least
    """A value and what is wanted → whether it is reached; ``None``: not known."""
    more: str = "{} or more"
    """What is wanted, as text with the shown value."""
    parse: Callable[[Any], Any] = _count
    """Raises ``WrongValueError``."""
    write: Callable[[Any], str] = str

    def wanted(self, value: Any) -> str:
        """Return what is wanted as text: ``8 GiB or more``, ``unlimited``."""
        return self.show(value) if value == UNLIMITED else self.more.format(self.show(value))


def _or(show: Callable[[Any], str], word: str = "unlimited") -> Callable[[Any], str]:
    return lambda value: word if value == UNLIMITED else show(value)


def _plain(value: float) -> str:
    return f"{value:,.0f}"


COUNT = Unit(show=_plain)
NUMBER = Unit(show=_or(str, "no limit"))
LIMIT = Unit(show=_or(_plain), parse=_or_unlimited(_count), write=_or(str, '"unlimited"'))
SIZE = Unit(show=byte_size, parse=_size, write=_written_size)
LIMITED_SIZE = Unit(show=_or(byte_size), parse=_or_unlimited(_size), write=_or(_written_size, '"unlimited"'))
RATE = Unit(
    show=bit_rate, parse=lambda value: _with_unit(value, RATES, 'a rate with its unit: "400 Gbit/s"'),
    write=_written_rate,
)  # fmt: skip
VERSION = Unit(
    show=lambda value: value or "not known", meets=_not_older, more="{} or newer", parse=_version,
    write=_quoted,
)  # fmt: skip
TEXT = Unit(meets=lambda value, wanted: bool(value == wanted), more="{}", parse=_text, write=_quoted)
WIRE = Unit(
    show=lambda value: value or "no active port", meets=TEXT.meets, more="{}", parse=_wire, write=_quoted
)
PARTS = Unit(
    show=lambda value: value if isinstance(value, str) else ", ".join(filter(None, value)) or "not known",
    meets=lambda names, part: bool(names) and all(part in one for one in names),
    more="{}", parse=_text, write=_quoted,
)  # fmt: skip
NAMES = Unit(
    show=", ".join, meets=lambda there, wanted: set(wanted) <= set(there), more="{}", parse=_names,
    write=lambda value: f"[{', '.join(map(_quoted, value))}]",
)  # fmt: skip
WATTS = Unit(show=lambda value: f"{value:.0f} W")


# --- quantities -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """One value of a host, or one for each of several subjects."""

    read: Callable[[HostFacts], Any]
    """``None`` and empty text: not known; a mapping: subject → value."""
    unit: Unit = TEXT
    compared: Callable[[Any], str] | None = None
    """How hosts show it beside each other; ``None``: as always."""
    absent: str = ""
    """How hosts show that it is ``None``; empty: it is not compared."""
    reduced: Callable[[Any], Any] = lambda value: value
    """The value read → the one that a profile is about."""
    typical: Callable[[Any], Any] = lambda value: value
    """That value → what a profile of this host says; ``None`` and empty: nothing."""

    def texts(self, facts: HostFacts) -> dict[str, str | None]:
        """Return subject → value as hosts are compared by it; ``None``: not known."""
        value, show = self.read(facts), self.compared or self.unit.show
        values = value if isinstance(value, Mapping) else {"": value}
        return {
            subject: (self.absent or None) if one is None else (show(one) or None) if one != "" else None
            for subject, one in values.items()
        }


def _limit(name: str) -> Callable[[HostFacts], int | None]:
    return lambda facts: found.soft if (found := facts.process.limits.get(name)) else None


def _library(name: str) -> Callable[[HostFacts], str | None]:
    def read(facts: HostFacts) -> str | None:
        found = facts.library(name)
        return None if found is None else found.version if found.path else "not installed"

    return read


def _rates(facts: HostFacts) -> tuple[float, ...]:
    return tuple(sorted((port.rate for _, port in active_ports(facts) if port.rate), reverse=True))


def _counted_rates(rates: tuple[float, ...]) -> str:
    counts = Counter(map(bit_rate, rates))
    return ", ".join(f"{count} × {rate}" for rate, count in sorted(counts.items()))


def _wires(facts: HostFacts) -> str:
    return ", ".join(sorted({wire_of_port(device, port).value for device, port in active_ports(facts)}))


def _firmware(facts: HostFacts) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for one in usable_devices(facts):
        if one.firmware:
            found.setdefault(model_of(one), set()).add(one.firmware)
    return {board: tuple(sorted(versions)) for board, versions in found.items()}


def _oldest(boards: Mapping[str, tuple[str, ...]]) -> str:
    versions = [one for each in boards.values() for one in each if version_of(one)]
    return min(versions, key=lambda one: version_of(one) or (), default="")


def _gpu_names(facts: HostFacts) -> tuple[str, ...] | None:
    names = tuple(sorted({one.name for one in usable_gpus(facts)}))
    return None if names == ("",) else names


def _gpu_models(facts: HostFacts) -> str:
    found = {(one.name, byte_size(one.memory) if one.memory else "") for one in usable_gpus(facts)}
    known = all(name for name, _ in found)
    return ", ".join(sorted(f"{name} {size}".rstrip() for name, size in found)) if known else ""


def _roce_mtu(facts: HostFacts) -> str:
    gids = [preferred_gid(port) for _, port in active_ports(facts, Wire.ROCE)]
    names = {gid.netdev for gid in gids if gid is not None}
    values = {one.mtu for one in facts.net_devices if one.name in names and one.mtu is not None}
    return ", ".join(str(value) for value in sorted(values))


def _fastest_mtu(facts: HostFacts) -> int | None:
    """Return the least MTU of the fastest cards: the one for management may differ."""
    cards = [one for one in hardware_interfaces(facts) if one.mtu]
    fastest = max((one.speed or 0.0 for one in cards), default=0.0)
    return min((one.mtu for one in cards if one.mtu and (one.speed or 0.0) == fastest), default=None)


def _mpi(facts: HostFacts) -> str:
    mpi = first_mpi(facts)
    return f"{mpi.family} {mpi.version}" if mpi else "none"


def _about(size: int | None) -> int | None:
    """Return 95% in whole GiB: equal hosts differ by what their firmware keeps."""
    return int(size * 0.95) // GIB * GIB or None if size else None


def _rounded(size: int) -> str:
    return f"about {byte_size(round(size / (8 * GIB)) * 8 * GIB or 8 * GIB)}"


def _cpus(facts: HostFacts) -> str:
    quota = facts.control_group.cpus
    return f"{facts.process.cpus} processors" + (f", quota {quota:g}" if quota is not None else "")


MODULES = ("ib_uverbs", "rdma_ucm", "nvidia_peermem", "gdrdrv", "xpmem")
"""Kernel modules that all hosts should have, or none."""
PROFILE_MODULES = ("ib_uverbs", "nvidia_peermem", "rdma_ucm")
"""Those that a profile names where they are loaded."""
OWN_VARIABLES = (
    *("PCIDEVICE_", "NVIDIA_", "RINGLEADER_", "HOROVOD_", "HYDRA_HOST", "OMPI_MCA_orte_", "OMPI_MCA_ess_"),
    *("PRTE_MCA_ess_", "PRTE_MCA_prte_base", "PMIX_MCA_pmix_base"),
    # No transport follows from these, and Ringleader sets them for each rank.
    *("NCCL_DEBUG", "UCX_LOG_", "OMP_NUM_THREADS"),
)
"""What variables start with that have another value on each host."""


def _environment(facts: HostFacts) -> dict[str, str]:
    return {name: value for name, value in facts.environment.items() if not name.startswith(OWN_VARIABLES)}


def _widths(facts: HostFacts) -> dict[str, int]:
    """Return PCI address → lanes, but for GPUs that this container was not given."""
    foreign = {one.pci_address for one in facts.gpus} - {one.pci_address for one in usable_gpus(facts)}
    found = (one for one in pci_devices_of(facts) if one.address not in foreign)
    return {one.address: one.link_width for one in found if one.link_width}


def _modules(facts: HostFacts) -> dict[str, str]:
    names = MODULES if facts.modules else ()
    return {name: "loaded" if name in facts.modules else "not loaded" for name in names}


def _of_gpus(read: Callable[[Gpu], Any]) -> Callable[[HostFacts], dict[str, Any]]:
    def values(facts: HostFacts) -> dict[str, Any]:
        found = {gpu_name(one): read(one) for one in nvidia_gpus(facts)}
        return {name: value for name, value in found.items() if value is not None}

    return values


def _of_roce(read: Callable[[NetDevice], Any]) -> Callable[[HostFacts], dict[str, Any]]:
    def values(facts: HostFacts) -> dict[str, Any]:
        pairs = active_hardware_ports(facts, Wire.ROCE)
        found = {one.name: read(one) for pair in pairs for one in interfaces_of(facts, *pair)}
        return {name: value for name, value in found.items() if value is not None}

    return values


def _priorities(interface: NetDevice) -> str | None:
    return None if interface.pfc is None else ", ".join(map(str, interface.pfc)) or "none"


def _of_ports(read: Callable[[RdmaPort], Any]) -> Callable[[HostFacts], dict[str, Any]]:
    return lambda facts: {port_name(*pair): read(pair[1]) for pair in active_ports(facts, Wire.INFINIBAND)}


def _made(device: RdmaDevice) -> str:
    software = f"software over {device.parent}" if device.parent else "software"
    return "hardware" if device.pci_address else software


def _remapped(gpu: Gpu) -> str | None:
    if gpu.remap_pending is None:
        return None
    return "failed" if gpu.remap_failed else "is pending" if gpu.remap_pending else "is not needed"


def _switch(value: bool | None) -> str | None:
    return None if value is None else "on" if value else "off"


def _uvm(facts: HostFacts) -> str | None:
    if not facts.modules:
        return None
    return "nvidia_uvm" if "nvidia_uvm" in facts.modules else "nvidia_uvm is not loaded"


def _largest_buffers(facts: HostFacts) -> dict[str, int]:
    found = {name: facts.sysctls.get(name, "").split() for name in ("net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem")}
    largest = {name: number(words[2]) for name, words in found.items() if len(words) == 3}
    return {name: value for name, value in largest.items() if value is not None}


def number(text: str) -> int | None:
    """Return the decimal number that a text is; ``None``: it is none."""
    return int(text) if text.isascii() and text.isdecimal() else None


def _single(names: Any) -> str:
    return names[0] if names and len(names) == 1 else ""


def _known(version: str) -> str:
    return version if version_of(version) else ""


QUANTITIES: Mapping[str, Quantity] = {
    "rdma-ports": Quantity(
        read=lambda facts: len(active_ports(facts)), unit=COUNT, typical=lambda count: count or None
    ),
    "rdma-rate": Quantity(
        read=_rates, unit=RATE, compared=_counted_rates, reduced=lambda rates: min(rates, default=None)
    ),
    "rdma-wire": Quantity(
        read=_wires, unit=WIRE, compared=str, typical=lambda text: "" if "," in text else text
    ),
    "rdma-firmware": Quantity(read=_firmware, unit=VERSION, compared=", ".join, reduced=_oldest),
    "gpu-count": Quantity(
        read=lambda facts: len(usable_gpus(facts)), unit=COUNT, typical=lambda count: count or None
    ),
    "gpu-name": Quantity(read=_gpu_names, unit=PARTS, typical=_single),
    "gpu-model": Quantity(read=_gpu_models),
    "gpu-memory": Quantity(
        read=lambda facts: min((one.memory for one in usable_gpus(facts) if one.memory), default=None),
        unit=SIZE,
    ),
    "gpu-driver": Quantity(read=lambda facts: facts.nvidia.version, unit=VERSION, typical=_known),
    "rdma-made": Quantity(read=lambda facts: {one.name: _made(one) for one in facts.rdma_devices}),
    "sm-lid": Quantity(read=_of_ports(lambda port: port.sm_lid), unit=NUMBER),
    "lid": Quantity(read=_of_ports(lambda port: port.lid), unit=NUMBER),
    "roce-link": Quantity(
        read=lambda facts: {
            one.name: "up" if one.up else "down"
            for pair in active_ports(facts, Wire.ROCE)
            for one in interfaces_of(facts, *pair)
        }
    ),
    "gpu-mig": Quantity(read=_of_gpus(lambda gpu: _switch(gpu.mig))),
    "gpu-persistence": Quantity(read=_of_gpus(lambda gpu: _switch(gpu.persistence))),
    "gpu-errors": Quantity(read=_of_gpus(lambda gpu: gpu.uncorrected_errors), unit=NUMBER),
    "gpu-remapping": Quantity(read=_of_gpus(_remapped)),
    "nvml": Quantity(read=lambda facts: facts.nvidia.nvml),
    "fabric-manager": Quantity(read=lambda facts: facts.nvidia.fabric_manager.replace("unknown", "")),
    "uvm-module": Quantity(read=_uvm),
    "relaxed-ordering": Quantity(
        read=lambda facts: {
            one.address: _switch(one.relaxed_ordering) for one in pci_devices_of(facts, "rdma")
        }
    ),
    "stack": Quantity(read=_limit("stack"), unit=LIMITED_SIZE),
    "gpu-power": Quantity(read=_of_gpus(lambda gpu: gpu.power_limit), unit=WATTS),
    "pci-width": Quantity(
        read=_widths,
        unit=COUNT,
        typical=lambda lanes: min(lanes.values(), default=None),
    ),
    "network-mtu": Quantity(read=_fastest_mtu, unit=COUNT),
    "network-speed": Quantity(
        read=lambda facts: max((one.speed for one in hardware_interfaces(facts) if one.speed), default=None),
        unit=RATE,
    ),
    "mtu": Quantity(
        # Names that all hosts have are of one network in most clusters.
        read=lambda facts: {
            one.name: one.mtu
            for one in facts.net_devices
            if one.mtu is not None and one.up and one.kind != "loopback" and not one.name.startswith("veth")
        },
        unit=NUMBER,
    ),
    "roce-mtu": Quantity(read=_roce_mtu),
    "roce-frames": Quantity(read=_of_roce(lambda interface: interface.mtu), unit=NUMBER),
    "pfc": Quantity(read=_of_roce(_priorities)),
    "tcp-buffers": Quantity(read=_largest_buffers, unit=NUMBER),
    "memlock": Quantity(read=_limit("memlock"), unit=LIMITED_SIZE),
    "nofile": Quantity(read=_limit("nofile"), unit=LIMIT, compared=_or(str)),
    "pids": Quantity(
        read=lambda facts: UNLIMITED if (most := facts.control_group.processes) is None else most,
        unit=NUMBER,
    ),
    "maps": Quantity(
        read=lambda facts: (
            int(text) if (text := facts.sysctls.get("vm.max_map_count", "")).isdecimal() else None
        ),
        unit=NUMBER,
    ),
    "shm": Quantity(read=lambda facts: facts.shm_size, unit=SIZE, absent="no /dev/shm", typical=_about),
    "processors": Quantity(read=lambda facts: facts.process.cpus, unit=COUNT),
    "cpus": Quantity(read=_cpus),
    "memory": Quantity(read=lambda facts: facts.memory, unit=SIZE, compared=_rounded, typical=_about),
    "numa": Quantity(read=lambda facts: len(facts.numa_nodes) or None, unit=NUMBER),
    "architecture": Quantity(read=lambda facts: facts.architecture),
    "kernel": Quantity(read=lambda facts: facts.kernel, unit=VERSION, typical=_known),
    "system": Quantity(read=lambda facts: facts.system),
    "container": Quantity(read=lambda facts: facts.container or "no container"),
    "governor": Quantity(read=lambda facts: ", ".join(facts.cpu_governors)),
    "modules": Quantity(
        read=lambda facts: facts.modules or None,
        unit=NAMES,
        typical=lambda there: tuple(one for one in PROFILE_MODULES if one in (there or ())),
    ),
    "rdma-modules": Quantity(read=_modules),
    "nccl": Quantity(read=lambda facts: shown(nccl_version(facts) or ()), unit=VERSION),
    "mpi": Quantity(
        read=lambda facts: mpi.family if (mpi := first_mpi(facts)) else "none",
        typical=lambda family: "" if family == "none" else family,
    ),
    "mpi-release": Quantity(read=_mpi),
    "mpi-version": Quantity(
        read=lambda facts: mpi.version if (mpi := first_mpi(facts)) else "", unit=VERSION, typical=_known
    ),
    "ucx": Quantity(read=_library("libucp.so.0")),
    "verbs": Quantity(read=_library("libibverbs.so.1")),
    "python": Quantity(read=lambda facts: facts.software.python, unit=VERSION, typical=_known),
    "ringleader": Quantity(read=lambda facts: facts.software.ringleader),
    "packages": Quantity(read=lambda facts: dict(facts.software.packages)),
    "environment": Quantity(read=_environment),
    "nccl-conf": Quantity(
        read=lambda facts: {
            name: value for values in facts.nccl_files.values() for name, value in values.items()
        }
    ),
}
"""Name, as rows have it → the quantity."""

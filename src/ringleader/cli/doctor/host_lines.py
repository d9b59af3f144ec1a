"""What a host is, in a line or two: above the results of its checks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from ringleader.fabric.check_result import listed
from ringleader.fabric.facts import HostFacts
from ringleader.report.number_format import plural

MOST_KINDS = 4


def host_lines(by_host: Mapping[str, HostFacts]) -> list[str]:
    """Return one line for each kind of host among them, the most frequent first."""
    kinds: dict[str, list[str]] = {}
    for host, facts in by_host.items():
        kinds.setdefault(described(facts), []).append(host)
    ordered = sorted(kinds.items(), key=lambda kind: -len(kind[1]))
    lines = [f"{listed(hosts)}: {kind}" for kind, hosts in ordered[:MOST_KINDS]]
    return lines + ([f"… and {len(ordered) - MOST_KINDS} other kinds"] if len(ordered) > MOST_KINDS else [])


def described(facts: HostFacts) -> str:
    """Return system, processors, memory, GPUs and RDMA devices: ``Ubuntu 24.04, 96 CPUs, 8 GPUs (…)``."""
    memory = f"{(facts.memory + (1 << 29)) >> 30} GiB" if facts.memory else ""
    place = " in ".join(one for one in (facts.container, facts.hypervisor) if one)
    words = [
        facts.system or "Linux",
        "" if "the process" in facts.late_areas else plural(facts.process.cpus, "CPU"),
        memory,
        place,
        _gpus(facts),
        _rdma(facts),
    ]
    return ", ".join(word for word in words if word)


def _gpus(facts: HostFacts) -> str:
    if not facts.gpus:
        return "GPUs not read" if "GPUs" in facts.late_areas else "no GPU"
    names = Counter(one.name for one in facts.gpus if one.name)
    kinds = f" ({', '.join(names)})" if names else ""
    return plural(len(facts.gpus), "GPU") + kinds


def _rdma(facts: HostFacts) -> str:
    ports = [port for device in facts.rdma_devices for port in device.ports]
    if not facts.rdma_devices:
        return "RDMA devices not read" if "RDMA devices" in facts.late_areas else "no RDMA device"
    rates = Counter(port.rate_text for port in ports if port.rate_text)
    layers = Counter(port.link_layer for port in ports if port.link_layer)
    kinds = ", ".join([*layers, *rates][:3])
    return plural(len(facts.rdma_devices), "RDMA device") + (f" ({kinds})" if kinds else "")

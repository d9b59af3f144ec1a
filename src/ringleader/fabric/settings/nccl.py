"""NCCL's variables. Defaults by version are from NCCL's own sources and its guide (``env.rst``). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringleader.fabric.nccl_name_list import matches
from ringleader.fabric.port_selection import CAP_SYS_NICE, UsablePort, is_ipv4, roce_gids
from ringleader.fabric.settings.interfaces import (
    ipoib_interfaces,
    misleading_interfaces,
    routable_interfaces,
)
from ringleader.fabric.settings.setting import (
    LOSSLESS_CLASS,
    SettingInputs,
    Settings,
    chosen,
    left_to_the_user,
    unset,
)
from ringleader.fabric.versions import Version, nccl_version, shown
from ringleader.fabric.wires import Wire

FINDS_GID = (2, 21)
"""From here on NCCL looks for the GID itself; before, entry 0, RoCE v1 with a link-local address."""
LONG_TIMEOUT = (2, 23)
"""From here on NCCL_IB_TIMEOUT is 20 by default, 18 from 2.14 on, 14 before."""
CUMEM_HOST = (2, 24)
CUMEM_HOST_FALLBACK = (2, 26, 5)
"""Between these NCCL takes host memory by cuMem without falling back where the kernel refuses it."""
SKIPPED_BY_NCCL = ("docker", "lo")
"""Prefixes of interfaces that NCCL leaves out by itself."""


def nccl_settings(inputs: SettingInputs) -> Settings:
    """Return what to set for NCCL; nothing on a host that has neither GPUs nor NCCL nor an RDMA port."""
    version = nccl_version(inputs.facts)
    if not (inputs.facts.gpus or version or inputs.ports.ports):
        return Settings()
    found = _host_memory(inputs, version) + _sockets(inputs)
    if _is_switched_off(inputs):
        why = "the user keeps NCCL off InfiniBand and RoCE (NCCL_IB_DISABLE or NCCL_NET)"
        return found + unset("NCCL_IB_HCA", why, rdma=False)
    takes = (Wire.INFINIBAND, Wire.ROCE, Wire.IWARP)
    ports = [one for one in inputs.ports.ports if one.wire in takes]
    if ports and all(one.wire is Wire.IWARP and one.device.driver != "erdma" for one in ports):
        why = "NCCL connects without the RDMA connection manager, and iWARP does not work without it"
        return found + chosen("NCCL_IB_DISABLE", "1", why, "NCCL", job_wide=True)
    if inputs.ports.has(Wire.EFA):
        why = "NCCL reaches EFA only through the plugin aws-ofi-nccl, which has to be on LD_LIBRARY_PATH"
        found += left_to_the_user("NCCL_NET_PLUGIN", why)
    used = [one for one in ports if _is_chosen(one, inputs)]
    return found + _devices(inputs, ports) + _gid(used, version) + _timeout(used, version)


def _is_switched_off(inputs: SettingInputs) -> bool:
    user = inputs.user
    return user.get("NCCL_IB_DISABLE", "0") not in ("", "0") or user.get("NCCL_NET", "").lower() == "socket"


def _is_chosen(port: UsablePort, inputs: SettingInputs) -> bool:
    """Tell whether the user's NCCL_IB_HCA, if any, takes a port."""
    wanted = inputs.user.get("NCCL_IB_HCA", "")
    return not wanted.strip("^=, ") or port.name in matches(wanted, [port.name])[1]


def _devices(inputs: SettingInputs, ports: Sequence[UsablePort]) -> Settings:
    misleading = inputs.misleading_ports
    if not ports:
        return Settings()
    if not misleading:
        return unset("NCCL_IB_HCA", "NCCL takes the right ports by itself")
    by_reason: dict[str, list[str]] = {}
    for one in inputs.ports.left_out:
        if one.name in misleading:
            by_reason.setdefault(one.reason, []).append(one.name)
    why = "NCCL would take others too: " + "; ".join(
        f"{', '.join(names)} ({reason})" for reason, names in by_reason.items()
    )
    return chosen("NCCL_IB_HCA", "=" + ",".join(one.name for one in ports), why, "NCCL", rdma=True)


def _gid(ports: Sequence[UsablePort], version: Version | None) -> Settings:
    roce = [one for one in ports if one.wire is Wire.ROCE or one.device.driver == "erdma"]
    if not roce:
        return Settings()
    variable = "NCCL_IB_GID_INDEX"
    found = Settings()
    if any(one.wire is Wire.ROCE for one in roce):
        found = left_to_the_user("NCCL_IB_TC", LOSSLESS_CLASS)
    if version is None:
        return found + unset(variable, "the version of NCCL is not known; from 2.21 on it must not be set")
    if version >= FINDS_GID:
        found += unset(variable, f"NCCL {shown(version)} finds the GID by itself")
        return found + _address_family(roce)
    index, kind = _common_gid(roce)
    if index is None:
        why = "no entry of the GID tables has an address for RoCE on every port, and NCCL takes one for all"
        return found + unset(variable, why)
    why = f"NCCL {shown(version)} would take entry 0; entry {index} is {kind} with a routable address"
    return found + chosen(variable, str(index), why, "NCCL", rdma=True)


def _common_gid(ports: Sequence[UsablePort]) -> tuple[int | None, str]:
    """Return the best index that every port has an address at, and its kind."""
    tables = [{gid.index: gid for gid in roce_gids(one.port)} for one in ports]
    for index, gid in tables[0].items():
        if all(table.get(index) is not None and table[index].kind == gid.kind for table in tables):
            return index, gid.kind or "one"
    return None, ""


def _address_family(ports: Sequence[UsablePort]) -> Settings:
    gids = [gid for one in ports for gid in roce_gids(one.port)]
    if not gids or any(map(is_ipv4, gids)):
        return Settings()
    why = "the ports have IPv6 addresses alone, and NCCL looks for IPv4"
    return chosen("NCCL_IB_ADDR_FAMILY", "AF_INET6", why, "NCCL", rdma=True)


def _timeout(ports: Sequence[UsablePort], version: Version | None) -> Settings:
    if not ports or version is None or version >= LONG_TIMEOUT:
        return Settings()
    default = 18 if version >= (2, 14) else 14
    why = f"NCCL {shown(version)} gives up after {_seconds(default)}; 20 is the default since 2.23"
    return chosen("NCCL_IB_TIMEOUT", "20", why, "NCCL", rdma=True)


def _seconds(timeout: int) -> str:
    """Return how long seven tries take: 4.096 µs · 2^timeout each."""
    return f"{7 * 4.096e-6 * 2**timeout:.1f} s"


def _host_memory(inputs: SettingInputs, version: Version | None) -> Settings:
    facts = inputs.facts
    may = bool(facts.process.capabilities >> CAP_SYS_NICE & 1)
    if not facts.container or may or version is None or not CUMEM_HOST <= version < CUMEM_HOST_FALLBACK:
        return Settings()
    why = f"NCCL {shown(version)} fails in a container without CAP_SYS_NICE, which cuMem host memory needs"
    return chosen("NCCL_CUMEM_HOST_ENABLE", "0", why, "NCCL")


def _sockets(inputs: SettingInputs) -> Settings:
    facts = inputs.facts
    if ipoib := ipoib_interfaces(facts):
        why = f"NCCL takes {ipoib[0].name} by itself (TCP over InfiniBand) where it needs sockets"
        return unset("NCCL_SOCKET_IFNAME", why, rdma=False)
    names = [one.name for one in routable_interfaces(facts)]
    if facts.container == "kubernetes" and inputs.ports.ports and "eth0" in names and len(names) > 1:
        why = "eth0 is the Pod network, on which all Pods meet; the others are for RDMA"
        return chosen("NCCL_SOCKET_IFNAME", "=eth0", why, "NCCL")
    misleading = list(_misleading(inputs))
    if not misleading:
        return Settings()
    why = f"{', '.join(misleading)} leads to no other host, and NCCL would take it"
    return chosen("NCCL_SOCKET_IFNAME", "^" + ",".join((*SKIPPED_BY_NCCL, *misleading)), why, "NCCL")


def _misleading(inputs: SettingInputs) -> Iterator[str]:
    for one in misleading_interfaces(inputs.facts):
        if not one.name.startswith(SKIPPED_BY_NCCL):
            yield one.name

"""Checks of libraries that move bytes, and of the variables that steer them: what exists, what clashes. Pure.

Libraries are verbs, NCCL, CUDA, UCX, libfabric and MPI; a rule finds most of them.

Sources: NCCL's documentation, page "Environment Variables" (docs/userguide/source/env.rst); UCX's FAQ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from ringleader.fabric.check_result import CheckResult, Verdict, failed, passed, skipped, unless, warned
from ringleader.fabric.checks.check import Found, judge
from ringleader.fabric.checks.conditions import (
    ROCE,
    active_ports,
    nccl_variable,
    ports,
    usable_devices,
    usable_gpus,
)
from ringleader.fabric.checks.rules import found
from ringleader.fabric.facts import HostFacts, NetDevice, RdmaDevice, RdmaPort
from ringleader.fabric.nccl_name_list import matches
from ringleader.fabric.versions import nccl_version, shown, version_of

FALSE = ("", "0", "n", "no", "off", "false")
DEBUGGING = (
    *("NCCL_P2P_DISABLE", "NCCL_P2P_DIRECT_DISABLE", "NCCL_SHM_DISABLE", "NCCL_NVB_DISABLE"),
    *("NCCL_LAUNCH_MODE", "NCCL_CHECKS_DISABLE", "NCCL_CHECK_POINTERS"),
    *("NCCL_LL_THRESHOLD", "NCCL_TREE_THRESHOLD", "NCCL_SINGLE_RING_THRESHOLD"),
)
"""Variables of NCCL's documentation, section Debugging, that switch a transport off or slow every call down.

Left out: those with their own check, and those that the images and machines of clouds set on purpose
(NCCL_ALGO, NCCL_PROTO, NCCL_BUFFSIZE, NCCL_NTHREADS, NCCL_P2P_LEVEL, NCCL_NVLS_ENABLE, NCCL_PXN_DISABLE, the
numbers of channels).
"""


def _is_set(facts: HostFacts, name: str) -> bool:
    return nccl_variable(facts, name).strip().lower() not in FALSE


# --- NCCL -------------------------------------------------------------------------------------------------


@judge("nccl.ib-disable")
def ib_disabled(facts: HostFacts) -> CheckResult:
    net = nccl_variable(facts, "NCCL_NET")
    if _is_set(facts, "NCCL_IB_DISABLE"):
        return failed(f"NCCL_IB_DISABLE={nccl_variable(facts, 'NCCL_IB_DISABLE')}", expected="not set")
    if net.lower() == "socket":
        return failed(f"NCCL_NET={net}", expected="not set, or IB")
    return passed("not switched off" + (f", NCCL_NET={net}" if net else ""))


@judge("nccl.contradiction")
def contradiction(facts: HostFacts) -> CheckResult:
    disabled, hca = _is_set(facts, "NCCL_IB_DISABLE"), nccl_variable(facts, "NCCL_IB_HCA")
    level = nccl_variable(facts, "NCCL_NET_GDR_LEVEL").upper()
    if disabled and nccl_variable(facts, "NCCL_NET").upper() == "IB":
        return failed("NCCL_NET=IB and NCCL_IB_DISABLE=1")
    if disabled and hca:
        return warned(f"NCCL_IB_HCA={hca} and NCCL_IB_DISABLE=1")
    if level in ("0", "LOC") and _is_set(facts, "NCCL_NET_GDR_READ"):
        return warned(f"NCCL_NET_GDR_LEVEL={level} forbids GPUDirect, NCCL_NET_GDR_READ=1 asks for it")
    return passed("no contradiction")


@judge("nccl.conf")
def conf_file(facts: HostFacts) -> Found:
    bad = (
        warned(f"{value} in {path}, {facts.environment[name]} in the environment", subject=name)
        for path, values in facts.nccl_files.items()
        for name, value in values.items()
        if name in facts.environment and facts.environment[name] != value
    )
    well = f"{', '.join(sorted(facts.nccl_files))}: no other values than in the environment"
    return unless(bad, well, known=facts.nccl_files, unknown="no nccl.conf here")


@judge("nccl.hca")
def hca(facts: HostFacts) -> CheckResult:
    names = nccl_variable(facts, "NCCL_IB_HCA")
    if not names:
        return passed("not set: NCCL takes all that are ACTIVE")
    active = {_nccl_name(device, port): (device, port) for device, port in active_ports(facts)}
    lost, chosen = matches(names, [_nccl_name(device, port) for device, port in ports(facts)])
    used = [one for one in chosen if one in active]
    here = ", ".join(one.name for one in usable_devices(facts))
    if not chosen:
        return failed(f"NCCL_IB_HCA={names} leaves no port", expected=here)
    if active and not used:
        seen = f"NCCL_IB_HCA={names} leaves {', '.join(chosen)}, of which none is ACTIVE"
        return failed(seen, expected=", ".join(active))
    if lost:
        return warned(f"NCCL_IB_HCA={names}: {', '.join(lost)} is not here", expected=here)
    if idle := _equal_but_left_out(facts, active, used):
        seen = f"NCCL_IB_HCA={names}: {len(used)} of {len(used) + len(idle)} equal ports"
        return warned(seen, expected=f"all of them, for {len(usable_gpus(facts))} GPUs")
    return passed(f"{names}: {', '.join(chosen)}")


def _nccl_name(device: RdmaDevice, port: RdmaPort) -> str:
    return f"{device.name}:{port.number}"


def _equal_but_left_out(
    facts: HostFacts, active: Mapping[str, tuple[RdmaDevice, RdmaPort]], used: Sequence[str]
) -> list[str]:
    """Return active ports like those used that are left out, where half of them or more are.

    Empty where there is a used port for each GPU: then the others may be for storage.
    """
    if not used or len(used) >= len(usable_gpus(facts)):
        return []
    sorts = {name: (device.board_id, port.link_layer, port.rate) for name, (device, port) in active.items()}
    kinds = {sorts[one] for one in used}
    idle = [name for name, kind in sorts.items() if name not in used and kind in kinds]
    return idle if len(idle) >= len(used) else []


@judge("nccl.ifname")
def socket_interface(facts: HostFacts) -> CheckResult:
    names = nccl_variable(facts, "NCCL_SOCKET_IFNAME")
    if not names:
        return passed("not set: NCCL chooses")
    return _interfaces(facts, "NCCL_SOCKET_IFNAME", names)


def _interfaces(facts: HostFacts, variable: str, names: str) -> CheckResult:
    """Return the verdict on a list of interfaces in NCCL's syntax."""
    every = {one.name: one for one in facts.net_devices}
    _, chosen = matches(names, list(every))
    up = [name for name in chosen if every[name].up]
    if not chosen:
        return failed(f"{variable}={names}: no such interface", expected=", ".join(every))
    if not up:
        return failed(f"{variable}={names}: {', '.join(chosen)} is down")
    if all(_is_local(every[name]) for name in up):
        return warned(f"{variable}={names}: on {', '.join(up)} no other host is reached")
    return passed(f"{names}: {', '.join(up)}")


def _is_local(interface: NetDevice) -> bool:
    return interface.kind == "loopback" or interface.name.startswith(("docker", "virbr", "cni0"))


@judge("nccl.debugging")
def debugging(facts: HostFacts) -> Found:
    bad = (
        warned(f"{name}={nccl_variable(facts, name)}", expected="not set", subject=name)
        for name in DEBUGGING
        if _is_set(facts, name)
    )
    return unless(bad, "none")


@judge("nccl.sockets")
def sockets(facts: HostFacts) -> CheckResult:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    texts = {name: nccl_variable(facts, name).strip() for name in names}
    odd = [f"{name}={text}" for name, text in texts.items() if text and not text.isdecimal()]
    if odd:
        return failed(", ".join(odd), expected="a number")
    threads, each = (int(text or 1) for text in texts.values())
    if threads * each > 64:
        return warned(f"{threads} × {each} sockets", expected="at most 64")
    return passed("not set" if not any(texts.values()) else f"{threads} × {each} sockets")


@judge("nccl.timeout")
def timeout(facts: HostFacts) -> CheckResult:
    text, expected = nccl_variable(facts, "NCCL_IB_TIMEOUT").strip(), "14 to 24"
    if not text:
        return passed("not set")
    if not text.isdecimal() or int(text) > 31:
        return failed(f"NCCL_IB_TIMEOUT={text}", expected=expected)
    if not 14 <= int(text) <= 24:
        return warned(f"NCCL_IB_TIMEOUT={text}", expected=expected)
    return passed(text)


@judge("nccl.log")
def log(facts: HostFacts) -> CheckResult:
    level, subsystems = (nccl_variable(facts, name).upper() for name in ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS"))
    chatty = {"ALL", "COLL", "CALL"} & set(subsystems.replace(" ", "").split(","))
    if level == "TRACE" or (level == "INFO" and chatty):
        return warned(f"NCCL_DEBUG={level}" + (f", NCCL_DEBUG_SUBSYS={subsystems}" if subsystems else ""))
    return passed(f"NCCL_DEBUG={level}" if level else "not set")


# --- UCX, libfabric, MPI, Gloo ----------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    """Return the entries of a list behind commas, without a leading ``^``."""
    return [one.strip() for one in text.lstrip("^").split(",") if one.strip()]


@judge("env.ucx-devices")
def ucx_devices(facts: HostFacts) -> CheckResult:
    value = facts.environment.get("UCX_NET_DEVICES", "")
    if not value or value == "all" or value.startswith("^"):
        return passed(value or "not set: UCX chooses")
    here = {_nccl_name(device, port) for device in usable_devices(facts) for port in device.ports}
    here |= {one.name for one in facts.net_devices}
    lost = [one for one in _words(value) if one not in here]
    if not lost:
        return passed(value)
    told = failed if len(lost) == len(_words(value)) else warned
    return told(f"{', '.join(lost)} is not here", expected=", ".join(sorted(here)))


@judge("env.ompi-openib")
def openib(facts: HostFacts) -> CheckResult:
    value = facts.environment.get("OMPI_MCA_btl", "")
    if value.startswith("^") or "openib" not in _words(value):
        return passed(value or "not set")
    first = next(iter(facts.software.mpis), None)
    is_new = first is not None and first.family == "Open MPI" and first.version.split(".")[0] not in "1234"
    return (failed if is_new else warned)(f"OMPI_MCA_btl={value}", expected="without openib")


@judge("env.mpi-interfaces")
def mpi_interfaces(facts: HostFacts) -> Found:
    names = (
        *("OMPI_MCA_btl_tcp_if_include", "OMPI_MCA_oob_tcp_if_include", "PRTE_MCA_prte_if_include"),
        *("PMIX_MCA_pmix_if_include", "HYDRA_IFACE", "I_MPI_HYDRA_IFACE"),
    )
    here = {one.name for one in facts.net_devices}
    chosen = {name: facts.environment[name] for name in names if facts.environment.get(name)}
    bad = (
        failed(f"{name}={value}: {one} is not here", subject=name)
        for name, value in chosen.items()
        for one in _words(value)
        if one not in here and not re.match(r"[0-9a-fA-F.:]+/\d+$", one)
    )
    return unless(bad, ", ".join(f"{name}={value}" for name, value in chosen.items()) or "not set")


@judge("env.gloo-interface")
def gloo(facts: HostFacts) -> CheckResult:
    value = facts.environment.get("GLOO_SOCKET_IFNAME", "")
    # Gloo takes whole names.
    return _interfaces(facts, "GLOO_SOCKET_IFNAME", f"={value}") if value else passed("not set")


@judge("env.fi-provider")
def fi_provider(facts: HostFacts) -> CheckResult:
    value = facts.environment.get("FI_PROVIDER", "")
    chosen = {re.split(r"[;:]", one)[0] for one in _words(value)}
    drivers = [one.driver for one in facts.rdma_devices]
    only_efa = all(one == "efa" for one in drivers)
    odd = chosen and (
        chosen <= {"tcp", "sockets", "udp"}
        or (chosen == {"efa"} and "efa" not in drivers)
        or (chosen == {"verbs"} and only_efa)
    )
    if odd:
        return warned(f"FI_PROVIDER={value}", expected="efa" if only_efa else "not set")
    return passed(value or "not set: libfabric chooses")


@judge("efa.fork")
def fork(facts: HostFacts) -> CheckResult:
    version = version_of(facts.kernel)
    if any(facts.environment.get(name, "0") != "0" for name in ("FI_EFA_FORK_SAFE", "RDMAV_FORK_SAFE")):
        return passed("libfabric was configured for it")
    if version is None:
        return skipped("the kernel's release is not known")
    if version < (5, 15):
        seen = f"Linux {facts.kernel}, FI_EFA_FORK_SAFE is not set"
        return warned(seen, expected="5.15, or FI_EFA_FORK_SAFE=1")
    return passed(f"Linux {facts.kernel}")


# --- CUDA and containers ----------------------------------------------------------------------------------


@judge("env.cuda-devices")
def cuda_devices(facts: HostFacts) -> CheckResult:
    value = facts.environment.get("CUDA_VISIBLE_DEVICES")
    if value is None:
        return passed("not set: all are visible")
    names, here = _words(value), usable_gpus(facts)
    uuids = [one.uuid for one in here if one.uuid]
    lost = [one for one in names if not _is_gpu(one, len(here), uuids)]
    what = f"CUDA_VISIBLE_DEVICES={value}"
    if not names or names == ["-1"]:
        return warned(f"{what}: no GPU is visible")
    if lost:
        return failed(f"{what}: {lost[0]} is not here", expected=f"0 to {len(here) - 1}")
    if len(set(names)) < len(names):
        return failed(f"{what}: one is there twice")
    return passed(value)


def _is_gpu(name: str, count: int, uuids: list[str]) -> bool:
    if name.isdecimal():
        return int(name) < count
    # Of UUIDs, and of parts of GPUs (MIG), the driver alone knows where NVML was not read.
    return name.startswith("MIG-") or not uuids or any(one.startswith(name) for one in uuids)


@judge("env.nvidia-devices")
def nvidia_devices(facts: HostFacts) -> CheckResult:
    value = facts.environment.get("NVIDIA_VISIBLE_DEVICES")
    if value is not None and value.lower() in ("", "void", "none"):
        return warned(f"NVIDIA_VISIBLE_DEVICES={value}")
    return passed(value or "not set")


@judge("env.device-plugin")
def device_plugin(facts: HostFacts) -> Iterator[CheckResult]:
    granted = {
        name: re.findall(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", value)
        for name, value in facts.environment.items()
        if name.startswith("PCIDEVICE_") and not name.endswith("_INFO")
    }
    here = {one.address for one in facts.pci_devices} | {one.pci_address for one in facts.rdma_devices}
    bad = (
        failed(f"{', '.join(gone)} is not here", subject=name)
        for name, found in granted.items()
        if (gone := [one for one in found if one not in here])
    )
    every = [one for found in granted.values() for one in found]
    yield from unless(bad, ", ".join(every), known=every, unknown="no device plugin named functions")


# --- libraries --------------------------------------------------------------------------------------------

PROVIDERS = {
    **{"mlx5_core": "mlx5", "mlx4_core": "mlx4", "efa": "efa", "erdma": "erdma", "bnxt_en": "bnxt_re"},
    **{"ice": "irdma", "i40e": "irdma", "idpf": "irdma", "qede": "qedr", "hfi1": "hfi1verbs"},
    **{"mana": "mana", "hns3": "hns", "cxgb4": "cxgb4"},
}
"""Kernel driver of the NIC → provider of libibverbs (rdma-core, providers/)."""
CUDA_DRIVERS = {13: (580, 65, 6), 12: (525, 60, 13), 11: (450, 80, 2)}
"""CUDA's major version → the oldest driver for it (CUDA release notes, minor version compatibility)."""


@judge("lib.provider")
def provider(facts: HostFacts) -> Found:
    wanted = {PROVIDERS[one.driver] for one in usable_devices(facts) if one.driver in PROVIDERS}
    missing = sorted(wanted - set(facts.verbs_providers))
    bad = (failed(f"libibverbs has no provider {name}", expected=name) for name in missing)
    unknown = "no device has a driver whose provider we know"
    return unless(bad, ", ".join(sorted(wanted)), known=wanted, unknown=unknown)


@judge("lib.nccl-duplicates")
def nccl_duplicates(facts: HostFacts) -> CheckResult:
    every = facts.software.nccl
    known = {one.version: one for one in every if one.version}
    if not every:
        return skipped("no NCCL here")
    if len(known) > 1:
        each = ", ".join(f"{version} ({one.source or one.path})" for version, one in known.items())
        return warned(f"{each}; PyTorch loads {every[0].version or 'the first'}")
    return passed(f"{next(iter(known), 'of unknown version')} ({len(every)})")


@judge("lib.nccl-version")
def nccl_known(facts: HostFacts) -> CheckResult:
    version = nccl_version(facts)
    name = f"NCCL {shown(version or ())}"
    if version is None:
        return skipped("no NCCL is known here")
    if version < (2, 21) and ROCE.unmet(facts) is None and not nccl_variable(facts, "NCCL_IB_GID_INDEX"):
        return failed(f"{name} takes GID 0, mostly RoCE v1", expected="2.21, or NCCL_IB_GID_INDEX")
    return warned(name, expected="2.12 or newer") if version < (2, 12) else passed(name)


@judge("lib.cuda-driver")
def cuda_driver(facts: HostFacts) -> CheckResult:
    driver = version_of(facts.nvidia.version)
    packages = tuple(facts.software.packages)
    major = next((one for one in CUDA_DRIVERS if any(name.endswith(f"-cu{one}") for name in packages)), None)
    if driver is None or major is None:
        return skipped("no driver or no package of CUDA is known here")
    seen, oldest = f"driver {facts.nvidia.version} for CUDA {major}", CUDA_DRIVERS[major]
    return failed(seen, expected=f"{shown(oldest)} or newer") if driver < oldest else passed(seen)


@judge("mpi.ucx")
def mpi_ucx(facts: HostFacts) -> CheckResult:
    if not facts.software.mpis:
        return skipped("no MPI here")
    mpi = facts.software.mpis[0]
    name = f"{mpi.family} {mpi.version}"
    built = {key: mpi.built_with.get(key) for key in ("ucx", "ofi")}
    if any(built.values()):
        return passed(f"{name} has {' and '.join(key for key, value in built.items() if value)}")
    if None in built.values():
        return skipped(f"{name} does not tell what it was built with")
    return warned(f"{name} has neither UCX nor libfabric")


@judge("lib.ucx")
def ucx(facts: HostFacts) -> CheckResult:
    library = facts.library("libucp.so.0")
    if library is not None and not library.path and any(one.embedded for one in facts.software.mpis[:1]):
        return passed("the embedded MPI brings its own")
    return found(facts, "libucp.so.0", Verdict.WARN)


@judge("efa.libfabric")
def libfabric(facts: HostFacts) -> CheckResult:
    chosen, library = facts.environment.get("FI_PROVIDER", ""), facts.library("libfabric.so.1")
    if library is not None and library.path and chosen and "efa" not in chosen.split(","):
        return warned(f"FI_PROVIDER={chosen}", expected="efa", remedy="unset FI_PROVIDER, or set it to efa")
    return found(facts, "libfabric.so.1", Verdict.FAIL)

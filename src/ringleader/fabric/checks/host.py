"""Checks of what a process is granted, of memory, the network's interfaces and the system. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from ringleader.agents.hardware import cpu_list
from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.fabric.check_result import CheckResult, failed, passed, skipped, unless, warned
from ringleader.fabric.checks.check import Found, judge
from ringleader.fabric.checks.conditions import (
    hardware_interfaces,
    has_fast_hardware,
    nccl_variable,
    nvidia_gpus,
    outside_interfaces,
    usable_gpus,
)
from ringleader.fabric.checks.quantities import GIB
from ringleader.fabric.facts import TOO_LATE, UNLIMITED, HostFacts, NetDevice
from ringleader.fabric.port_selection import CAP_IPC_LOCK, CAP_SYS_NICE, CAP_SYS_PTRACE, LEAST_LOCKED_MEMORY
from ringleader.fabric.rate_text import bit_rate
from ringleader.fabric.versions import nccl_version, shown, version_of

ENOUGH_LOCKED_MEMORY = GIB
"""Bytes that a process should be allowed to lock for RDMA; ours."""
LEAST_SHM = 16 * MIB
"""Bytes of /dev/shm with which a few ranks without GPUs start at all; ours."""


def _has(capabilities: int, bit: int) -> bool:
    return bool(capabilities >> bit & 1)


# --- limits and control groups ----------------------------------------------------------------------------


@judge("limit.memlock")
def memlock(facts: HostFacts) -> CheckResult:
    process = facts.process
    limit = process.limits.get("memlock")
    if _has(process.capabilities, CAP_IPC_LOCK):
        return passed("CAP_IPC_LOCK is effective: the limit does not count")
    if limit is None:
        return skipped("the limit is not readable")
    if limit.soft == UNLIMITED or limit.soft >= ENOUGH_LOCKED_MEMORY:
        return passed("unlimited" if limit.soft == UNLIMITED else byte_size(limit.soft))
    remedy = ""
    if process.uid and _has(process.bounding_capabilities, CAP_IPC_LOCK) and facts.container:
        remedy = (
            "IPC_LOCK was granted, but it has no effect for a user other than root: run as root, raise"
            " LimitMEMLOCK of containerd or CRI-O, or give the program the capability (setcap"
            " cap_ipc_lock+ep)"
        )
    elif limit.hard == UNLIMITED:
        remedy = "the hard limit is none: ulimit -l unlimited before the program starts"
    told = warned if limit.soft >= LEAST_LOCKED_MEMORY else failed
    return told(byte_size(limit.soft), expected="unlimited", remedy=remedy)


@judge("limit.shm")
def shm(facts: HostFacts) -> CheckResult:
    size, expected = facts.shm_size, "1 GiB or more"
    if size is None:
        return failed("no /dev/shm", expected=expected)
    if size >= GIB:
        return passed(byte_size(size))
    too_small = size < LEAST_SHM or (size <= 64 * MIB and has_fast_hardware(facts))
    return (failed if too_small else warned)(byte_size(size), expected=expected)


@judge("limit.shm-free")
def shm_free(facts: HostFacts) -> CheckResult:
    size, free = facts.shm_size, facts.shm_free
    if size is None or free is None:
        return skipped("not readable")
    seen = f"{byte_size(free)} free of {byte_size(size)}"
    if free < 16 * MIB:
        return failed(seen)
    return warned(seen, expected="at least a quarter") if free * 4 < size else passed(seen)


@judge("limit.nofile")
def nofile(facts: HostFacts) -> CheckResult:
    """Judge the hard limit: NCCL raises the soft one to it (setFilesLimit of its src/bootstrap.cc)."""
    return _at_least(facts, "nofile", 65536 if has_fast_hardware(facts) else 4096, 1024, is_raised=True)


@judge("limit.nproc")
def nproc(facts: HostFacts) -> CheckResult:
    if facts.process.uid == 0:
        return passed("root: the limit does not count")
    return _at_least(facts, "nproc", 4096, 256)


def _at_least(facts: HostFacts, name: str, enough: int, few: int, *, is_raised: bool = False) -> CheckResult:
    """Judge a limit; ``is_raised``: programs raise the soft limit to the hard one themselves."""
    limit = facts.process.limits.get(name)
    if limit is None:
        return skipped("the limit is not readable")
    soft, hard = ("unlimited" if one == UNLIMITED else str(one) for one in (limit.soft, limit.hard))
    seen = soft if limit.soft == UNLIMITED or limit.soft >= enough else f"{soft}, hard limit {hard}"
    may = limit.hard == UNLIMITED or limit.hard >= enough
    if seen == soft or (may and is_raised):
        return passed(seen)
    return (failed if limit.soft < few and not may else warned)(seen, expected=f"{enough} or more")


@judge("efa.hugepages")
def huge_pages(facts: HostFacts) -> CheckResult:
    if facts.environment.get("FI_EFA_USE_HUGE_PAGE") == "0":
        return passed("not needed: FI_EFA_USE_HUGE_PAGE=0")
    free = sum(one.free for one in facts.huge_pages if one.size == 2 * MIB)
    if free >= 2560:
        return passed(f"{free} of 2 MiB are free")
    return (warned if free else failed)(f"{free} of 2 MiB are free", expected="2560")


@judge("limit.numa-calls")
def numa_calls(facts: HostFacts) -> CheckResult:
    version = nccl_version(facts)
    if version is None:
        return skipped("no NCCL is known here")
    if not (2, 24) <= version < (2, 26, 5):
        return passed(f"NCCL {shown(version)} does without")
    if (version_of(facts.nvidia.version) or (560,)) < (560,):
        return passed(f"driver {facts.nvidia.version}: NCCL {shown(version)} does without")
    if nccl_variable(facts, "NCCL_CUMEM_HOST_ENABLE") == "0":
        return passed("switched off: NCCL_CUMEM_HOST_ENABLE=0")
    if facts.process.seccomp != 2 or _has(facts.process.capabilities, CAP_SYS_NICE):
        return passed("no filter, or CAP_SYS_NICE")
    return warned(f"NCCL {shown(version)} behind a filter, without CAP_SYS_NICE")


@judge("cgroup.rdma")
def cgroup_rdma(facts: HostFacts) -> Found:
    def words(limit: int) -> str:
        return "max" if limit == UNLIMITED else str(limit)

    bad = (
        (failed if 0 in (one.handles, one.objects) else warned)(
            f"hca_handle {words(one.handles)}, hca_object {words(one.objects)}",
            expected="max",
            subject=one.device,
        )
        for one in facts.control_group.rdma
        if one.handles != UNLIMITED or one.objects != UNLIMITED
    )
    return unless(bad, "no limit")


@judge("cgroup.memory")
def cgroup_memory(facts: HostFacts) -> CheckResult:
    limit, size = facts.control_group.memory, facts.shm_size
    if limit is None:
        return passed("no limit")
    if size is None:
        return skipped("no /dev/shm")
    if size * 2 > limit:
        return warned(f"/dev/shm may take {byte_size(size)} of {byte_size(limit)}", expected="at most half")
    return passed(f"{byte_size(limit)}, of which /dev/shm may take {byte_size(size)}")


@judge("cgroup.cpu")
def cgroup_cpu(facts: HostFacts) -> CheckResult:
    quota, seen = facts.control_group.cpus, facts.process.cpus
    wanted = max(1, len(usable_gpus(facts)))
    if quota is None:
        return passed(f"no quota, {seen} processors")
    if quota < 1:
        return failed(f"{quota:g} CPUs", expected="at least one for each rank")
    if quota < wanted:
        return warned(f"{quota:g} CPUs for {wanted} GPUs", expected="at least one for each rank")
    return passed(f"{quota:g} CPUs for {seen} processors")


# --- memory -----------------------------------------------------------------------------------------------


@judge("host.memory")
def memory(facts: HostFacts) -> CheckResult:
    if not facts.memory or facts.memory_available is None:
        return skipped("not readable")
    limit = min(facts.memory, facts.control_group.memory or facts.memory)
    available = min(facts.memory_available, limit)
    seen = f"{byte_size(available)} of {byte_size(limit)} available"
    if available < GIB:
        return failed(seen, expected="1 GiB or more")
    return warned(seen, expected="a tenth or more") if available * 10 < limit else passed(seen)


@judge("host.numa-memory")
def numa_memory(facts: HostFacts) -> Found:
    known = {one.number: one.memory for one in facts.numa_nodes if one.memory is not None and one.cpus}
    most = max(known.values(), default=0)
    bad = (
        warned(byte_size(value), expected=f"about {byte_size(most)}", subject=f"NUMA node {number}")
        for number, value in known.items()
        if value * 2 < most
    )
    well = f"{len(known)} nodes, at least {byte_size(min(known.values(), default=0))}"
    return unless(bad, well, known=known, unknown="not readable")


# --- network interfaces -----------------------------------------------------------------------------------

Model = tuple[str, str, int | None]


def _model(facts: HostFacts, card: NetDevice) -> Model:
    """Return what cards must share to be compared: driver, kind, PCI device."""
    pci = facts.pci_device(card.pci_address) if card.pci_address else None
    return card.driver, card.kind, pci.device if pci else None


@judge("net.up")
def up(facts: HostFacts) -> CheckResult:
    names = [one.name for one in outside_interfaces(facts) if one.name]
    if names:
        return passed(", ".join(names[:8]) + (" …" if len(names) > 8 else ""))
    return warned("no interface is up that leads to other hosts")


@judge("net.address")
def address(facts: HostFacts) -> CheckResult:
    outside = outside_interfaces(facts)
    found = [
        one
        for one in outside
        if any(not text.startswith(("fe80:", "169.254.", "127.")) for text in one.addresses)
    ]
    if found:
        return passed(", ".join(f"{one.name} {one.addresses[0]}" for one in found[:4]))
    return failed("no interface that is up has an address") if outside else skipped("no interface is up")


@judge("net.down")
def down(facts: HostFacts) -> Found:
    cards = [one for one in facts.net_devices if not one.is_virtual and one.pci_address and one.driver]
    working = {_model(facts, one) for one in cards if one.up}
    bad = (
        warned("down", expected=f"up, as others of {one.driver}", subject=one.name)
        for one in cards
        if not one.up and _model(facts, one) in working
    )
    return unless(bad, f"{sum(one.up for one in cards)} of {len(cards)} cards are up")


@judge("net.mtu")
def mtu(facts: HostFacts) -> Found:
    known = [(one, one.mtu) for one in outside_interfaces(facts) if one.mtu is not None]
    bad = [
        failed(f"MTU {value}", expected="1500 or more", subject=one.name)
        for one, value in known
        if value < 1280
    ]
    models: dict[Model, dict[str, int]] = {}
    for one, value in known:
        if one.driver and not one.is_virtual:
            models.setdefault(_model(facts, one), {})[one.name] = value
    for (driver, _, _), values in models.items():
        usual = Counter(values.values()).most_common(1)[0][0]
        names = ", ".join(f"{name} {value}" for name, value in values.items() if value != usual)
        if names:
            bad.append(warned(names, expected=f"{usual}, as the others of {driver}"))
    well = ", ".join(str(one) for one in sorted({value for _, value in known}))
    return unless(bad, well, known=known, unknown="no interface is up")


UNKNOWN_SPEED = "unknown, as of most virtual interfaces"


@judge("net.speed")
def speed(facts: HostFacts) -> Found:
    known = [(one, one.speed) for one in hardware_interfaces(facts) if one.speed]
    best: dict[Model, float] = {}
    for one, value in known:
        best[_model(facts, one)] = max(value, best.get(_model(facts, one), 0.0))
    bad = (
        warned(bit_rate(value), expected=bit_rate(best[_model(facts, one)]), subject=one.name)
        for one, value in known
        if value < best[_model(facts, one)]
    )
    well = ", ".join(f"{one.name} {bit_rate(value)}" for one, value in known[:4])
    return unless(bad, well, known=known, unknown=UNKNOWN_SPEED)


@judge("net.fast")
def fast(facts: HostFacts) -> CheckResult:
    speeds = [one.speed for one in hardware_interfaces(facts) if one.speed]
    if facts.rdma_devices:
        return passed("RDMA is here")
    if not speeds:
        return skipped(UNKNOWN_SPEED)
    slow = max(speeds) < 10e9 and bool(nvidia_gpus(facts))
    return (warned if slow else passed)(bit_rate(max(speeds)), expected="10 Gbit/s or more" if slow else "")


@judge("net.rp-filter")
def reverse_path(facts: HostFacts) -> Found:
    """Judge the larger of the value for all interfaces and an interface's own, as the kernel does."""
    every = facts.sysctls.get("net.ipv4.conf.all.rp_filter")
    if every is None:
        return skipped("not readable")
    names = [one.name for one in hardware_interfaces(facts) if one.addresses]
    values = {name: max(every, facts.sysctls.get(f"net.ipv4.conf.{name}.rp_filter", "0")) for name in names}
    strict = [name for name, value in values.items() if value == "1"]
    where = "" if every == "1" else f" on {', '.join(strict)}"
    bad = [warned(f"1 (strict){where}", expected="2 or 0")] if strict else []
    return unless(bad, every)


# --- the system -------------------------------------------------------------------------------------------


@judge("host.clock")
def clock(facts: HostFacts) -> CheckResult:
    if facts.clock.synchronized is None:
        return skipped("the kernel does not tell")
    if facts.clock.synchronized:
        return passed("synchronized")
    if facts.rdma_devices:
        return warned("not synchronized")
    return skipped("not synchronized; hosts.clock says whether the hosts of a job agree")


NO_MODULES = "the kernel's modules are not readable"


@judge("host.rdma-modules")
def rdma_modules(facts: HostFacts) -> CheckResult:
    if not facts.modules:
        return skipped(NO_MODULES)
    if "ib_uverbs" not in facts.modules:
        return failed("ib_uverbs is not loaded")
    if "rdma_ucm" in facts.modules:
        return passed("ib_uverbs and rdma_ucm")
    if facts.rdma_devices and all(one.driver == "efa" for one in facts.rdma_devices):
        return passed("ib_uverbs; EFA does without rdma_ucm")
    return warned("rdma_ucm is not loaded")


@judge("host.ptrace")
def ptrace(facts: HostFacts) -> CheckResult:
    value = facts.sysctls.get("kernel.yama.ptrace_scope")
    if value is None:
        return passed("no Yama here")
    allowed = value in ("0", "1") or (value == "2" and _has(facts.process.capabilities, CAP_SYS_PTRACE))
    return passed(value) if allowed else warned(value, expected="0 or 1")


@judge("host.sysfs")
def readable(facts: HostFacts) -> CheckResult:
    lost = facts.unreadable
    if not lost:
        return passed("everything that is there")
    first = "; ".join(f"{one.path}: {one.reason}" for one in lost[:3])
    more = f"; and {len(lost) - 3} more" if len(lost) > 3 else ""
    in_time = any(not one.reason.endswith(TOO_LATE) and one.path != "…" for one in lost)
    late = "give it more time (--start-timeout 300), or look why the host answers so slowly"
    return warned(first + more, remedy="" if in_time else late)


@judge("host.processors")
def processors(facts: HostFacts) -> CheckResult:
    gpus, cpus = len(usable_gpus(facts)), facts.usable_cpus
    wanted = 2 * max(1, gpus)
    seen = f"{cpus} {'processor' if cpus == 1 else 'processors'}" + (f" for {gpus} GPUs" if gpus else "")
    return (warned if cpus < wanted else passed)(seen, expected=f"{wanted} or more")


@judge("host.virtual")
def virtual(facts: HostFacts) -> CheckResult:
    if not facts.hypervisor:
        return passed("bare metal, as far as can be seen")
    depth = max((len(one.ancestors) for one in facts.pci_devices), default=0)
    if facts.environment.get("NCCL_TOPO_FILE"):
        return passed(f"{facts.hypervisor}, NCCL_TOPO_FILE={facts.environment['NCCL_TOPO_FILE']}")
    if depth > 2:
        return passed(f"{facts.hypervisor}, PCI paths show switches")
    if any(one.driver == "efa" for one in facts.rdma_devices):
        return passed(f"{facts.hypervisor}: EFA's plugin for NCCL brings the topology")
    if not facts.rdma_devices or len(usable_gpus(facts)) < 2:
        return passed(f"{facts.hypervisor}: with one GPU, or without RDMA, nothing is to be chosen")
    return warned(f"{facts.hypervisor}, flat PCI paths, no NCCL_TOPO_FILE")


FIXED_LOW = ("powersave", "userspace", "conservative")
"""Governors that keep clocks low, but with the drivers that choose clocks themselves (…pstate)."""


@judge("host.governor")
def governor(facts: HostFacts) -> CheckResult:
    if not facts.cpu_governors:
        return skipped("the kernel does not scale frequencies, or does not tell")
    low = [one for one in facts.cpu_governors if one.rpartition(" ")[2] in FIXED_LOW and "pstate" not in one]
    seen = ", ".join(facts.cpu_governors)
    if not has_fast_hardware(facts):
        return passed(seen)
    if low or len({one.rpartition(" ")[2] for one in facts.cpu_governors}) > 1:
        return warned(seen, expected="performance on all processors")
    return passed(seen)


@judge("host.irq-affinity")
def interrupts(facts: HostFacts) -> Iterator[CheckResult]:
    nodes = {one.number: _cpus(one.cpus) for one in facts.numa_nodes}
    known = odd = 0
    for one in facts.pci_devices:
        cpus = {cpu for listing in one.irq_cpus for cpu in _cpus(listing)}
        own = nodes.get(-1 if one.numa_node is None else one.numa_node, set())
        known += bool(cpus)
        if len(one.irq_cpus) > 1 and len(cpus) == 1 and len(own) != 1:
            odd += 1
            seen = f"all {len(one.irq_cpus)} interrupts on processor {min(cpus)}"
            yield warned(seen, expected="spread over its NUMA node", subject=one.address)
        elif cpus and own and not cpus & own:
            odd += 1
            seen = f"no interrupt on a processor of its NUMA node {one.numa_node}"
            yield warned(seen, expected=f"node {one.numa_node}", subject=one.address)
    if not known:
        yield skipped("no interrupt of an RDMA NIC is readable")
    elif not odd:
        yield passed(f"those of {known} NICs are near them")


def _cpus(listing: str) -> set[int]:
    # A list of this shape is the kernel's; another file could ask for more numbers than there is memory.
    is_list = re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", listing, re.ASCII)
    return set(cpu_list(listing)) if is_list else set()

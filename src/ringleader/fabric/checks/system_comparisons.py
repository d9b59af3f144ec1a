"""Comparisons of hosts' limits, variables, names and clocks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult, Verdict
from ringleader.fabric.checks.comparison import Comparison, Hosts, present, same, text
from ringleader.fabric.checks.nccl_variables import nccl_variable
from ringleader.fabric.facts import UNLIMITED, HostFacts
from ringleader.fabric.nccl_name_list import matches

MODULES = ("ib_uverbs", "rdma_ucm", "nvidia_peermem", "gdrdrv", "xpmem")
"""Kernel modules of which it matters that all hosts have them, or none."""
OWN_VARIABLES = (
    "PCIDEVICE_",
    "NVIDIA_",
    "RINGLEADER_",
    "HOROVOD_",
    "HYDRA_HOST",
    "OMPI_MCA_orte_",
    "OMPI_MCA_ess_",
    "PRTE_MCA_ess_",
    "PRTE_MCA_prte_base",
    "PMIX_MCA_pmix_base",
    # No transport follows from these, and Ringleader sets them for each rank.
    "NCCL_DEBUG",
    "UCX_LOG_",
    "OMP_NUM_THREADS",
)
"""What variables start with that each host has a value of its own for."""
CLOCK_WARNS, CLOCK_FAILS = 1.0, 60.0
"""Seconds; ours. A second mixes up the lines of logs; a minute refuses certificates that were just issued."""


def _limit(name: str, show: Callable[[int], str]) -> Callable[[HostFacts], dict[str, str | None]]:
    def values(facts: HostFacts) -> dict[str, str | None]:
        limit = facts.process.limits.get(name)
        if limit is None:
            return {}
        return {"": "unlimited" if limit.soft == UNLIMITED else show(limit.soft)}

    return values


def _shm(facts: HostFacts) -> str:
    return byte_size(facts.shm_size) if facts.shm_size is not None else "no /dev/shm"


def _modules(facts: HostFacts) -> dict[str, str | None]:
    if not facts.modules:
        return {}
    return {name: "loaded" if name in facts.modules else "not loaded" for name in MODULES}


def _environment(facts: HostFacts) -> dict[str, str | None]:
    return {name: value for name, value in facts.environment.items() if not name.startswith(OWN_VARIABLES)}


def _nccl_files(facts: HostFacts) -> dict[str, str | None]:
    return {name: value for values in facts.nccl_files.values() for name, value in values.items()}


def _cpus(facts: HostFacts) -> str:
    quota = facts.control_group.cpus
    return f"{facts.process.cpus} processors" + (f", quota {quota:g}" if quota is not None else "")


def _socket_interface(hosts: Hosts) -> Iterator[CheckResult]:
    """Yield hosts that lack the interface that NCCL_SOCKET_IFNAME names elsewhere."""
    named = {nccl_variable(facts, "NCCL_SOCKET_IFNAME") for facts in hosts.values()} - {""}
    for names in sorted(named):
        lost = [
            host
            for host, facts in hosts.items()
            if facts.net_devices and not matches(names, [one.name for one in facts.net_devices if one.up])[1]
        ]
        if lost:
            yield CheckResult(
                id="",
                verdict=Verdict.FAIL,
                seen=f"no interface {names} that is up",
                expected=f"NCCL_SOCKET_IFNAME={names}",
                hosts=tuple(lost),
            )


def _hostnames(hosts: Hosts) -> Iterator[CheckResult]:
    owners: dict[str, list[str]] = {}
    for host, facts in hosts.items():
        owners.setdefault(facts.hostname, []).append(host)
    for name, found in owners.items():
        if name and len(found) > 1:
            yield CheckResult(
                id="", verdict=Verdict.WARN, seen=f"all call themselves {name}", hosts=tuple(found)
            )


def _clocks(hosts: Hosts) -> Iterator[CheckResult]:
    offsets = {host: facts.clock.offset for host, facts in hosts.items() if facts.clock.offset is not None}
    if len(offsets) < 2:
        return
    middle = median(offsets.values())
    for host, offset in offsets.items():
        apart = abs(offset - middle) - (hosts[host].clock.offset_uncertainty or 0.0)
        if apart > CLOCK_WARNS:
            yield CheckResult(
                id="",
                verdict=Verdict.FAIL if apart > CLOCK_FAILS else Verdict.WARN,
                seen=f"{abs(offset - middle):.3g} s {'ahead' if offset > middle else 'behind'}",
                expected=f"within {CLOCK_WARNS:g} s of the other hosts",
                hosts=tuple(hosts) if len(offsets) == 2 else (host,),
            )
            if len(offsets) == 2:
                return


COMPARISONS: tuple[Comparison, ...] = (
    Comparison(
        id="hosts.memlock",
        title="Limit of locked memory",
        reads="RLIMIT_MEMLOCK",
        why="the host with the small limit cannot register memory: its ranks fail, and all stop",
        remedy="raise it there: limits.conf, sshd's unit, the container runtime",
        warns="it differs",
        judge=same(_limit("memlock", byte_size), Verdict.WARN),
    ),
    Comparison(
        id="hosts.nofile",
        title="Limit of open files",
        reads="RLIMIT_NOFILE",
        why="the host with the small limit fails while connecting",
        remedy="raise it there",
        warns="it differs",
        judge=same(_limit("nofile", str), Verdict.WARN),
    ),
    Comparison(
        id="hosts.shm",
        title="Size of /dev/shm",
        reads="statvfs(/dev/shm)",
        why="the host with the small one ends with a bus error in the middle of training",
        remedy="set one size: --shm-size, or the emptyDir's sizeLimit",
        warns="it differs",
        judge=same(text(_shm), Verdict.WARN),
    ),
    Comparison(
        id="hosts.cpus",
        title="Processors that may be used",
        reads="sched_getaffinity, cpu.max of the control group",
        why="the host with fewer is the slow one in every step",
        remedy="ask for the same on all hosts",
        warns="it differs",
        judge=same(text(_cpus), Verdict.WARN),
    ),
    Comparison(
        id="hosts.modules",
        title="Kernel modules for RDMA",
        reads="/proc/modules",
        why="GPUDirect and connection by address work where the module is loaded, and not on the other host",
        remedy="load the module there, and at each start (/etc/modules-load.d)",
        warns="one is loaded on some hosts alone",
        judge=same(_modules, Verdict.WARN),
    ),
    Comparison(
        id="hosts.environment",
        title="Variables of transports",
        reads="NCCL_*, UCX_*, FI_*, OMPI_MCA_*, CUDA_*, …",
        why="NCCL and UCX need the same settings on all ranks: otherwise they hang, or choose different"
        " transports",
        remedy="set them in one place: ringleader run -x, or the image",
        warns="a value differs, or is not set everywhere",
        judge=present(_environment),
    ),
    Comparison(
        id="hosts.nccl-conf",
        title="nccl.conf",
        reads="/etc/nccl.conf, ~/.nccl.conf",
        why="a file on one host alone changes NCCL there, and nobody sees it",
        remedy="keep the file alike on all hosts, or on none",
        warns="a value differs",
        judge=present(_nccl_files),
    ),
    Comparison(
        id="hosts.ifname",
        title="The interface of NCCL_SOCKET_IFNAME",
        reads="NCCL_SOCKET_IFNAME, /sys/class/net",
        why="the variable is the same for all ranks: on a host whose interface has another name NCCL does"
        " not start",
        remedy="name a prefix that fits all (eth, ens), or leave others out (^docker0,lo)",
        fails="a host has no such interface that is up",
        judge=_socket_interface,
    ),
    Comparison(
        id="hosts.hostname",
        title="Names of the hosts",
        reads="gethostname",
        why="MPI takes ranks of one hostname for ranks of one host; NCCL too, where two containers of one"
        " machine have the same name. They then try shared memory that they do not share",
        remedy="give each host a name of its own, or set NCCL_HOSTID",
        warns="several call themselves the same",
        source="NCCL, src/misc/utils.cc: a host is its name and its kernel's boot id",
        judge=_hostnames,
    ),
    Comparison(
        id="hosts.clock",
        title="Clocks",
        reads="the clocks of the hosts, compared by messages",
        why="logs and traces of several hosts are put in one order; certificates are judged by the clock",
        remedy="start chrony or systemd-timesyncd there",
        warns="more than 1 s from the others",
        fails="more than 60 s",
        source="ours",
        judge=_clocks,
    ),
)

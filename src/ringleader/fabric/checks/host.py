"""Checks of the operating system: clock, kernel modules, memory, settings, what could not be read. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import NVIDIA, RDMA, RDMA_DEVICE, usable_gpus
from ringleader.fabric.facts import TOO_LATE, HostFacts

_check = partial(check, group="Host")


@_check(
    "host.clock",
    "The clock is set by the network",
    reads="adjtimex",
    why="logs and traces of several hosts are put in one order by their clocks; certificates are judged by"
    " them",
    remedy="start chrony or systemd-timesyncd on the host",
    passes="the kernel says that it is synchronized",
    warns="it says that it is not, on a host with an RDMA device",
    skips="not readable; not synchronized on a host without RDMA: what counts there is that the hosts of a"
    " job agree (hosts.clock)",
)
def clock(facts: HostFacts) -> Iterator[CheckResult]:
    if facts.clock.synchronized is None:
        yield skipped("the kernel does not tell")
    elif facts.clock.synchronized:
        yield passed("synchronized")
    elif facts.rdma_devices:
        yield warned("not synchronized")
    else:
        yield skipped("not synchronized; hosts.clock says whether the hosts of a job agree")


@_check(
    "host.rdma-modules",
    "RDMA's kernel modules are loaded",
    reads="/proc/modules, /sys/module",
    why="ib_uverbs gives programs their access; rdma_ucm connects by address",
    remedy="modprobe ib_uverbs rdma_ucm on the host",
    passes="ib_uverbs and rdma_ucm are loaded; EFA does without the latter",
    warns="rdma_ucm is not",
    fails="ib_uverbs is not",
    skips="modules are not readable",
    source="Node Feature Discovery takes both for 'RDMA available'",
    needs=RDMA,
)
def rdma_modules(facts: HostFacts) -> Iterator[CheckResult]:
    if not facts.modules:
        yield skipped("the kernel's modules are not readable")
    elif "ib_uverbs" not in facts.modules:
        yield failed("ib_uverbs is not loaded")
    elif "rdma_ucm" in facts.modules:
        yield passed("ib_uverbs and rdma_ucm")
    elif facts.rdma_devices and all(one.driver == "efa" for one in facts.rdma_devices):
        yield passed("ib_uverbs; EFA does without rdma_ucm")
    else:
        yield warned("rdma_ucm is not loaded")


@_check(
    "host.uvm-module",
    "CUDA's kernel module is loaded",
    reads="/proc/modules",
    why="CUDA needs nvidia_uvm; a container cannot load it, so it must be there before",
    remedy="modprobe nvidia_uvm on the host, or nvidia-modprobe -u -c 0",
    passes="it is loaded",
    warns="it is not",
    skips="modules are not readable",
    needs=NVIDIA,
)
def uvm_module(facts: HostFacts) -> Iterator[CheckResult]:
    if not facts.modules:
        yield skipped("the kernel's modules are not readable")
    elif "nvidia_uvm" in facts.modules:
        yield passed("nvidia_uvm")
    else:
        yield warned("nvidia_uvm is not loaded")


@_check(
    "host.ptrace",
    "Ranks of one host may copy from each other",
    reads="kernel.yama.ptrace_scope, CapEff of /proc/self/status, Seccomp",
    why="MPI's and UCX's fast copies on one host (CMA: process_vm_readv) need it; otherwise each byte is"
    " copied"
    " twice",
    remedy="sysctl -w kernel.yama.ptrace_scope=0; Docker: --cap-add SYS_PTRACE",
    passes="0; 1, where MPI asks for it (prctl PR_SET_PTRACER); 2 with CAP_SYS_PTRACE",
    warns="2 or 3: MPI copies through shared memory instead",
    skips="not readable",
    source="Linux, Documentation/admin-guide/LSM/Yama; Open MPI, btl/sm: checks of CMA",
)
def ptrace(facts: HostFacts) -> Iterator[CheckResult]:
    value = facts.sysctls.get("kernel.yama.ptrace_scope")
    may = bool(facts.process.capabilities >> 19 & 1)
    if value is None:
        yield passed("no Yama here")
    elif value in ("0", "1") or (value == "2" and may):
        yield passed(value)
    else:
        yield warned(value, expected="0 or 1")


@_check(
    "host.sysfs",
    "What the checks read can be read",
    reads="all files and programs that facts come from",
    why="a container without /sys, or with much of it hidden, lets NCCL choose NICs blindly, and these"
    " checks too",
    remedy="mount /sys and /proc; give the container the devices it should see",
    passes="everything was readable that is there",
    warns="a part was not",
)
def readable(facts: HostFacts) -> Iterator[CheckResult]:
    lost = facts.unreadable
    if not lost:
        yield passed("everything that is there")
    else:
        first = "; ".join(f"{one.path}: {one.reason}" for one in lost[:3])
        more = f"; and {len(lost) - 3} more" if len(lost) > 3 else ""
        in_time = [one for one in lost if not one.reason.endswith(TOO_LATE) and one.path != "…"]
        remedy = (
            ""
            if in_time
            else "give it more time (--start-timeout 300), or look why the host answers so slowly"
        )
        yield warned(first + more, remedy=remedy)


@_check(
    "host.kernel",
    "The kernel is not too old",
    reads="uname -r",
    why="older kernels lack drivers of today's NICs, and RDMA in network namespaces",
    remedy="update the host's system",
    passes="4.18 (Red Hat 8) or newer",
    warns="older",
    source="ours",
    needs=RDMA_DEVICE,
)
def kernel(facts: HostFacts) -> Iterator[CheckResult]:
    match = re.match(r"(\d+)\.(\d+)", facts.kernel)
    if match is None:
        yield skipped("its release is not known")
    elif (int(match[1]), int(match[2])) < (4, 18):
        yield warned(facts.kernel, expected="4.18 or newer")
    else:
        yield passed(facts.kernel)


@_check(
    "host.processors",
    "Ranks may use several processors",
    reads="sched_getaffinity, cpu.max of the control groups above",
    why="a rank with one processor shares it between Python, NCCL's thread and the data loaders",
    remedy="Slurm: --cpus-per-task; Kubernetes: more CPUs; look at taskset -p",
    passes="two or more for each GPU, or two where there is none",
    warns="fewer",
    source="ours",
)
def processors(facts: HostFacts) -> Iterator[CheckResult]:
    gpus, cpus = len(usable_gpus(facts)), facts.usable_cpus
    wanted = 2 * max(1, gpus)
    seen = f"{cpus} {'processor' if cpus == 1 else 'processors'}" + (f" for {gpus} GPUs" if gpus else "")
    yield (warned if cpus < wanted else passed)(seen, expected=f"{wanted} or more")


@_check(
    "host.virtual",
    "A virtual machine tells its topology",
    reads="the hypervisor by DMI and CPU flags, NCCL_TOPO_FILE, NUMA nodes, PCI paths",
    why="virtual PCI paths are often flat: NCCL then sees each GPU as far from each NIC and does not use"
    " GPUDirect",
    remedy="set NCCL_TOPO_FILE to the cloud's file for this kind of machine",
    passes="bare metal, or NCCL_TOPO_FILE is set, or PCI paths show switches, or the NICs are EFA",
    warns="a virtual machine with flat PCI paths and no NCCL_TOPO_FILE",
    source="NCCL's documentation of NCCL_TOPO_FILE; Azure and Google give such files",
    needs=NVIDIA,
)
def virtual(facts: HostFacts) -> Iterator[CheckResult]:
    if not facts.hypervisor:
        yield passed("bare metal, as far as can be seen")
        return
    depth = max((len(one.ancestors) for one in facts.pci_devices), default=0)
    if facts.environment.get("NCCL_TOPO_FILE"):
        yield passed(f"{facts.hypervisor}, NCCL_TOPO_FILE={facts.environment['NCCL_TOPO_FILE']}")
    elif depth > 2:
        yield passed(f"{facts.hypervisor}, PCI paths show switches")
    elif any(one.driver == "efa" for one in facts.rdma_devices):
        yield passed(f"{facts.hypervisor}: EFA's plugin for NCCL brings the topology")
    elif not facts.rdma_devices or len(usable_gpus(facts)) < 2:
        yield passed(f"{facts.hypervisor}: with one GPU, or without RDMA, nothing is to be chosen")
    else:
        yield warned(f"{facts.hypervisor}, flat PCI paths, no NCCL_TOPO_FILE")


CHECKS: tuple[Check, ...] = (
    clock,
    rdma_modules,
    uvm_module,
    ptrace,
    readable,
    kernel,
    processors,
    virtual,
)

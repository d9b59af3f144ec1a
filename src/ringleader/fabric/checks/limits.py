"""Checks of what the system grants this process: locked memory, shared memory, files, huge pages. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.byte_size import MIB, byte_size
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import EFA_DEVICE, NVIDIA, RDMA_DEVICE
from ringleader.fabric.checks.nccl_variables import nccl_variable
from ringleader.fabric.facts import UNLIMITED, HostFacts
from ringleader.fabric.port_selection import CAP_IPC_LOCK, CAP_SYS_NICE, LEAST_LOCKED_MEMORY
from ringleader.fabric.versions import nccl_version, shown, version_of

_check = partial(check, group="Limits")

GIB = 1024 * MIB
LEAST_SHM = 16 * MIB
"""Bytes of /dev/shm with which a few ranks without GPUs start at all; ours."""


def _has_fast_hardware(facts: HostFacts) -> bool:
    return bool(facts.gpus or facts.rdma_devices)


def _has(capabilities: int, bit: int) -> bool:
    return bool(capabilities >> bit & 1)


@_check(
    "limit.memlock",
    "Memory can be locked",
    reads="RLIMIT_MEMLOCK, CapEff of /proc/self/status",
    why="RDMA registers memory, and registering locks it; below the limit 'ibv_reg_mr failed: Cannot"
    " allocate memory'",
    remedy="raise it in /etc/security/limits.conf and sshd's unit (LimitMEMLOCK=infinity); Docker: --ulimit"
    " memlock=-1"
    " --cap-add IPC_LOCK; Kubernetes: capability IPC_LOCK",
    passes="no limit, or CAP_IPC_LOCK is effective, or at least 1 GiB",
    warns="less than 1 GiB",
    fails="less than 64 MiB",
    source="NCCL's documentation, Networking troubleshooting, asks for no limit; the two sizes are ours",
    needs=RDMA_DEVICE,
)
def memlock(facts: HostFacts) -> Iterator[CheckResult]:
    process = facts.process
    limit = process.limits.get("memlock")
    if _has(process.capabilities, CAP_IPC_LOCK):
        yield passed("CAP_IPC_LOCK is effective: the limit does not count")
    elif limit is None:
        yield skipped("the limit is not readable")
    elif limit.soft == UNLIMITED or limit.soft >= GIB:
        yield passed("unlimited" if limit.soft == UNLIMITED else byte_size(limit.soft))
    else:
        told = warned if limit.soft >= LEAST_LOCKED_MEMORY else failed
        yield told(byte_size(limit.soft), expected="unlimited", remedy=_memlock_remedy(facts))


def _memlock_remedy(facts: HostFacts) -> str:
    process = facts.process
    hard = process.limits["memlock"].hard
    if process.uid and _has(process.bounding_capabilities, CAP_IPC_LOCK) and facts.container:
        return (
            "IPC_LOCK was granted, but it has no effect for a user other than root: run as root, raise"
            " LimitMEMLOCK of containerd or CRI-O, or give the program the capability (setcap"
            " cap_ipc_lock+ep)"
        )
    if hard == UNLIMITED:
        return "the hard limit is none: ulimit -l unlimited before the program starts"
    return ""


@_check(
    "limit.shm",
    "/dev/shm is large enough",
    reads="statvfs(/dev/shm)",
    why="NCCL and MPI exchange through it, and PyTorch's data loaders too; containers get 64 MiB by default",
    remedy="Docker: --shm-size=8g, or --ipc=host; Kubernetes: an emptyDir of medium Memory at /dev/shm",
    passes="1 GiB or more",
    warns="less than 1 GiB",
    fails="64 MiB or less beside GPUs or RDMA devices, less than 16 MiB anywhere, or it is not there",
    source="1 GiB: NCCL's documentation for Docker; 64 MiB: the default of Docker and Kubernetes; 16 MiB:"
    " ours",
)
def shm(facts: HostFacts) -> Iterator[CheckResult]:
    if facts.shm_size is None:
        yield failed("no /dev/shm", expected="1 GiB or more")
    elif facts.shm_size < LEAST_SHM or (facts.shm_size <= 64 * MIB and _has_fast_hardware(facts)):
        yield failed(byte_size(facts.shm_size), expected="1 GiB or more")
    elif facts.shm_size < GIB:
        yield warned(byte_size(facts.shm_size), expected="1 GiB or more")
    else:
        yield passed(byte_size(facts.shm_size))


@_check(
    "limit.shm-free",
    "/dev/shm has room",
    reads="statvfs(/dev/shm), /dev/shm",
    why="files that earlier jobs left there take the room of the next: a bus error in the middle of a step",
    remedy="look for files of jobs that are gone: ls -l /dev/shm",
    passes="at least a quarter is free",
    warns="less than a quarter",
    fails="less than 16 MiB",
    source="ours",
)
def shm_free(facts: HostFacts) -> Iterator[CheckResult]:
    if facts.shm_size is None or facts.shm_free is None:
        yield skipped("not readable")
    elif facts.shm_free < 16 * MIB:
        yield failed(f"{byte_size(facts.shm_free)} free of {byte_size(facts.shm_size)}")
    elif facts.shm_free * 4 < facts.shm_size:
        yield warned(
            f"{byte_size(facts.shm_free)} free of {byte_size(facts.shm_size)}", expected="at least a quarter"
        )
    else:
        yield passed(f"{byte_size(facts.shm_free)} free of {byte_size(facts.shm_size)}")


def _at_least(facts: HostFacts, name: str, enough: int, few: int) -> Iterator[CheckResult]:
    limit = facts.process.limits.get(name)
    if limit is None:
        yield skipped("the limit is not readable")
    elif limit.soft == UNLIMITED or limit.soft >= enough:
        yield passed("unlimited" if limit.soft == UNLIMITED else str(limit.soft))
    else:
        raised = limit.hard == UNLIMITED or limit.hard >= enough
        told = failed if limit.soft < few and not raised else warned
        hard = "unlimited" if limit.hard == UNLIMITED else str(limit.hard)
        yield told(f"{limit.soft}, hard limit {hard}", expected=f"{enough} or more")


@_check(
    "limit.nofile",
    "Enough files can be open",
    reads="RLIMIT_NOFILE",
    why="each connection is a file or more: with many ranks 'Too many open files' in the middle of"
    " connecting",
    remedy="ulimit -n 65536; for good in /etc/security/limits.conf (nofile) or the container runtime",
    passes="65536 or more; without GPUs and RDMA devices 4096",
    warns="less",
    fails="less than 1024, and the hard limit forbids more",
    source="NCCL's documentation: 144 ranks may need more than 32 thousand, so 131072; 65536 and 4096 are"
    " ours",
)
def nofile(facts: HostFacts) -> Iterator[CheckResult]:
    yield from _at_least(facts, "nofile", 65536 if _has_fast_hardware(facts) else 4096, 1024)


@_check(
    "limit.nproc",
    "Enough threads can be started",
    reads="RLIMIT_NPROC",
    why="each rank starts threads of NCCL, MPI, the data loaders: 'Resource temporarily unavailable'",
    remedy="raise nproc in /etc/security/limits.conf",
    passes="4096 or more",
    warns="less",
    fails="less than 256, and the hard limit forbids more",
    source="ours",
)
def nproc(facts: HostFacts) -> Iterator[CheckResult]:
    if facts.process.uid == 0:
        yield passed("root: the limit does not count")
    else:
        yield from _at_least(facts, "nproc", 4096, 256)


@_check(
    "limit.stack",
    "The stack has a limit",
    reads="RLIMIT_STACK",
    why="with no limit glibc gives each thread 2 MiB, less than with one: NCCL's graph search has crashed"
    " because of it",
    remedy="ulimit -s 8192",
    passes="it has one",
    warns="it has none",
    source="NCCL's documentation, Runtime and MPI issues: stack size",
)
def stack(facts: HostFacts) -> Iterator[CheckResult]:
    limit = facts.process.limits.get("stack")
    if limit is None:
        yield skipped("the limit is not readable")
    elif limit.soft == UNLIMITED:
        yield warned("unlimited", expected="8 MiB")
    else:
        yield passed(byte_size(limit.soft))


@_check(
    "efa.hugepages",
    "EFA has its huge pages",
    reads="/sys/kernel/mm/hugepages",
    why="libfabric's EFA provider takes its buffers from 2 MiB pages",
    remedy="Kubernetes: hugepages-2Mi: 5120Mi in requests and limits; or set FI_EFA_USE_HUGE_PAGE=0",
    passes="2560 pages of 2 MiB are free, or FI_EFA_USE_HUGE_PAGE=0",
    warns="fewer",
    fails="none",
    source="5120 MiB: AWS's manifests for EFA on EKS",
    needs=EFA_DEVICE,
)
def huge_pages(facts: HostFacts) -> Iterator[CheckResult]:
    if facts.environment.get("FI_EFA_USE_HUGE_PAGE") == "0":
        yield passed("not needed: FI_EFA_USE_HUGE_PAGE=0")
        return
    free = sum(one.free for one in facts.huge_pages if one.size == 2 * MIB)
    if free >= 2560:
        yield passed(f"{free} of 2 MiB are free")
    else:
        yield (warned if free else failed)(f"{free} of 2 MiB are free", expected="2560")


@_check(
    "limit.numa-calls",
    "NCCL may place memory on NUMA nodes",
    reads="Seccomp, CapEff of /proc/self/status, NCCL's version, NCCL_CUMEM_HOST_ENABLE",
    why="NCCL 2.24 to 2.26.4 places host buffers with calls that containers' filters forbid; its start then"
    " fails",
    remedy="add the capability SYS_NICE, set NCCL_CUMEM_HOST_ENABLE=0, or use NCCL 2.26.5 or newer",
    passes="another NCCL, a driver before 560 (CUDA 12.6), no filter, CAP_SYS_NICE, or"
    " NCCL_CUMEM_HOST_ENABLE=0",
    warns="NCCL 2.24 to 2.26.4 behind a filter",
    source="NCCL's documentation, Runtime and MPI issues: cuMem host allocations",
    needs=NVIDIA,
)
def numa_calls(facts: HostFacts) -> Iterator[CheckResult]:
    version = nccl_version(facts)
    if version is None:
        yield skipped("no NCCL is known here")
    elif not (2, 24) <= version < (2, 26, 5):
        yield passed(f"NCCL {shown(version)} does without")
    elif (version_of(facts.nvidia.version) or (560,)) < (560,):
        yield passed(f"driver {facts.nvidia.version}: NCCL {shown(version)} does without")
    elif nccl_variable(facts, "NCCL_CUMEM_HOST_ENABLE") == "0":
        yield passed("switched off: NCCL_CUMEM_HOST_ENABLE=0")
    elif facts.process.seccomp != 2 or _has(facts.process.capabilities, CAP_SYS_NICE):
        yield passed("no filter, or CAP_SYS_NICE")
    else:
        yield warned(f"NCCL {shown(version)} behind a filter, without CAP_SYS_NICE")


CHECKS: tuple[Check, ...] = (
    memlock,
    shm,
    shm_free,
    nofile,
    nproc,
    stack,
    huge_pages,
    numa_calls,
)

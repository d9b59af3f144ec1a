"""Checks of what control groups leave to a container or a batch job: RDMA, memory, CPUs, processes. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import CheckResult
from ringleader.fabric.checks.check import Check, check, failed, passed, skipped, warned
from ringleader.fabric.checks.conditions import RDMA_DEVICE
from ringleader.fabric.facts import UNLIMITED, HostFacts

_check = partial(check, group="Control groups")


@_check(
    "cgroup.rdma",
    "The control group does not limit RDMA",
    reads="rdma.max of the control groups above",
    why="each connection takes objects of the device; at the limit 'ibv_create_qp failed'",
    remedy="let whoever made the control group raise rdma.max (hca_handle, hca_object)",
    passes="no limit",
    warns="a limit",
    fails="a limit of 0",
    skips="no control group tells one",
    needs=RDMA_DEVICE,
)
def cgroup_rdma(facts: HostFacts) -> Iterator[CheckResult]:
    found = [one for one in facts.control_group.rdma if one.handles != UNLIMITED or one.objects != UNLIMITED]
    for one in found:
        told = failed if 0 in (one.handles, one.objects) else warned
        yield told(
            f"hca_handle {_shown(one.handles)}, hca_object {_shown(one.objects)}",
            expected="max",
            subject=one.device,
        )
    if not found:
        yield passed("no limit")


def _shown(limit: int) -> str:
    return "max" if limit == UNLIMITED else str(limit)


@_check(
    "cgroup.memory",
    "Shared memory fits into the memory limit",
    reads="memory.max of the control groups above, statvfs(/dev/shm)",
    why="pages of /dev/shm count against the container's memory: a full one kills ranks although it is"
    " within its size",
    remedy="raise the memory limit, or make /dev/shm smaller (sizeLimit, --shm-size)",
    passes="no limit, or /dev/shm is at most half of it",
    warns="/dev/shm is more than half of it",
    source="Kubernetes: emptyDir of medium Memory counts as memory; one half is ours",
)
def cgroup_memory(facts: HostFacts) -> Iterator[CheckResult]:
    limit = facts.control_group.memory
    if limit is None:
        yield passed("no limit")
    elif facts.shm_size is None:
        yield skipped("no /dev/shm")
    elif facts.shm_size * 2 > limit:
        yield warned(
            f"/dev/shm may take {byte_size(facts.shm_size)} of {byte_size(limit)}", expected="at most half"
        )
    else:
        yield passed(f"{byte_size(limit)}, of which /dev/shm may take {byte_size(facts.shm_size)}")


@_check(
    "cgroup.cpu",
    "The CPU quota covers the processors",
    reads="cpu.max of the control groups above, sched_getaffinity",
    why="programs start a thread for each processor that they see; beyond the quota all of them stand still"
    " for a while,"
    " and every rank waits",
    remedy="ask for as many CPUs as ranks need threads, or set OMP_NUM_THREADS",
    passes="no quota, or one of as many CPUs as processors",
    warns="fewer CPUs than processors",
    fails="less than one CPU",
    source="ours",
)
def cgroup_cpu(facts: HostFacts) -> Iterator[CheckResult]:
    quota, seen = facts.control_group.cpus, facts.process.cpus
    if quota is None:
        yield passed(f"no quota, {seen} processors")
    elif quota < 1:
        yield failed(f"{quota:g} CPUs", expected="at least one for each rank")
    elif quota < seen:
        yield warned(f"{quota:g} CPUs, but {seen} processors are visible", expected=f"{seen} CPUs")
    else:
        yield passed(f"{quota:g} CPUs for {seen} processors")


@_check(
    "cgroup.pids",
    "The control group grants enough processes",
    reads="pids.max of the control groups above",
    why="threads count as well: ranks, their data loaders, and NCCL's and MPI's threads",
    remedy="Docker: --pids-limit; Kubernetes: podPidsLimit of the kubelet",
    passes="no limit, or 1024 or more",
    warns="less than 1024",
    fails="less than 64",
    source="ours",
)
def cgroup_pids(facts: HostFacts) -> Iterator[CheckResult]:
    limit = facts.control_group.processes
    if limit is None or limit >= 1024:
        yield passed("no limit" if limit is None else str(limit))
    else:
        yield (failed if limit < 64 else warned)(str(limit), expected="1024 or more")


CHECKS: tuple[Check, ...] = (cgroup_rdma, cgroup_memory, cgroup_cpu, cgroup_pids)

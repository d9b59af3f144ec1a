"""Which areas of facts each check judges: where one was not read in time, there is nothing to judge by. Pure.

NVML is in none of them: where it alone is late, what sysfs and the driver's files say can still be judged.
"""

from __future__ import annotations

from collections.abc import Mapping

from ringleader.fabric.facts import HostFacts

AREAS_OF_GROUP: Mapping[str, tuple[str, ...]] = {
    "RDMA devices": ("RDMA devices", "PCI devices"),
    "RDMA ports": ("RDMA devices",),
    "RDMA counters": ("RDMA devices",),
    "RoCE": ("RDMA devices", "network interfaces", "variables"),
    "Limits": ("the process",),
    "Control groups": ("control groups",),
    "GPUs": ("GPUs",),
    "PCI Express": ("PCI devices", "RDMA devices", "GPUs"),
    "Libraries": ("libraries", "software"),
    "NCCL's variables": ("variables", "network interfaces", "RDMA devices"),
    "Variables of UCX and MPI": ("variables", "network interfaces", "RDMA devices"),
    "Environment": ("variables",),
    "Network interfaces": ("network interfaces", "the system"),
    "Memory": ("memory", "the system", "NUMA nodes"),
    "Host": ("the system",),
    "MPI and ssh": ("software",),
    "Python": ("software",),
    "Frameworks": ("software",),
}
"""Heading of checks → names of areas, as ``fabric.readers.host`` reads them."""
AREAS_OF_CHECK: Mapping[str, tuple[str, ...]] = {
    "limit.shm": ("memory", "RDMA devices", "GPUs"),
    "limit.shm-free": ("memory",),
    "efa.hugepages": ("memory", "RDMA devices"),
    "host.clock": ("the clock", "RDMA devices"),
    "host.processors": ("the process", "GPUs"),
    "host.ptrace": ("the process", "the system"),
    "host.sysfs": (),
    "host.virtual": ("the system", "PCI devices"),
}
"""Checks that judge other areas than their group."""


def unread_for(id: str, group: str, facts: HostFacts) -> str:
    """Return the sentence that says which areas of a check were not read in time; empty: all were."""
    wanted = AREAS_OF_CHECK.get(id, AREAS_OF_GROUP.get(group, ()))
    late = [one for one in wanted if one in facts.late_areas]
    return f"{' and '.join(late)}: not read in time" if late else ""

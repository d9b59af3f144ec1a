"""Facts of which an area was not read in time: judging by them raises ``UnreadError``. Pure.

``readers.host`` reads the areas; ``facts`` has the values. What was not read is unknown, never absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringleader.fabric.facts import HostFacts

FIELDS_OF_AREA: Mapping[str, tuple[str, ...]] = {
    "the clock": ("clock",),
    "the system": (
        *("hostname", "kernel", "architecture", "system", "container", "hypervisor"),
        *("kernel_command_line", "modules", "sysctls", "iommus", "cpu_governors", "uptime"),
    ),
    "the process": ("process",),
    "control groups": ("control_group",),
    "memory": ("memory", "memory_available", "huge_pages", "shm_size", "shm_free"),
    "NUMA nodes": ("numa_nodes",),
    "RDMA devices": ("rdma_devices", "rdma_files", "verbs_devices", "rdma_netns_exclusive"),
    "network interfaces": ("net_devices",),
    "PCI devices": ("pci_devices",),
    "GPUs": ("gpus", "nvidia"),
    "software": ("software",),
    "libraries": ("libraries", "verbs_providers"),
    "variables": ("environment", "nccl_files"),
    "the kernel's log": ("kernel_log",),
}
"""Area, as ``readers.host`` calls it → fields of ``HostFacts``. NVML has none: where it alone is late, what
sysfs and the driver's files say can still be judged."""


class UnreadError(Exception):
    """A value is wanted of which nothing is known: its area was not read in time."""

    def __init__(self, facts: HostFacts, area: str) -> None:
        """``facts``: those that were asked."""
        super().__init__(f"{area}: not read in time")
        self.facts, self.area = facts, area


def known(facts: HostFacts) -> HostFacts:
    """Return the facts with UnreadError in place of each value that was not read in time."""
    fields = {field: area for area in facts.late_areas for field in FIELDS_OF_AREA.get(area, ())}
    if not fields or isinstance(facts, _Known):
        return facts
    made = object.__new__(_Known)
    object.__getattribute__(made, "__dict__").update(vars(facts), _unread=fields)
    return made


class _Known(HostFacts):
    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__(self, "__dict__")
        if area := own["_unread"].get(name):
            raise UnreadError(self, area)
        return object.__getattribute__(self, name)

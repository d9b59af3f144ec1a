"""How many processors a process may keep busy: those that it may run on, and what its control groups grant.

A container with ``cpu: 2`` on a node of 64 processors may run on all 64, but after 2 × 100 ms of work in a
period of 100 ms the kernel stops all of its threads until the next one begins. Whoever counts processors asks
here. Standard library only, and any Python from 3.8 on has to read it: it is part of the program that runs on
each host (``host_facts_script.py``). Readers take ``root``, the directory that stands for ``/``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ringleader.agents.sysfs import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

V1_MOUNTS = ("sys/fs/cgroup/cpu,cpuacct", "sys/fs/cgroup/cpuacct,cpu", "sys/fs/cgroup/cpu")
"""Where version 1 has its CPU controller, by distribution."""
V2_MOUNTS = ("sys/fs/cgroup", "sys/fs/cgroup/unified")
"""Where version 2 lies: alone, or beside version 1 (hybrid), which then has the CPU controller as a rule."""


class CpuLimit(NamedTuple):
    """One control group's limit."""

    group: int
    """Identity of the group: its inode, the same in whatever container it is looked at."""
    cpus: float
    """Processors' worth of time that all processes of the group may use together: ``1.5``."""


class RankProcessors(NamedTuple):
    """What one rank may use."""

    affinity: frozenset[int]
    """CPUs that it may run on."""
    limits: tuple[CpuLimit, ...]
    """Limits of its control group and of all above it."""

    def values(self) -> list[Any]:
        """Return the same as plain values, short ones: a bit for each CPU, in hexadecimal."""
        return [format(sum(1 << cpu for cpu in self.affinity), "x"), [list(limit) for limit in self.limits]]

    @classmethod
    def of(cls, values: Sequence[Any]) -> RankProcessors:
        """Return what has these `values`."""
        bits, limits = int(values[0], 16), tuple(CpuLimit(*limit) for limit in values[1])
        return cls(frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1), limits)


# --- what files say; pure ---------------------------------------------------------------------------------


def group_directories(membership: str) -> list[str]:
    """Directories below ``/`` of the control groups that may limit a process, by its /proc/self/cgroup.

    In a container the path may be the host's, of which only the last, the root of the mount, is there.
    """
    found: dict[str, None] = {}
    for line in membership.splitlines():
        number, controllers, path = (*line.split(":", 2), "", "")[:3]
        if number != "0" and "cpu" not in controllers.split(","):
            continue
        names = [name for name in path.split("/") if name]
        if ".." in names:
            names = []  # the group is outside of what this container sees
        for mount in V2_MOUNTS if number == "0" else V1_MOUNTS:
            found.update(dict.fromkeys("/".join([mount, *names[:depth]]) for depth in range(len(names) + 1)))
    return list(found)


def quota(cpu_max: str, cfs_quota: str = "", cfs_period: str = "") -> float | None:
    """CPUs by the content of ``cpu.max`` (version 2: ``150000 100000``, ``max 100000``) or, where there is
    none, of ``cpu.cfs_quota_us`` (``-1``: no limit) and ``cpu.cfs_period_us``; None: no limit.
    """
    words = (*cpu_max.split(), "", "")[:2] if cpu_max else (cfs_quota, cfs_period)
    numbers = [int(word) for word in words if re.fullmatch("[0-9]{1,18}", word)]
    return numbers[0] / numbers[1] if len(numbers) == 2 and all(numbers) else None


def granted(cpus: int, limit: float | None) -> int:
    """Processors that may be kept busy all the time, of this many: whole ones, and at least one."""
    return cpus if limit is None else max(1, min(cpus, int(limit)))


def oversubscribed(ranks: Sequence[RankProcessors]) -> bool:
    """Whether ranks of one host have to wait for each other's processors.

    That is so where more ranks than CPUs are bound to some CPUs, or where more ranks than it grants are in a
    control group. Ranks in their own containers each bring their own limits, and share those above them.
    """
    places = {rank.affinity for rank in ranks}
    places.add(frozenset().union(*places))
    if any(sum(rank.affinity <= place for rank in ranks) > len(place) for place in places):
        return True
    limits = [limit for rank in ranks for limit in rank.limits]
    return any(sum(other.group == limit.group for other in limits) > limit.cpus for limit in limits)


# --- what this process has --------------------------------------------------------------------------------


def cpu_limits(root: Path = Path("/")) -> tuple[CpuLimit, ...]:
    """Limits of this process's control group and of all above it, as far as it can see them."""
    found: dict[int, float] = {}
    for name in group_directories(text(root / "proc/self/cgroup")):
        place = root / name
        cpus = quota(
            text(place / "cpu.max"), text(place / "cpu.cfs_quota_us"), text(place / "cpu.cfs_period_us")
        )
        if cpus is not None:
            found[_inode(place)] = cpus
    return tuple(CpuLimit(group, cpus) for group, cpus in found.items())


def _inode(place: Path) -> int:
    try:
        return os.stat(place).st_ino  # noqa: PTH116
    except OSError:
        return 0


def least(limits: Iterable[CpuLimit]) -> float | None:
    """The tightest limit; None: there is none."""
    return min((limit.cpus for limit in limits), default=None)


def cpu_limit(root: Path = Path("/")) -> float | None:
    """CPUs that this process's control groups grant (``2.5``), the tightest of them; None: no limit."""
    return least(cpu_limits(root))


def affinity() -> frozenset[int]:
    """CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def rank_processors(root: Path = Path("/")) -> RankProcessors:
    """What this process may use."""
    return RankProcessors(affinity(), cpu_limits(root))


def usable_cpus(root: Path = Path("/")) -> int:
    """Processors that this process may keep busy all the time."""
    return granted(len(affinity()), cpu_limit(root))

"""What an elastic job holds: descriptors, memory by kind of process, shared memory; whether it has grown."""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from elastic_world import HOST_AGENT, PROXY, SCRIPT, ElasticJob

DESCRIPTORS, SHARED_FILES = 16, 10
"""How many more a job may hold than at first: a process may be about to end, others use /dev/shm, too."""
KILOBYTES_A_STRIKE = 20
"""How much the memory of one kind of process may grow: the launcher remembers what happened."""
SLACK_KILOBYTES = 20_000


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What the job held at one moment."""

    strikes: int
    """Before it."""
    processes: int
    descriptors: int
    memory_files: int
    """Files in memory (memfd) that its processes have open."""
    memory_file_kilobytes: int
    shared_files: int
    """Files in /dev/shm, of the whole machine."""
    pss: dict[str, int]
    """Kind of process → kilobytes, those that are shared divided among who shares them."""
    rss: dict[str, int]


def usage_of(job: ElasticJob, strikes: int, survivor: str = "") -> Usage:
    """Look at all processes of a job. ``survivor``: a rank that is told of by itself, too."""
    there = job.processes()
    ranks = {int(one.name.rpartition("-")[2]): one.name for one in job.members()}
    descriptors, memory = 0, dict[int, int]()
    pss, rss = defaultdict[str, int](int), defaultdict[str, int](int)
    for pid, line in there.items():
        kinds = [_kind(line, launcher=pid == job.launcher.pid, rank=pid in ranks)]
        if survivor and ranks.get(pid) == survivor:
            kinds.append("survivor")
        with contextlib.suppress(OSError):
            for link in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    descriptors += 1
                    if os.readlink(link).startswith("/memfd:"):
                        found = link.stat()
                        memory[found.st_ino] = found.st_blocks // 2
            for words in map(str.split, Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()):
                for kind in kinds if words[0] in ("Pss:", "Rss:") else ():
                    (pss if words[0] == "Pss:" else rss)[kind] += int(words[1])
    return Usage(
        strikes=strikes,
        processes=len(there),
        descriptors=descriptors,
        memory_files=len(memory),
        memory_file_kilobytes=sum(memory.values()),
        shared_files=sum(1 for _ in Path("/dev/shm").rglob("*")),
        pss=dict(pss),
        rss=dict(rss),
    )


def _kind(line: str, *, launcher: bool, rank: bool) -> str:
    if launcher:
        return "launcher"
    if rank:
        return "ranks"
    if any(word in line for word in PROXY):
        return "proxies"
    if any(word in line for word in HOST_AGENT):
        return "host agent"
    if "fork_server" in line or SCRIPT.name in line:
        return "fork server, rank agents"
    return "others"


def growth(usages: list[Usage]) -> list[str]:
    """Return what has grown with the strikes between the first look and the last one."""
    found, begin, now = [], usages[0], usages[-1]
    for what, more in (("descriptors", DESCRIPTORS), ("memory_files", 4), ("shared_files", SHARED_FILES)):
        before, after = getattr(begin, what), getattr(now, what)
        if after > before + more:
            found.append(f"{before} {what.replace('_', ' ')} became {after}")
    sizes = {"files in memory": [(one.strikes, one.memory_file_kilobytes) for one in usages]}
    for kind in {kind for one in usages for kind in one.pss} - {"others"}:
        sizes[kind] = [(one.strikes, one.pss[kind]) for one in usages if kind in one.pss]
    for kind, looks in sizes.items():
        (first, before), (last, after) = looks[0], looks[-1]
        if after > before + SLACK_KILOBYTES + KILOBYTES_A_STRIKE * (last - first):
            found.append(f"{kind}: {before} kB became {after} kB")
    return found


def lines_of(usages: list[Usage]) -> list[str]:
    """Return a table of what a job held."""
    kinds = sorted({kind for usage in usages for kind in usage.pss})
    lines = [
        f"{'strikes':>8} {'processes':>10} {'descr.':>7} {'memfds':>7} {'MB':>6} {'shm':>5}  PSS/RSS in MB"
    ]
    for one in usages:
        sizes = "; ".join(
            f"{kind} {one.pss.get(kind, 0) / 1e3:.1f}/{one.rss.get(kind, 0) / 1e3:.1f}" for kind in kinds
        )
        lines.append(
            f"{one.strikes:8} {one.processes:10} {one.descriptors:7} {one.memory_files:7} "
            f"{one.memory_file_kilobytes / 1e3:6.1f} {one.shared_files:5}  {sizes}"
        )
    return lines

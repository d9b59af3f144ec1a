"""What this process may do: limits, capabilities, seccomp, security label, CPUs."""

from __future__ import annotations

import re

from ringleader.agents.hardware import cpu_list
from ringleader.fabric.facts import UNLIMITED, Limit, Process
from ringleader.fabric.readers.sysfs_files import Files, number

LIMITS = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max stack size": "stack",
    "Max core file size": "core",
    "Max address space": "as",
}
"""Names in /proc/self/limits, and those that ``ulimit`` and limits.conf use."""


def read(files: Files) -> Process:
    """Return what /proc/self tells; where it tells nothing, no rights and no limits."""
    status = dict(re.findall(r"^(\w+):[ \t]*(.*)$", files.text("proc/self/status"), re.MULTILINE))
    uids = status.get("Uid", "").split()
    return Process(
        uid=(number(uids[1]) if len(uids) > 1 else None) or 0,
        capabilities=_bits(status.get("CapEff", "")),
        bounding_capabilities=_bits(status.get("CapBnd", "")),
        limits=_limits(files.text("proc/self/limits")),
        seccomp=number(status.get("Seccomp", "")),
        security_label=_label(files),
        cpus=_cpus(status.get("Cpus_allowed_list", "")),
    )


def _bits(text: str) -> int:
    return int(text, 16) if re.fullmatch(r"[0-9a-f]{1,16}", text) else 0


def _limits(text: str) -> dict[str, Limit]:
    found = {}
    for title, name in LIMITS.items():
        line = re.search(rf"^{title} +(\d{{1,20}}|unlimited) +(\d{{1,20}}|unlimited)\b", text, re.MULTILINE)
        if line:
            soft, hard = (UNLIMITED if one == "unlimited" else int(one) for one in line.groups())
            found[name] = Limit(soft=soft, hard=hard)
    return found


def _cpus(listing: str) -> int:
    # A list of this shape is the kernel's; anything else could ask for more numbers than there is memory.
    if not re.fullmatch(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*", listing):
        return 1
    return max(1, len(cpu_list(listing)))


def _label(files: Files) -> str:
    label = files.text("proc/self/attr/apparmor/current", if_applicable=True) or files.text(
        "proc/self/attr/current", if_applicable=True
    )
    return "" if label == "unconfined" else label

"""What of a lab exists on this machine: asked of the kernel each time, never remembered."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ringleader.errors import LabError
from ringleader.lab import saved_state
from ringleader.lab.plan import Remains
from ringleader.lab.spec import directory_of
from ringleader.lab.steps import has_block

NAMESPACES = Path("/run/netns")
MADE_NETNS = ".netns"
"""Marker below the root of all labs: ``/run/netns`` was no mount before the first one came."""


@dataclass(frozen=True, kw_only=True)
class Inside:
    """A process that runs in a host's network namespace."""

    pid: int
    """As this machine counts."""
    first: bool
    """True for process 1 of the host."""


def _json(*argv: str) -> list[dict[str, Any]]:
    """Return what ``ip -j`` or ``tc -j`` prints; LabError where it fails."""
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise LabError(done.stderr.strip(), where=" ".join(argv))
    rows: list[dict[str, Any]] = json.loads(done.stdout or "[]")
    return [row for row in rows if row]


def remains(name: str, root: Path) -> Remains:
    """Return everything that exists of the lab ``name``, whatever its state file says."""
    directory = directory_of(name, str(root))
    namespaces = _namespaces(name)
    found = inside(namespaces)
    return Remains(
        processes=tuple(process.pid for group in found.values() for process in group),
        namespaces=namespaces,
        links=_links(name),
        directory=directory if Path(directory).exists() else "",
        in_hosts_file=has_block(name),
        netns_mount=Path(directory).exists()
        and saved_state.names(root) == (name,)
        and netns_is_ours(root, namespaces)
        and is_mount(NAMESPACES),
    )


def is_mount(path: Path) -> bool:
    """Tell whether something is mounted there; a directory bound to itself counts (``ismount`` misses it)."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return any(line.split()[4] == str(path) for line in lines)


def netns_is_ours(root: Path, namespaces: tuple[str, ...]) -> bool:
    """Tell whether labs made ``/run/netns`` and nothing but ``namespaces`` is left in it.

    It need not be a mount any more: whoever removed it may have been killed after unmounting.
    """
    if not (root / MADE_NETNS).exists() or not NAMESPACES.is_dir():
        return False
    return {entry.name for entry in NAMESPACES.iterdir()} <= set(namespaces)


def _namespaces(name: str) -> tuple[str, ...]:
    pattern = re.compile(rf"rl-{re.escape(name)}-h\d+")
    if not NAMESPACES.is_dir():
        return ()
    return tuple(sorted(entry.name for entry in NAMESPACES.iterdir() if pattern.fullmatch(entry.name)))


def _links(name: str) -> tuple[str, ...]:
    pattern = re.compile(rf"rl-{re.escape(name)}(-\d+)?")
    found = [row["ifname"] for row in _json("ip", "-j", "link", "show") if pattern.fullmatch(row["ifname"])]
    return tuple(sorted(found, key=lambda link: (link == f"rl-{name}", link)))


def inside(namespaces: tuple[str, ...]) -> dict[str, tuple[Inside, ...]]:
    """Return the processes of each network namespace (all of its process namespaces, zombies excluded)."""
    wanted = {}
    for namespace in namespaces:
        try:
            wanted[_identity(NAMESPACES / namespace)] = namespace
        except FileNotFoundError:
            continue
    found: dict[str, list[Inside]] = {namespace: [] for namespace in namespaces}
    own_depth = len(_namespace_pids("self"))
    for entry in os.listdir("/proc") if wanted else ():  # noqa: PTH208
        if not entry.isdigit():
            continue
        try:
            namespace = wanted.get(_identity(Path("/proc", entry, "ns/net")), "")
            if namespace:
                pids = _namespace_pids(entry)
                first = len(pids) == own_depth + 1 and pids[-1] == "1"
                found[namespace].append(Inside(pid=int(entry), first=first))
        except OSError:
            continue
    return {namespace: tuple(processes) for namespace, processes in found.items()}


def _identity(namespace: Path) -> tuple[int, int]:
    """Device and inode: a file that a restart of the machine left in ``/run/netns`` is not a namespace."""
    found = namespace.stat()
    return found.st_dev, found.st_ino


def _namespace_pids(process: str) -> list[str]:
    lines = Path("/proc", process, "status").read_text().splitlines()
    return next((line.split()[1:] for line in lines if line.startswith("NSpid:")), [])


def first_process(namespace: str) -> int | None:
    """Return process 1 of a host, as this machine counts; ``None`` where the host is dead."""
    return next((process.pid for process in inside((namespace,))[namespace] if process.first), None)


def networks_in_use() -> tuple[str, ...]:
    """Return every IPv4 network that this machine has an address in or a route to (CIDR)."""
    addresses = [one for row in _json("ip", "-j", "-4", "addr", "show") for one in row.get("addr_info", [])]
    found = {f"{one['local']}/{one['prefixlen']}" for one in addresses}
    for row in _json("ip", "-j", "-4", "route", "show", "table", "all"):
        target = row.get("dst", "default")
        if target != "default" and row.get("type", "unicast") in ("unicast", "blackhole", "unreachable"):
            found.add(target if "/" in target else f"{target}/32")
    return tuple(sorted(found))


@dataclass(frozen=True, kw_only=True)
class Shaper:
    """What limits the sending side of a link."""

    kind: str
    """``tbf``, or ``blackhole`` on a link that was cut."""
    rate: int
    """bit/s; 0 where nothing is let through."""


def sending_rate(namespace: str) -> int:
    """Return the rate that a host's own end of its cable is limited to, bit/s; 0: nothing is let through."""
    try:
        shaper = shapers(namespace).get("eth0")
    except LabError:  # the host has just gone
        return 0
    return shaper.rate if shaper else 0


def shapers(namespace: str = "") -> dict[str, Shaper]:
    """Return the root shaper of each link of this machine or of a network namespace, by the kernel."""
    inside = ("-n", namespace) if namespace else ()
    rows = _json("tc", "-j", *inside, "qdisc", "show")
    return {
        row["dev"]: Shaper(kind=row["kind"], rate=int(row.get("options", {}).get("rate", 0)) * 8)
        for row in rows
        if row.get("root")
    }

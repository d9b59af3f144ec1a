"""Cores, GPUs and limits of this host, as its files and ``nvidia-smi`` tell them; standard library only.

Part of the program that runs on each host (``host_facts_script.py``): any Python from 3.8 on has to read it.
Readers of the system take ``root``, the directory that stands for ``/``.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader.agents import sysfs
from ringleader.agents.sysfs import text

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM_SECONDS = 10.0
"""What a program that is asked for its version or its devices may take."""
NVIDIA_SMI = "nvidia-smi -L"


class Patience:
    """How long hosts may take, and what took longer: that is unknown, not absent."""

    def __init__(self, factor: float = 1.0) -> None:
        """``factor``: how many times longer than usual everything may take."""
        self.factor = factor
        self.unread: list[str] = []


def output(argv: list[str], patience: Patience | None = None, *, shown: str = "") -> str:
    """What a program says on both its outputs; empty where it cannot be run or does not end.

    ``shown``: how it is called among what was not read in time; empty: by its own words.
    """
    import subprocess

    patience = patience or Patience()

    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=PROGRAM_SECONDS * patience.factor,
        )
    except subprocess.TimeoutExpired:
        patience.unread.append(shown or " ".join(argv))
        return ""
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace")


# --- cores ------------------------------------------------------------------------------------------------


def cpu_list(listing: str) -> list[int]:
    """CPU numbers of the kernel's list format: ``0-3,8`` is 0, 1, 2, 3, 8."""
    numbers: list[int] = []
    for part in listing.split(","):
        low, dash, high = part.strip().partition("-")
        if low.isdecimal() and (not dash or high.isdecimal()):
            numbers.extend(range(int(low), int(high if dash else low) + 1))
    return numbers


def cores(usable: set[int], root: Path = Path("/")) -> list[list[int]]:
    """Usable hardware threads grouped by core, NUMA node by NUMA node; each core's first thread first."""
    node_of = {
        cpu: int(entry.name[4:])
        for entry in (root / "sys/devices/system/node").glob("node[0-9]*")
        for cpu in cpu_list(text(entry / "cpulist"))
    }
    groups: dict[int, list[int]] = {}
    for cpu in sorted(usable):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        siblings = text(topology / "thread_siblings_list") or text(topology / "core_cpus_list")
        first = min([peer for peer in cpu_list(siblings) if peer in usable], default=cpu)
        groups.setdefault(first, []).append(cpu)
    return sorted(groups.values(), key=lambda group: (node_of.get(group[0], 0), group[0]))


# --- GPUs -------------------------------------------------------------------------------------------------


def gpus_listed(listing: str) -> list[str]:
    """CUDA device ids of ``nvidia-smi -L``: indices, or UUIDs where a GPU is cut into MIG instances."""
    found: list[tuple[str, str, list[str]]] = []
    for line in listing.splitlines():
        uuid = re.search(r"\(UUID: ([^)]+)\)", line)
        whole = re.match(r"GPU (\d+):", line)
        if whole and uuid:
            found.append((whole[1], uuid[1], []))
        elif re.match(r"\s+MIG ", line) and uuid and found:
            found[-1][2].append(uuid[1])
    if not any(parts for _, _, parts in found):
        return [index for index, _, _ in found]
    return [name for _, uuid, parts in found for name in (parts or [uuid])]


def gpus(
    environ: Any,
    root: Path = Path("/"),
    listing: Callable[[], str] | None = None,
    patience: Patience | None = None,
) -> list[str]:
    """CUDA device ids that ranks may use here.

    CUDA_VISIBLE_DEVICES is kept as it is (CUDA ends the list at the first invalid id); without it the
    driver's own list counts, and ``nvidia-smi -L``, which can take seconds, is asked about MIG only.
    """
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = [name.strip() for name in visible.split(",")]
        valid = [bool(re.match(r"\d+$|GPU-|MIG-", name)) for name in names]
        return names[: valid.index(False)] if False in valid else names
    driver = root / "proc/driver/nvidia"
    minors = []
    for entry in sorted((driver / "gpus").glob("*")):
        minor = re.search(r"Device Minor:\s*(\d+)", text(entry / "information"))
        # A container may see the driver's list of the whole machine, but only its own device files.
        if minor is None or (root / f"dev/nvidia{minor[1]}").exists():
            minors.append(entry.name)
    if minors and any((driver / "capabilities").glob("gpu*/mig/gi*")):
        return gpus_listed(listing() if listing else output(NVIDIA_SMI.split(), patience))
    return [str(index) for index in range(len(minors))]


# --- RDMA -------------------------------------------------------------------------------------------------


def rdma_ports(root: Path = Path("/")) -> list[dict[str, Any]]:
    """Every port of every RDMA device: what it is, its state, and whether a process here can use it."""
    files = {
        text(entry / "ibdev"): root / "dev/infiniband" / entry.name
        for entry in sorted((root / "sys/class/infiniband_verbs").glob("uverbs*"))
    }
    found = []
    for port in sysfs.rdma_ports(str(root).rstrip("/")):
        place, number = Path(port.pop("path")), port.pop("port")
        found.append(
            {
                **port,
                "port": int(number) if number.isdigit() else 0,
                "netdev": _gid_interface(place),
                **_device_file(files.get(port["device"])),
            }
        )
    return found


def _gid_interface(port: Path) -> str:
    """Name of the first network interface in a port's table of addresses; empty: none is in our namespace."""
    for entry in sorted((port / "gid_attrs/ndevs").glob("*"))[:256]:
        name = text(entry)  # unreadable where there is no address at this index
        if name:
            return name
    return ""


def _device_file(file: Path | None) -> dict[str, str]:
    """Path of the file by which verbs are called, empty where it is not here, and why it cannot be opened."""
    if file is None or not file.exists():
        return {"file": "", "unusable": ""}
    openable = os.access(file, os.R_OK | os.W_OK)
    return {"file": str(file), "unusable": "" if openable else "Permission denied"}


def limits(root: Path = Path("/")) -> dict[str, Any]:
    """Bytes of /dev/shm (whole and free) and of memory that may be locked; -1: unlimited."""
    import resource

    try:
        shm = os.statvfs(root / "dev/shm")
        sizes = [shm.f_blocks * shm.f_frsize, shm.f_bavail * shm.f_frsize]
    except OSError:
        sizes = [0, 0]
    return {
        "shm": sizes,
        "memlock": resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
        "processes": processes(root),
    }


def processes(root: Path = Path("/"), *, user: int | None = None) -> int:
    """How many processes ``user`` (default: we) may have here at most; -1: nobody says.

    Kernel and control group limit everybody, RLIMIT_NPROC all but root.
    """
    import resource

    told = [text(root / "proc/sys/kernel" / name).strip() for name in ("pid_max", "threads-max")]
    told += [text(root / "sys/fs/cgroup" / place).strip() for place in ("pids.max", "pids/pids.max")]
    found = [int(word) for word in told if word.isdigit()]
    hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    if hard >= 0 and (os.getuid() if user is None else user) != 0:
        found.append(hard)
    return min(found, default=-1)

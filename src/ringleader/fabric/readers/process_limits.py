"""What this process may do: limits, capabilities, seccomp, security label, CPUs, its control groups.

Also the variables that steer its transports, and NCCL's own files of them. `kernel` has the host's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

from ringleader.agents.hardware import cpu_list
from ringleader.agents.usable_cores import cpu_limit
from ringleader.fabric.facts import UNLIMITED, ControlGroup, Limit, Process, RdmaLimit
from ringleader.fabric.readers.sysfs_files import Files, number, printable

LIMITS = {
    "Max locked memory": "memlock",
    "Max open files": "nofile",
    "Max processes": "nproc",
    "Max stack size": "stack",
    "Max core file size": "core",
    "Max address space": "as",
}
"""Names in /proc/self/limits, and those that ``ulimit`` and limits.conf use."""
MOUNT = "sys/fs/cgroup"
NO_LIMIT = 1 << 62
"""Version 1 writes a number near 2^63 where there is no limit."""


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


# --- control groups, the tightest of each kind -----------------------------------------------------------


def read_groups(files: Files) -> ControlGroup:
    """Return the limits, of version 2 or 1."""
    memberships = _memberships(files.text("proc/self/cgroup"))
    if not memberships:
        return ControlGroup(version=0)
    # Where both are mounted, the controllers are in version 1 and the unified tree is for names only.
    version = 2 if set(memberships) == {""} or files.exists(f"{MOUNT}/cgroup.controllers") else 1
    return ControlGroup(
        version=version,
        cpus=cpu_limit(files.root),
        memory=_least(files, memberships, version, "memory", ("memory.max", "memory.limit_in_bytes")),
        processes=_least(files, memberships, version, "pids", ("pids.max", "pids.max")),
        rdma=_rdma(files, memberships, version),
    )


def _memberships(text: str) -> dict[str, str]:
    """Return controller → path of /proc/self/cgroup; version 2 has the controller ``""``."""
    found = {}
    for line in text.splitlines():
        _, controllers, path = (*line.split(":", 2), "", "")[:3]
        if path.startswith("/"):
            found.update(dict.fromkeys(controllers.split(","), path))
    return found


def _groups(memberships: dict[str, str], version: int, controller: str) -> Iterator[str]:
    """Yield the directories of a controller, ours and all above it.

    In a container the path may be the host's, of which only the last, the root, is there.
    """
    base = MOUNT if version == 2 else f"{MOUNT}/{controller}"
    path = PurePosixPath(memberships.get("" if version == 2 else controller, "/"))
    for one in (path, *path.parents):
        if ".." not in one.parts:
            yield f"{base}{one}".rstrip("/")


def _least(
    files: Files, memberships: dict[str, str], version: int, controller: str, names: tuple[str, str]
) -> int | None:
    found = [
        files.number(f"{group}/{names[0 if version == 2 else 1]}", if_applicable=True)
        for group in _groups(memberships, version, controller)
        if files.exists(group)
    ]
    return min((one for one in found if one is not None and 0 <= one < NO_LIMIT), default=None)


def _rdma(files: Files, memberships: dict[str, str], version: int) -> tuple[RdmaLimit, ...]:
    """Return limits by device of lines as ``mlx5_0 hca_handle=2 hca_object=max``."""
    handles: dict[str, int] = {}
    objects: dict[str, int] = {}
    for group in _groups(memberships, version, "rdma"):
        for line in files.text(f"{group}/rdma.max", if_applicable=True).splitlines():
            found = re.fullmatch(r"(\S+) hca_handle=(\d{1,18}|max) hca_object=(\d{1,18}|max)", line.strip())
            if found:
                handles[found[1]] = _tighter(handles.get(found[1], UNLIMITED), found[2])
                objects[found[1]] = _tighter(objects.get(found[1], UNLIMITED), found[3])
    return tuple(
        RdmaLimit(device=name, handles=handles[name], objects=objects[name]) for name in sorted(handles)
    )


def _tighter(known: int, word: str) -> int:
    value = number(word)
    return known if value is None else value if known == UNLIMITED else min(known, value)


# --- variables --------------------------------------------------------------------------------------------

PREFIXES = (
    "NCCL_", "UCX_", "FI_", "OMPI_MCA_", "PRTE_MCA_", "PMIX_MCA_", "OPAL_PREFIX", "I_MPI_", "MPICH_",
    "MV2_", "HYDRA_", "GLOO_", "TORCH_", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "NVIDIA_",
    "LD_LIBRARY_PATH", "LD_PRELOAD", "OMP_NUM_THREADS", "PCIDEVICE_", "HOROVOD_",
    "RDMAV_", "IBV_", "MLX4_", "MLX5_", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "RCCL_",
    "SHARP_", "HCOLL_",
)  # fmt: skip
"""What the names of variables start with that are read."""
SECRET = re.compile(
    r"TOKEN|PASSW|SECRET|CREDENTIAL|(?<![A-Z])API_?KEY|_KEY(?:$|_)|^KEY_|PRIVATE", re.IGNORECASE
)
LONGEST_VALUE = 4096
NCCL_FILE = "etc/nccl.conf"


def variables(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables by name; those that look like a secret are left out."""
    return {
        name: printable(value)[:LONGEST_VALUE]
        for name, value in sorted(environ.items())
        if name.startswith(PREFIXES) and not SECRET.search(name)
    }


def nccl_files(files: Files, environ: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the variables of each file that NCCL reads, by path; of two that set the same the first wins.

    NCCL reads the file of NCCL_CONF_FILE instead of ~/.nccl.conf, then /etc/nccl.conf; the environment wins
    over all (its ``initEnv``).
    """
    own, home = environ.get("NCCL_CONF_FILE", ""), environ.get("HOME", "")
    names = [own or f"{home}/.nccl.conf"] if own or home else []
    found = {}
    for name in (*names, f"/{NCCL_FILE}"):
        if name.startswith("/") and (text := files.text(name, limit=65536)):
            found[printable(name)] = _variables(text)
    return found


def _variables(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line and line.strip()[:1] != "#")
    every = {name.strip(): value.strip()[:LONGEST_VALUE] for name, _, value in pairs}
    return {
        name: value for name, value in every.items() if name.startswith(PREFIXES) and not SECRET.search(name)
    }

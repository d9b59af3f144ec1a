"""What a rank's processes can be seen doing from outside: /proc only, nothing is attached or stopped."""

from __future__ import annotations

from ringleader.agents.fast_stdlib import signal

LIBRARIES = ("libmpi.so*", "libmpich.so*", "libmpi_abi.so*", "libmpi-*.so*")
"""File names of MPI libraries."""
SEGMENTS = (
    "sm_segment.*",  # Open MPI 5
    "vader_segment.*",  # Open MPI 4
    "osc_*",
    "open_mpi.*",
    "mpich_shm*",
    "mpich_shar_tmp*",
    "Intel_MPI_*",
    "shm-*-MPI*",
    "psm*_shm.*",
    "ucx_shm_*",
    "nccl-*",
)
"""Names in /dev/shm that belong to an MPI or a transport, never to a user's program."""


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:  # noqa: PTH123 - see rank_identity.py
            return file.readlines()
    except OSError:
        return []


def mapped_files(pid: int) -> set[str]:
    """Return the paths of the files that a process has mapped."""
    found = set()
    for line in _lines(f"/proc/{pid}/maps"):
        start = line.find("/")
        if start > 0:
            found.add(line[start:].rstrip("\n").removesuffix(" (deleted)"))
    return found


def mpi_libraries(paths: set[str]) -> set[str]:
    """Return those of these files that are an MPI library."""
    return {path for path in paths if _matches(path.rpartition("/")[2], LIBRARIES)}


def segments(paths: set[str], shm: str = "/dev/shm") -> set[str]:
    """Return those of these files that are shared memory of an MPI, directly in ``shm``."""
    return {
        path
        for path in paths
        if path.startswith(f"{shm}/")
        and _matches(path[len(shm) + 1 :], SEGMENTS)
        and "/" not in path[len(shm) + 1 :]
    }


def _matches(name: str, patterns: tuple[str, ...]) -> bool:
    return any(_fits(name, pattern.split("*")) for pattern in patterns)


def _fits(name: str, parts: list[str]) -> bool:
    """Say whether a name is made of these parts in this order, with anything between them."""
    if len(parts) == 1:
        return name == parts[0]
    if not name.startswith(parts[0]):
        return False
    start = len(parts[0])
    for part in parts[1:-1]:
        found = name.find(part, start)
        if found < 0:
            return False
        start = found + len(part)
    return name.endswith(parts[-1]) and len(name) - len(parts[-1]) >= start


def catches(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal: without one the signal would end it."""
    return _in_masks(pid, number, "SigCgt:")


def takes(pid: int, number: int) -> bool:
    """Say whether a process has a handler for a signal, or waits for it with the signal blocked."""
    return _in_masks(pid, number, "SigCgt:", "SigBlk:")


def _in_masks(pid: int, number: int, *names: str) -> bool:
    masks = [int(line.split()[1], 16) for line in _lines(f"/proc/{pid}/status") if line.startswith(names)]
    return any(mask >> (number - 1) & 1 for mask in masks)


def described(pid: int) -> dict[str, str]:
    """Return name, state and the kernel function a process waits in, as /proc says it."""
    words = {"pid": str(pid), "name": "", "state": "", "waits_in": ""}
    for line in _lines(f"/proc/{pid}/status"):
        key, _, value = line.partition(":")
        if key in ("Name", "State"):
            words[key.lower()] = value.strip()
    words["waits_in"] = "".join(_lines(f"/proc/{pid}/wchan")).strip("0 \n")
    return words


def without_stacks(pids: list[int]) -> tuple[list[int], list[dict[str, str]]]:
    """Split processes into those that print their stacks on SIGQUIT and a description of those that can't."""
    able = [pid for pid in pids if catches(pid, signal.SIGQUIT)]
    return able, [described(pid) for pid in pids if pid not in able]

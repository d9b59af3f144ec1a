"""What a rank's processes can be seen doing from outside: /proc only, nothing is attached or stopped.

Their tree and their end are in `process_tree`.
"""

from __future__ import annotations

import re

from ringleader.agents.fast_stdlib import signal

_LIBRARY = r"libmpi(ch|_abi|-.*)?\.so"
"""How the file name of an MPI library begins."""
_SEGMENT = (
    r"sm_segment\.|vader_segment\.|osc_|open_mpi\."  # Open MPI 5 and 4
    r"|mpich_shm|mpich_shar_tmp|Intel_MPI_|shm-.*-MPI|psm.*_shm\.|ucx_shm_|nccl-"
)
"""How names in /dev/shm begin that belong to an MPI or a transport, never to a user's program."""


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
    return {path for path in paths if re.match(_LIBRARY, path.rpartition("/")[2])}


def segments(paths: set[str], shm: str = "/dev/shm") -> set[str]:
    """Return those of these files that are shared memory of an MPI, directly in ``shm``."""
    split = [(path, *path.rpartition("/")[::2]) for path in paths]
    return {path for path, directory, name in split if directory == shm and re.match(_SEGMENT, name)}


def takes(pid: int, number: int, *, blocked: bool = True) -> bool:
    """Say whether a process has a handler for a signal or, if asked, waits for it with the signal blocked."""
    names = ("SigCgt:", "SigBlk:") if blocked else ("SigCgt:",)
    masks = [int(line.split()[1], 16) for line in _lines(f"/proc/{pid}/status") if line.startswith(names)]
    return any(mask >> (number - 1) & 1 for mask in masks)


def without_stacks(pids: list[int]) -> tuple[list[int], list[dict[str, str]]]:
    """Split processes into those that print their stacks on SIGQUIT, which ends one without a handler, and
    those that can't: their name, state and the kernel function that they wait in, as /proc has it."""
    able = [pid for pid in pids if takes(pid, signal.SIGQUIT, blocked=False)]
    return able, [_described(pid) for pid in pids if pid not in able]


def _described(pid: int) -> dict[str, str]:
    words = {"pid": str(pid), "name": "", "state": "", "waits_in": ""}
    for line in _lines(f"/proc/{pid}/status"):
        key, _, value = line.partition(":")
        if key in ("Name", "State"):
            words[key.lower()] = value.strip()
    words["waits_in"] = "".join(_lines(f"/proc/{pid}/wchan")).strip("0 \n")
    return words

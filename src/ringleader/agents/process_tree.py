"""A process tree and its end: nothing that a rank started outlives it.

A subreaper inherits the orphans below it, so that a child which called ``setsid`` or forked twice is still
found by walking down from us. Parent-death signals make the end of a process reach its children even where
it was killed with SIGKILL and could do nothing itself. Also what a process that forks others needs besides:
signals as bytes in a pipe, and closing what the others must not have; and what processes can be seen doing
from outside, by /proc only: nothing is attached or stopped.
"""

from __future__ import annotations

import os
import time

from ringleader.agents.light_imports import Iterable, Sequence, signal, suppress

ASKED = signal.SIGRTMAX - 3
"""Has a Python of a rank write its stacks for us; SIGQUIT writes them on its standard error."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_ADOPTED: set[int] = set()
"""Processes that count as our children although another one is their parent."""


def _prctl(option: int, value: int) -> None:
    try:
        from _ctypes import call_function, dlopen, dlsym
    except ImportError:
        from ctypes import CDLL, c_ulong

        failed = CDLL(None).prctl(option, c_ulong(value), 0, 0, 0)
    else:  # what CDLL does, without the 5 ms for types that nobody needs here
        loaded = dlopen(None, 0)  # type: ignore[arg-type]  # None, as in dlopen(3): what is loaded already
        failed = call_function(dlsym(loaded, "prctl"), (option, value, 0, 0, 0))
    if failed:
        raise OSError(f"prctl({option}, {value}) failed")


def die_with_parent(number: int, parent: int) -> None:
    """Get signal ``number`` when ``parent`` ends; get it now if that has happened already."""
    _prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os.kill(os.getpid(), number)


def become_subreaper() -> None:
    """Become the parent of every descendant whose own parent ends."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def wake_on_signals(numbers: Sequence[int]) -> int:
    """Return the read end of a pipe into which the number of each of these signals is written from now on."""
    read, write = os.pipe()
    for fd in (read, write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda number, frame: None)  # the byte in the pipe is what counts
    return read


def adopt(pid: int) -> None:
    """Have a process count as our child, until ``disown``; its parent tells us how it ended."""
    _ADOPTED.add(pid)


def disown(pid: int) -> None:
    """Forget a process that ``adopt`` was given: its number may be another's soon."""
    _ADOPTED.discard(pid)


def parents() -> dict[int, int]:
    """Return the parent of every process in /proc that is not a zombie."""
    found: dict[int, int] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - hundreds of Path objects cost more than the walk
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields and fields[0] not in (b"Z", b"X"):
                found[int(name)] = int(fields[1])
    return found


def childless() -> bool:
    """Say whether we have no child, dead or alive; a subreaper then has no descendant either."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    return False


def below(root: int, table: dict[int, int] | None = None) -> list[int]:
    """Return every living descendant of a process, parents before children.

    ``root`` is another process, or ourselves once we are a subreaper.
    """
    ours = _ADOPTED if root == os.getpid() else ()
    if table is None and root == os.getpid() and not ours and childless():
        return []  # without reading all of /proc
    table = parents() if table is None else table
    children: dict[int, list[int]] = {}
    for pid, parent in table.items():
        children.setdefault(parent, []).append(pid)
    found = [*children.get(root, ()), *(pid for pid in ours if pid in table)]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found


def send(pids: list[int], number: int) -> None:
    """Send a signal to each process; one that has ended meanwhile is fine."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def ask_to_end(root: int, *, spared: tuple[int, ...] = ()) -> None:
    """SIGTERM to everything below a process but ``spared``, stopped ones woken."""
    pids = below(root)
    send([pid for pid in pids if pid not in spared], signal.SIGTERM)
    send(pids, signal.SIGCONT)


def stop_below(root: int) -> None:
    """SIGSTOP to everything below a process, until nobody new is found: some fork meanwhile."""
    stopped: set[int] = set()
    while found := [pid for pid in below(root) if pid not in stopped]:
        send(found, signal.SIGSTOP)
        stopped.update(found)


def reap() -> list[tuple[int, int]]:
    """Collect every child that has ended: (pid, wait status)."""
    ended: list[tuple[int, int]] = []
    with suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            ended.append(found)
    return ended


def kill_below(root: int) -> None:
    """SIGKILL everything below a process until nothing is left, for at most 5 s.

    In a loop, because a process may fork between the walk and the signal.
    """
    until = time.monotonic() + 5.0
    while (pids := below(root)) and time.monotonic() < until:
        send(pids, signal.SIGKILL)
        reap()
        time.sleep(0.005)


def open_descriptors() -> set[int]:
    """Return those that are open."""
    listed = {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    return {fd for fd in listed if _is_open(fd)}  # one was that of the listing


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def close_all_but(kept: Iterable[int]) -> None:
    """Close every descriptor but the standard ones and these."""
    start, spared = 3, sorted({fd for fd in kept if fd >= 3})
    for fd in spared:
        os.closerange(start, fd)
        start = fd + 1
    os.closerange(start, max(start, *open_descriptors()) + 1)


# --- what processes can be seen doing ----------------------------------------------------------------------

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
    import re

    return {path for path in paths if re.match(_LIBRARY, path.rpartition("/")[2])}


def segments(paths: set[str], shm: str = "/dev/shm") -> set[str]:
    """Return those of these files that are shared memory of an MPI, directly in ``shm``."""
    import re

    split = [(path, *path.rpartition("/")[::2]) for path in paths]
    return {path for path, directory, name in split if directory == shm and re.match(_SEGMENT, name)}


def takes(pid: int, number: int, *, blocked: bool = True) -> bool:
    """Say whether a process has a handler for a signal or, if asked, waits for it with the signal blocked."""
    names = ("SigCgt:", "SigBlk:") if blocked else ("SigCgt:",)
    masks = [int(line.split()[1], 16) for line in _lines(f"/proc/{pid}/status") if line.startswith(names)]
    return any(mask >> (number - 1) & 1 for mask in masks)


def without_stacks(pids: list[int]) -> tuple[dict[int, str], list[dict[str, str]]]:
    """Split processes into those that write their stacks on ASKED, with the path of the file that takes them,
    and those that can't: their name, state and the kernel function that they wait in, as /proc has it.

    Whoever has a handler and no longer our file is spared: it may write to what has that file's number now.
    """
    able = {pid: path for pid in pids if takes(pid, ASKED, blocked=False) and (path := _stacks(pid))}
    return able, [_described(pid) for pid in pids if pid not in able]


def _stacks(pid: int) -> str:
    """Return the path by which a process' file for stacks can be read; empty: it has none."""
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
            with suppress(OSError):
                path = f"/proc/{pid}/fd/{name}"
                target = os.readlink(path)  # noqa: PTH115
                if target.startswith("/memfd:ringleader-stacks") or "/ringleader-stacks." in target:
                    return path
    return ""


def _described(pid: int) -> dict[str, str]:
    words = {"pid": str(pid), "name": "", "state": "", "waits_in": ""}
    for line in _lines(f"/proc/{pid}/status"):
        key, _, value = line.partition(":")
        if key in ("Name", "State"):
            words[key.lower()] = value.strip()
    words["waits_in"] = "".join(_lines(f"/proc/{pid}/wchan")).strip("0 \n")
    return words

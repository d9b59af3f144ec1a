"""``lab down``: remove everything that exists of a lab, also after a crash of ``lab up`` at any moment."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ringleader.errors import LabError
from ringleader.lab import etc_hosts, kernel_state, saved_state
from ringleader.lab.removal_plan import Remains, kill_step, netns_steps, network_removal_steps
from ringleader.lab.spec import directory_of
from ringleader.lab.steps import carry_out


def down(name: str, *, root: Path = saved_state.ROOT, timeout: float = 30.0) -> bool:
    """Remove the lab; True where there was something to remove. LabError names what stayed."""
    if not kernel_state.remains(name, root):
        tidy_root(root)
        return False
    with saved_state.locked(name, root, timeout=timeout) as lock:
        remove(name, root=root, lock=lock, timeout=timeout)
    return True


def remove(
    name: str, *, root: Path, lock: int | None, timeout: float = 30.0, keep_directory: bool = False
) -> None:
    """Remove everything that exists of the lab; the caller holds its lock.

    ``keep_directory`` empties the lab's directory and leaves it, since the lock lives on it.
    """
    found = kernel_state.remains(name, root)
    etc_hosts.remove_block(name)
    end_processes(found.namespaces, timeout=timeout)
    for step in network_removal_steps(found):
        carry_out(step, lock=lock)
    directory = Path(directory_of(name, str(root)))
    if keep_directory:
        _empty(directory)
        return
    shutil.rmtree(directory, ignore_errors=True)
    tidy_root(root)
    left = kernel_state.remains(name, root)
    if left:
        raise LabError(f"could not remove {_listed(left)}", where=f"lab {name}")


def end_processes(namespaces: tuple[str, ...], *, timeout: float) -> None:
    """Kill every process in these namespaces and wait until they are gone; LabError names those that stay.

    Killing process 1 of a host kills all of the host; the loop is for those that entered from outside.
    """
    deadline = time.monotonic() + timeout
    while True:
        alive = [process.pid for group in kernel_state.inside(namespaces).values() for process in group]
        if not alive:
            return
        if time.monotonic() > deadline:
            raise LabError(f"processes {alive} did not end in {timeout:.0f} s", where="lab")
        carry_out(kill_step(tuple(alive)), lock=None)
        time.sleep(0.02)


def _empty(directory: Path) -> None:
    for entry in directory.iterdir():
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.name != saved_state.WORKER:
            entry.unlink()


def _listed(left: Remains) -> str:
    parts = [*map(str, left.processes), *left.namespaces, *left.links]
    parts += [left.directory] if left.directory else []
    parts += ["the block in /etc/hosts"] if left.in_hosts_file else []
    return ", ".join(parts)


@contextmanager
def root_locked(root: Path) -> Iterator[None]:
    """Keep other labs' first and last steps out while the mount of ``/run/netns`` is looked at."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def claim_netns(root: Path) -> None:
    """Note it when ``/run/netns`` is not yet the mount that ``ip netns add`` makes of it."""
    with root_locked(root):
        if not kernel_state.is_mount(kernel_state.NAMESPACES):
            (root / kernel_state.MADE_NETNS).touch()


def tidy_root(root: Path) -> None:
    """Remove what the last lab leaves behind: ``/run/netns`` as we made it, and the empty directories.

    Each step looks for itself whether it is still to be done: an earlier call may have been killed anywhere.
    """
    with suppress(FileNotFoundError), root_locked(root):
        if saved_state.names(root):
            return
        if kernel_state.netns_is_ours(root, ()):
            for step in netns_steps(mounted=kernel_state.is_mount(kernel_state.NAMESPACES)):
                carry_out(step, lock=None)
        (root / kernel_state.MADE_NETNS).unlink(missing_ok=True)
        with suppress(OSError):
            root.rmdir()
    with suppress(OSError):
        root.parent.rmdir()

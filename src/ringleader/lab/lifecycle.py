"""``lab up`` and ``lab down``: a lab is made, or removed, also after a crash of ``lab up`` at any moment.

``plan`` has the steps, ``hosts`` what is done with the hosts of a lab that is up.
"""

from __future__ import annotations

import fcntl
import ipaddress
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ringleader.errors import LabError
from ringleader.lab import kernel_state, requirements, saved_state
from ringleader.lab.hosts import between_hosts, end_processes, wait_for_host
from ringleader.lab.plan import first_steps, netns_steps, network_removal_steps, up_phases
from ringleader.lab.saved_state import Lab, lab_of
from ringleader.lab.spec import LabSpec, directory_of, free_subnet
from ringleader.lab.steps import carry_out, remove_block

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Made:
    """What ``up`` found or did."""

    lab: Lab
    already: bool
    """True where the lab was up before."""
    dead: tuple[str, ...] = ()
    """Hosts of a lab that was up before which are dead: ``lab heal`` starts them again."""


def up(
    spec: LabSpec,
    *,
    environ: Mapping[str, str],
    progress: Progress,
    root: Path = saved_state.ROOT,
    replace_it: bool = False,
    any_subnet: bool = False,
    timeout: float | None = None,
) -> Made:
    """Make the lab and return when every host answers to ssh; a failed or interrupted one is taken down.

    A lab of that name and with the same parameters that is up is left alone; leftovers of a crashed ``up``
    are removed first. LabError where a lab of that name has other parameters (unless ``replace_it``),
    where the subnet is in use (unless ``any_subnet`` allows another one), or where a step failed or a
    deadline of ``timeout`` seconds passed (by default what such hosts need at most).
    """
    timeout = spec.start_seconds if timeout is None else timeout
    with saved_state.locked(spec.name, root, timeout=timeout) as lock:
        present = None if replace_it else _present(spec, root, any_subnet=any_subnet)
        if present:
            return present
        try:
            remove(spec.name, root=root, lock=lock, keep_directory=True)
            spec = _reserve(spec, root, lock=lock, any_subnet=any_subnet)
            machine = requirements.machine(spec, environ, root)
            lab = lab_of(spec, root)
            _claim_netns(root)
            for phase in up_phases(spec, machine):
                progress(phase.title)
                carry_out(*phase.steps, lock=lock)
            _wait(lab, progress, lock=lock, timeout=timeout)
            (Path(lab.directory) / "up").touch()
            return Made(lab=lab, already=False)
        except BaseException:
            progress("taking down what was made")
            remove(spec.name, root=root, lock=lock)
            raise


def _wait(lab: Lab, progress: Progress, *, lock: int, timeout: float) -> None:
    """Wait for all hosts side by side; LabError has one fault for each that can't be logged in to.

    A host more is a second more: they start on the same cores.
    """
    deadline = time.monotonic() + timeout + len(lab.hosts)
    faults = []
    with ThreadPoolExecutor(max_workers=8) as pool:
        found = pool.map(lambda host: wait_for_host(lab, host, deadline=deadline, lock=lock), lab.hosts)
        for ready, fault in enumerate(found, 1):
            progress(f"waiting for sshd: {ready} of {len(lab.hosts)} hosts")
            faults += [fault] if fault else []
    if not faults and len(lab.hosts) > 1:
        fault = between_hosts(lab, lab.hosts[0], lab.hosts[-1], timeout=5 * lab.spec.answer_seconds)
        faults += [fault] if fault else []
    if faults:
        raise LabError(faults)


def _present(spec: LabSpec, root: Path, *, any_subnet: bool) -> Made | None:
    """Return the lab where it is up as asked for; ``None`` where one is to be made."""
    if not Path(root, spec.name, "up").exists():
        return None
    lab = saved_state.load(spec.name, root)
    found = kernel_state.remains(spec.name, root)
    if len(found.namespaces) < lab.spec.hosts or lab.spec.bridge not in found.links:
        return None
    if any_subnet:
        spec = replace(spec, subnet=lab.spec.subnet)
    if lab.spec != spec:
        pairs = [(one.name, getattr(lab.spec, one.name), getattr(spec, one.name)) for one in fields(LabSpec)]
        differ = ", ".join(f"{name} {was} (asked for: {wish})" for name, was, wish in pairs if was != wish)
        raise LabError(
            f"it is up with other parameters: {differ}",
            where=f"lab {spec.name}",
            hint="add --replace, or give the new one another --lab-name",
        )
    alive = kernel_state.inside(found.namespaces)
    dead = tuple(h.name for h in lab.hosts if not any(p.first for p in alive.get(h.namespace, ())))
    return Made(lab=lab, already=True, dead=dead)


def _reserve(spec: LabSpec, root: Path, *, lock: int, any_subnet: bool) -> LabSpec:
    """Write the intent with a subnet that nobody has; two labs that come up side by side never share one.

    LabError where the subnet is in use and ``any_subnet`` does not let us take another one.
    """
    with _root_locked(root):
        others = [name for name in saved_state.names(root) if name != spec.name]
        taken = {*kernel_state.networks_in_use(), *saved_state.subnets(others, root)}
        wanted = ipaddress.IPv4Network(spec.subnet)
        clashes = sorted(text for text in taken if wanted.overlaps(ipaddress.IPv4Network(text, strict=False)))
        if clashes and not any_subnet:
            raise LabError(
                f"{spec.subnet} is in use on this machine ({', '.join(clashes)})",
                where="--subnet",
                hint="give a private /24 that is free, for example --subnet 10.214.7.0/24",
            )
        if clashes:
            spec = replace(spec, subnet=free_subnet(taken))
        carry_out(*first_steps(spec, str(root)), lock=lock)
    return spec


def down(name: str, *, root: Path = saved_state.ROOT, timeout: float = 30.0) -> bool:
    """Remove the lab; True where there was something to remove. LabError names what stayed."""
    if not kernel_state.remains(name, root):
        _tidy_root(root)
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
    remove_block(name)
    end_processes(found.namespaces, timeout=timeout)
    carry_out(*network_removal_steps(found), lock=lock)
    directory = Path(directory_of(name, str(root)))
    if keep_directory:
        for entry in directory.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != saved_state.WORKER:
                entry.unlink()
        return
    shutil.rmtree(directory, ignore_errors=True)
    _tidy_root(root)
    left = kernel_state.remains(name, root)
    if left:
        raise LabError(f"could not remove {left}", where=f"lab {name}")


@contextmanager
def _root_locked(root: Path) -> Iterator[None]:
    """Keep other labs' first and last steps out while the mount of ``/run/netns`` is looked at."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _claim_netns(root: Path) -> None:
    """Note it when ``/run/netns`` is not yet the mount that ``ip netns add`` makes of it."""
    with _root_locked(root):
        if not kernel_state.is_mount(kernel_state.NAMESPACES):
            (root / kernel_state.MADE_NETNS).touch()


def _tidy_root(root: Path) -> None:
    """Remove what the last lab leaves behind: ``/run/netns`` as we made it, and the empty directories.

    Each step looks for itself whether it is still to be done: an earlier call may have been killed anywhere.
    """
    with suppress(FileNotFoundError), _root_locked(root):
        if saved_state.names(root):
            return
        if kernel_state.netns_is_ours(root, ()):
            carry_out(*netns_steps(mounted=kernel_state.is_mount(kernel_state.NAMESPACES)))
        (root / kernel_state.MADE_NETNS).unlink(missing_ok=True)
        with suppress(OSError):
            root.rmdir()
    with suppress(OSError):
        root.parent.rmdir()

"""``lab up``: make a lab, or say that it is up; a failed or interrupted one takes down what it made."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields, replace
from pathlib import Path

from ringleader.errors import LabError
from ringleader.lab import kernel_state, requirements, saved_state
from ringleader.lab.down import claim_netns, remove, root_locked
from ringleader.lab.saved_state import Lab, lab_of
from ringleader.lab.setup_plan import first_steps, up_phases
from ringleader.lab.spec import LabSpec, free_subnet
from ringleader.lab.sshd_check import between_hosts, wait_for_host
from ringleader.lab.steps import carry_out

Progress = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Made:
    """What ``up`` found or did."""

    lab: Lab
    already: bool
    """True where the lab was up before."""
    dead: tuple[str, ...] = ()
    """Hosts of a lab that was up before which are dead: ``lab heal`` mends them."""


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
    """Make the lab and return when every host answers to ssh.

    A lab of that name and with the same parameters that is up is left alone; leftovers of a crashed ``up``
    are removed first. LabError where a lab of that name has other parameters (unless ``replace_it``),
    where the subnet is in use (unless ``any_subnet`` allows another one), or where a step failed or a
    deadline of ``timeout`` seconds passed (by default what such hosts need at most).
    """
    timeout = spec.start_seconds if timeout is None else timeout
    with saved_state.locked(spec.name, root, timeout=timeout) as lock:
        present = _present(spec, root, replace_it=replace_it, any_subnet=any_subnet)
        if present:
            return present
        try:
            remove(spec.name, root=root, lock=lock, keep_directory=True)
            spec = _reserve(spec, root, lock=lock, any_subnet=any_subnet)
            return _make(spec, environ, progress, root=root, lock=lock, timeout=timeout)
        except BaseException:
            progress("taking down what was made")
            remove(spec.name, root=root, lock=lock)
            raise


def _make(
    spec: LabSpec, environ: Mapping[str, str], progress: Progress, *, root: Path, lock: int, timeout: float
) -> Made:
    machine = requirements.machine(spec, environ, root)
    lab = lab_of(spec, root)
    claim_netns(root)
    for phase in up_phases(spec, machine):
        progress(phase.title)
        for step in phase.steps:
            carry_out(step, lock=lock)
    _wait(lab, progress, lock=lock, timeout=timeout)
    (Path(lab.directory) / "up").touch()
    return Made(lab=lab, already=False)


def _wait(lab: Lab, progress: Progress, *, lock: int, timeout: float) -> None:
    """Wait for all hosts side by side; LabError has one fault for each that can't be logged in to.

    A host more is a second more: they start on the same cores.
    """
    deadline = time.monotonic() + timeout + len(lab.hosts)
    ready, faults = 0, []
    with ThreadPoolExecutor(max_workers=8) as pool:
        for fault in pool.map(lambda host: wait_for_host(lab, host, deadline=deadline, lock=lock), lab.hosts):
            ready += 1
            progress(f"waiting for sshd: {ready} of {len(lab.hosts)} hosts")
            faults += [fault] if fault else []
    if not faults and len(lab.hosts) > 1:
        fault = between_hosts(lab, lab.hosts[0], lab.hosts[-1], timeout=5 * lab.spec.answer_seconds)
        faults += [fault] if fault else []
    if faults:
        raise LabError(faults)


def _present(spec: LabSpec, root: Path, *, replace_it: bool, any_subnet: bool) -> Made | None:
    """Return the lab where it is up as asked for; ``None`` where one is to be made."""
    directory = Path(root, spec.name)
    if not (directory / "up").exists() or replace_it:
        return None
    lab = saved_state.load(spec.name, root)
    found = kernel_state.remains(spec.name, root)
    if len(found.namespaces) < lab.spec.hosts or lab.spec.bridge not in found.links:
        return None
    if any_subnet:
        spec = replace(spec, subnet=lab.spec.subnet)
    if lab.spec != spec:
        raise LabError(
            f"it is up with other parameters: {_differences(lab.spec, spec)}",
            where=f"lab {spec.name}",
            hint="add --replace, or give the new one another --name",
        )
    alive = kernel_state.inside(found.namespaces)
    dead = tuple(h.name for h in lab.hosts if not any(p.first for p in alive.get(h.namespace, ())))
    return Made(lab=lab, already=True, dead=dead)


def _differences(old: LabSpec, new: LabSpec) -> str:
    pairs = [(field.name, getattr(old, field.name), getattr(new, field.name)) for field in fields(LabSpec)]
    return ", ".join(f"{name} {was} (asked for: {wish})" for name, was, wish in pairs if was != wish)


def _reserve(spec: LabSpec, root: Path, *, lock: int, any_subnet: bool) -> LabSpec:
    """Write the intent with a subnet that nobody has; two labs that come up side by side never share one.

    LabError where the subnet is in use and ``any_subnet`` does not let us take another one.
    """
    with root_locked(root):
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
        for step in first_steps(spec, str(root)):
            carry_out(step, lock=lock)
    return spec

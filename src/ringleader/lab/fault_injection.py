"""One host of a lab: find it, look at it, cut its link, mend it, kill everything on it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ringleader.errors import Fault, LabError, RequestError
from ringleader.lab import kernel_state
from ringleader.lab import saved_state as state
from ringleader.lab.actions import carry_out
from ringleader.lab.down import end_processes
from ringleader.lab.saved_state import Lab, LabHost
from ringleader.lab.setup_plan import boot_step, cut_steps, shaping_steps
from ringleader.lab.spec import format_rate
from ringleader.lab.sshd_check import answers, wait_for_host


@dataclass(frozen=True, kw_only=True)
class HostStatus:
    """One line of ``lab status``."""

    host: LabHost
    state: str
    """``up``, ``cut`` (its link carries nothing), ``dead`` (nothing runs there) or ``missing``."""
    rate: str
    """Of its link, each way, as the kernel shapes it now; ``-`` where there is no link."""
    sshd: bool
    """True where an sshd answers the head."""


def find_host(lab: Lab, name: str) -> LabHost:
    """Return the host called ``name`` (``h2`` also names ``NAME-h2``); RequestError where there is none."""
    for host in lab.hosts:
        if name in (host.name, host.name.removeprefix(f"{lab.name}-")):
            return host
    names = ", ".join(host.name for host in lab.hosts)
    raise RequestError(
        Fault(where="HOST", what=f"lab {lab.name} has no host {name!r}", hint=f"hosts: {names}")
    )


def _number(lab: Lab, host: LabHost) -> int:
    return lab.hosts.index(host) + 1


def cut(lab: Lab, host: LabHost) -> None:
    """Make the host's link swallow every frame, both ways: its peers see silence, never a reset."""
    for step in cut_steps(lab.spec, _number(lab, host)):
        carry_out(step, lock=None)


def kill(lab: Lab, host: LabHost, *, timeout: float = 20.0) -> None:
    """Kill every process on the host, its sshd included; returns when none is left."""
    end_processes((host.namespace,), timeout=timeout)


def heal(lab: Lab, host: LabHost, *, root: Path = state.ROOT, timeout: float = 20.0) -> None:
    """Mend the link, and start the host again where it is dead; returns when the head can log in."""
    with state.locked(lab.name, root, timeout=timeout) as lock:
        for step in shaping_steps(lab.spec, _number(lab, host)):
            carry_out(step, lock=lock)
        if kernel_state.first_process(host.namespace) is None:
            end_processes((host.namespace,), timeout=timeout)
            carry_out(boot_step(lab.spec, _number(lab, host), str(root)), lock=lock)
        fault = wait_for_host(lab, host, deadline=time.monotonic() + timeout, lock=lock)
    if fault:
        raise LabError(fault)


def status(lab: Lab) -> tuple[HostStatus, ...]:
    """Look at every host, side by side."""
    shapers = kernel_state.shapers()
    living = kernel_state.inside(tuple(host.namespace for host in lab.hosts))

    def look(host: LabHost) -> HostStatus:
        shaper = shapers.get(lab.spec.link(_number(lab, host)))
        if shaper is None or not (kernel_state.NAMESPACES / host.namespace).exists():
            return HostStatus(host=host, state="missing", rate="-", sshd=False)
        alive = any(process.first for process in living[host.namespace])
        word = "dead" if not alive else "cut" if shaper.kind == "blackhole" else "up"
        rate = format_rate(shaper.rate) if shaper.rate else "-"
        return HostStatus(host=host, state=word, rate=rate, sshd=word == "up" and answers(lab, host))

    with ThreadPoolExecutor(max_workers=16) as pool:
        return tuple(pool.map(look, lab.hosts))

"""Faults of one host, on request: cut or slow its link, kill everything on it, and heal it again."""

from __future__ import annotations

import time
from pathlib import Path

from ringleader.errors import LabError, RequestError
from ringleader.lab import kernel_state, saved_state
from ringleader.lab.down import end_processes
from ringleader.lab.saved_state import Lab, LabHost
from ringleader.lab.setup_plan import boot_step
from ringleader.lab.slow_link import SlowLink, slow_steps
from ringleader.lab.sshd_check import wait_for_host
from ringleader.lab.steps import carry_out
from ringleader.lab.virtual_network import cut_steps


def find_host(lab: Lab, name: str) -> LabHost:
    """Return the host called ``name`` (``h2`` also names ``NAME-h2``); RequestError where there is none."""
    for host in lab.hosts:
        if name in (host.name, host.name.removeprefix(f"{lab.name}-")):
            return host
    names = ", ".join(host.name for host in lab.hosts)
    raise RequestError(f"lab {lab.name} has no host {name!r}", where="HOST", hint=f"hosts: {names}")


def cut(lab: Lab, host: LabHost) -> None:
    """Make the host's link swallow every frame, both ways: its peers see silence, never a reset."""
    for step in cut_steps(lab.spec, lab.number(host)):
        carry_out(step, lock=None)


def slow(lab: Lab, host: LabHost, limit: SlowLink | None) -> None:
    """Limit the host's link; ``None`` lifts all limits. On a link that was cut this mends it, too."""
    for step in slow_steps(lab.spec, lab.number(host), limit):
        carry_out(step, lock=None)


def kill(lab: Lab, host: LabHost, *, timeout: float = 20.0) -> None:
    """Kill every process on the host, its sshd included; returns when none is left."""
    end_processes((host.namespace,), timeout=timeout)


def heal(lab: Lab, host: LabHost, *, root: Path = saved_state.ROOT, timeout: float = 20.0) -> None:
    """Mend the link, and start the host again where it is dead; returns when the head can log in."""
    timeout = max(timeout, lab.spec.start_seconds if lab.spec.kernel else 0.0)
    with saved_state.locked(lab.name, root, timeout=timeout) as lock:
        for step in slow_steps(lab.spec, lab.number(host), None):
            carry_out(step, lock=lock)
        if kernel_state.first_process(host.namespace) is None:
            end_processes((host.namespace,), timeout=timeout)
            carry_out(boot_step(lab.spec, lab.number(host), str(root)), lock=lock)
        fault = wait_for_host(lab, host, deadline=time.monotonic() + timeout, lock=lock)
    if fault:
        raise LabError(fault)

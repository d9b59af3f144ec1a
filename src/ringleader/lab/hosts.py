"""The hosts of a lab that is up: how they are, ways into them, and faults of one host on request."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ringleader.agents.usable_cores import usable_cpus
from ringleader.errors import Fault, LabError, RequestError
from ringleader.lab import kernel_state, requirements, saved_state
from ringleader.lab.host_files import session_variables
from ringleader.lab.network import SlowLink, cut_steps, slow_steps
from ringleader.lab.plan import boot_step, kill_step
from ringleader.lab.rootfs import rootfs_facts
from ringleader.lab.saved_state import Lab, LabHost
from ringleader.lab.spec import format_rate
from ringleader.lab.steps import carry_out


def find_host(lab: Lab, name: str) -> LabHost:
    """Return the host called ``name`` (``h2`` also names ``NAME-h2``); RequestError where there is none."""
    for host in lab.hosts:
        if name in (host.name, host.name.removeprefix(f"{lab.name}-")):
            return host
    names = ", ".join(host.name for host in lab.hosts)
    raise RequestError(f"lab {lab.name} has no host {name!r}", where="HOST", hint=f"hosts: {names}")


# --- faults -----------------------------------------------------------------------------------------------


def cut(lab: Lab, host: LabHost) -> None:
    """Make the host's link swallow every frame, both ways: its peers see silence, never a reset."""
    carry_out(*cut_steps(lab.spec, lab.number(host)))


def slow(lab: Lab, host: LabHost, limit: SlowLink | None) -> None:
    """Limit the host's link; ``None`` lifts all limits. A link that was cut carries frames again."""
    carry_out(*slow_steps(lab.spec, lab.number(host), limit))


def kill(lab: Lab, host: LabHost, *, timeout: float = 20.0) -> None:
    """Kill every process on the host, its sshd included; returns when none is left."""
    end_processes((host.namespace,), timeout=timeout)


def heal(lab: Lab, host: LabHost, *, root: Path = saved_state.ROOT, timeout: float = 20.0) -> None:
    """Repair the link, and start the host again where it is dead; returns when the head can log in."""
    timeout = max(timeout, lab.spec.start_seconds if lab.spec.kernel else 0.0)
    with saved_state.locked(lab.name, root, timeout=timeout) as lock:
        carry_out(*slow_steps(lab.spec, lab.number(host), None), lock=lock)
        if kernel_state.first_process(host.namespace) is None:
            end_processes((host.namespace,), timeout=timeout)
            carry_out(boot_step(lab.spec, lab.number(host), str(root)), lock=lock)
        fault = wait_for_host(lab, host, deadline=time.monotonic() + timeout, lock=lock)
    if fault:
        raise LabError(fault)


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
        carry_out(kill_step(tuple(alive)))
        time.sleep(0.02)


# --- ways into a host, which work while its link is cut and need no sshd ----------------------------------

_TALK = ("TERM", "COLORTERM", "LANG", "LANGUAGE", "TZ")
_IN_DIRECTORY = 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"'


def environment(lab: Lab, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the caller's environment with what is a host's own.

    On a host with its own root the machine's PATH and the like mean nothing: it has that tree's
    environment, and of the caller's only what says how to talk to the caller.
    """
    own = session_variables(lab.spec, cores=usable_cpus())
    if lab.spec.tree is None:
        return {**environ, **own}
    kept = {name: value for name, value in environ.items() if name in _TALK or name.startswith("LC_")}
    facts = rootfs_facts(lab.spec.tree)
    account = {"HOME": "/root", "USER": "root", "LOGNAME": "root", "SHELL": facts.shell}
    return {**kept, **account, **dict(facts.environment), "PATH": facts.search_path, **own}


def shell_of(lab: Lab, environ: Mapping[str, str]) -> str:
    """Return the program that ``lab shell`` opens."""
    return rootfs_facts(lab.spec.tree).shell if lab.spec.tree else environ.get("SHELL", "/bin/sh")


def argv_on(lab: Lab, host: LabHost, command: tuple[str, ...]) -> tuple[str, ...]:
    """Return the argv that runs ``command`` on the host, here; LabError where the host is dead."""
    pid = kernel_state.first_process(host.namespace)
    if pid is None:
        raise LabError("this host is dead", where=host.name, hint=f"ringleader lab heal {host.name}")
    here = ("sh", "-c", _IN_DIRECTORY, "sh", os.getcwd())  # noqa: PTH109
    if lab.spec.kernel:  # nothing enters another kernel but a session
        terminal = ("-t",) if sys.stdin.isatty() else ()
        return ("ssh", *terminal, "-F", lab.ssh_config, host.name, shlex.join((*here, *command)))
    # The environment to come may have another PATH than the machine.
    program = requirements.find("nsenter", os.environ.get("PATH", "")) or "nsenter"
    namespaces = ("--mount", "--uts", "--ipc", "--net", "--pid")
    return (program, "--target", str(pid), *namespaces, *here, *command)


def exec_all(
    lab: Lab, command: tuple[str, ...], environ: Mapping[str, str]
) -> tuple[tuple[LabHost, subprocess.CompletedProcess[bytes]], ...]:
    """Run the command on all hosts side by side; return each host's output (both streams) and exit code."""
    argvs = [argv_on(lab, host, command) for host in lab.hosts]
    env = environment(lab, environ)

    def run(argv: tuple[str, ...]) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, env=env, check=False)

    with ThreadPoolExecutor(max_workers=32) as pool:
        return tuple(zip(lab.hosts, pool.map(run, argvs), strict=True))


# --- how a host is: asked of the kernel and of its sshd ---------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class HostStatus:
    """One line of ``lab status``."""

    host: LabHost
    state: str
    """``up``, ``cut`` (its link carries nothing), ``dead`` (nothing runs there) or ``missing``."""
    rate: str
    """Of its link, as the kernel shapes it now; ``in`` and ``out`` where they differ; ``-``: none."""
    sshd: bool
    """True where an sshd answers the head."""


def status(lab: Lab) -> tuple[HostStatus, ...]:
    """Look at every host, side by side."""
    shapers = kernel_state.shapers()
    living = kernel_state.inside(tuple(host.namespace for host in lab.hosts))

    def look(host: LabHost) -> HostStatus:
        shaper = shapers.get(lab.spec.link(lab.number(host)))
        if shaper is None or not (kernel_state.NAMESPACES / host.namespace).exists():
            return HostStatus(host=host, state="missing", rate="-", sshd=False)
        alive = any(process.first for process in living[host.namespace])
        word = "dead" if not alive else "cut" if shaper.kind == "blackhole" else "up"
        rates = (shaper.rate, kernel_state.sending_rate(host.namespace))
        into, out_of = (format_rate(rate) if rate else "-" for rate in rates)
        rate = into if into == out_of else f"{into} in, {out_of} out"
        return HostStatus(host=host, state=word, rate=rate, sshd=word == "up" and _answers(lab, host))

    with ThreadPoolExecutor(max_workers=16) as pool:
        return tuple(pool.map(look, lab.hosts))


def _answers(lab: Lab, host: LabHost) -> bool:
    """Tell whether an sshd says its banner within the seconds that this lab's hosts may take."""
    timeout = lab.spec.answer_seconds
    try:
        with socket.create_connection((host.address, lab.spec.ssh_port), timeout=timeout) as connection:
            connection.settimeout(timeout)
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False


def wait_for_host(lab: Lab, host: LabHost, *, deadline: float, lock: int | None) -> Fault | None:
    """Wait until the head can log in to the host; return the fault where it can't before ``deadline``.

    ``deadline`` is in the seconds of ``time.monotonic``.
    """
    while not _answers(lab, host):
        if lab.spec.kernel and kernel_state.first_process(host.namespace) is None:
            return _fault(lab, host, "its machine has ended")
        if time.monotonic() > deadline:
            return _fault(lab, host, f"no sshd answers on {host.address} port {lab.spec.ssh_port}")
        time.sleep(0.02)
    left = max(1.0, deadline - time.monotonic())
    argv = ("ssh", "-F", lab.ssh_config, "-o", f"ConnectTimeout={left:.0f}", host.name, "uname", "-n")
    stdin = subprocess.DEVNULL if lock is None else lock
    try:
        done = subprocess.run(
            argv, stdin=stdin, capture_output=True, text=True, timeout=left + 1, check=False
        )
    except subprocess.TimeoutExpired:
        return _fault(lab, host, f"ssh did not end within {left:.0f} s")
    if done.returncode:
        return _fault(lab, host, f"ssh can't log in: {done.stderr.strip()}")
    if done.stdout.strip() != host.name:
        return _fault(lab, host, f"another host answers there: {done.stdout.strip()!r}")
    return None


def between_hosts(lab: Lab, start: LabHost, end: LabHost, *, timeout: float) -> Fault | None:
    """Return a fault where one host can't reach another one, though the head reaches both."""
    program = (
        "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), float(sys.argv[3]))"
    )
    words = (sys.executable, "-I", "-c", program, end.address, str(lab.spec.ssh_port), str(timeout))
    argv: tuple[str, ...] = ("nsenter", f"--net=/run/netns/{start.namespace}", *words)
    if lab.spec.kernel:
        argv = ("ssh", "-F", lab.ssh_config, start.name, shlex.join(words))
    with suppress(subprocess.TimeoutExpired):
        done = subprocess.run(argv, capture_output=True, timeout=timeout + 20, check=False)
        if done.returncode == 0:
            return None
    return Fault(
        where=start.name,
        what=f"it can't reach {end.name} over the lab's switch",
        hint="does a firewall filter bridged frames (Docker's does)? "
        "sysctl net.bridge.bridge-nf-call-iptables=0",
    )


def _fault(lab: Lab, host: LabHost, what: str) -> Fault:
    said = []
    for log in ("boot.log", "sshd.log"):
        path = Path(lab.directory, f"h{lab.number(host)}", log)
        if path.exists():
            said += path.read_text(errors="replace").splitlines()[-5:]
    return Fault(where=host.name, what="; ".join([what, *said]))

"""The sshd of a host: does it answer, does it let us in, and if not, what does its log say."""

from __future__ import annotations

import shlex
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

from ringleader.errors import Fault
from ringleader.lab import kernel_state
from ringleader.lab.saved_state import Lab, LabHost


def answers(lab: Lab, host: LabHost) -> bool:
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
    while not answers(lab, host):
        if lab.spec.kernel and kernel_state.first_process(host.namespace) is None:
            return _fault(lab, host, "its machine has ended")
        if time.monotonic() > deadline:
            return _fault(lab, host, f"no sshd answers on {host.address} port {lab.spec.ssh_port}")
        time.sleep(0.02)
    left = max(1.0, deadline - time.monotonic())
    argv = ("ssh", "-F", lab.ssh_config, "-o", f"ConnectTimeout={left:.0f}", host.name, "uname", "-n")
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL if lock is None else lock,
            capture_output=True,
            text=True,
            timeout=left + 1,
            check=False,
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

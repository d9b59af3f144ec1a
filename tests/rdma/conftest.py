"""Two emulated machines with Soft-RoCE for all tests here."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.commands import finished
from tests.labs import skip_without_lab

from ringleader.lab import requirements, saved_state
from ringleader.lab.spec import LabSpec

ROOT = Path(__file__).parents[2]
KERNEL = os.environ.get("RDMA_KERNEL", str(ROOT / "build/rdma"))
"""Where ``scripts/rdma_kernel`` has unpacked a kernel."""
SSH_PORT = "43"
UCX = ("-x", "OMPI_MCA_pml=ucx", "-x", "UCX_TLS=rc_verbs,ud_verbs,self", "-x", "UCX_NET_DEVICES=rxe0:1")
"""What makes the ranks' MPI use the device, whatever is required."""
SLOW = ("--start-timeout", "600")
Ringleader = Callable[..., "subprocess.CompletedProcess[str]"]


def call(*words: str, timeout: float = 900) -> subprocess.CompletedProcess[str]:
    """Run the command line; return its exit code and both streams."""
    argv = [sys.executable, "-m", "ringleader", *words]
    return finished(argv, stdin=subprocess.DEVNULL, timeout=timeout, cwd=ROOT)


@pytest.fixture(scope="session")
def ringleader() -> Ringleader:
    return call


@pytest.fixture(scope="session")
def machines() -> Iterator[saved_state.Lab]:
    """Two hosts with one core each; skipped, with the reason, where this machine cannot emulate them."""
    skip_without_lab()
    if faults := requirements.machine_faults(LabSpec(hosts=2, kernel=KERNEL), os.environ):
        pytest.skip("; ".join(f"{fault.what}: make test-rdma" for fault in faults))
    name = f"v{os.getpid()}"[:8]
    words = ("--hosts", "2", "--slots", "1", "--name", name, "--ssh-port", SSH_PORT)
    try:
        done = call("lab", "up", "--rdma", "--kernel", KERNEL, *words)
        assert done.returncode == 0, done.stderr
        yield saved_state.load(name)
    finally:
        done = call("lab", "down", "--lab-name", name)
        assert done.returncode == 0, done.stderr


@pytest.fixture
def on(machines: saved_state.Lab) -> Callable[[int, str], str]:
    """Return a function that runs a shell's words on a host, by its number, and returns what they print."""

    def run(number: int, words: str) -> str:
        argv = ("ssh", "-F", machines.ssh_config, machines.hosts[number - 1].name, words)
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=900)
        assert done.returncode in (0, 3), done.stderr
        return done.stdout

    return run

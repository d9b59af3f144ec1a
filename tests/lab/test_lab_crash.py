"""``lab up`` killed, interrupted or failing at any moment: nothing stays behind."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.time_limits import patience

from ringleader.errors import LabError
from ringleader.lab import kernel_state, lifecycle, saved_state
from ringleader.lab.spec import LabSpec

pytestmark = pytest.mark.lab


def _start_up(name: str) -> subprocess.Popen[str]:
    words = ("lab", "up", "--lab-name", name, "--hosts", "3", "--ssh-port", "34")
    argv = [sys.executable, "-m", "ringleader", *words]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.long
def test_sigkill_at_five_random_moments_leaves_nothing_after_down(scratch_name, ringleader, snapshot):
    before = snapshot(scratch_name)
    begin = time.monotonic()
    whole = _start_up(scratch_name)
    whole.communicate(timeout=90)
    duration = time.monotonic() - begin
    assert whole.returncode == 0
    assert ringleader("lab", "down", "--lab-name", scratch_name).returncode == 0
    seed = time.time_ns()
    moments = random.Random(seed).sample([0.1 + duration * step / 100 for step in range(100)], 5)
    for moment in moments:
        process = _start_up(scratch_name)
        time.sleep(moment)
        process.kill()
        process.communicate(timeout=90)
        done = ringleader("lab", "down", "--lab-name", scratch_name)
        assert done.returncode == 0, done.stderr
        assert snapshot(scratch_name) == before, (
            f"killed after {moment:.3f} s of {duration:.3f} s, seed {seed}"
        )


def test_an_interrupted_up_takes_down_what_it_made_by_itself(scratch_name, snapshot):
    before = snapshot(scratch_name)
    process = _start_up(scratch_name)
    made = Path("/run/netns", f"rl-{scratch_name}-h2")
    deadline = time.monotonic() + patience(60)
    while not made.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=90)
    assert process.returncode == 143, said
    assert snapshot(scratch_name) == before


def test_a_step_that_fails_takes_down_what_came_before_it(scratch_name, ringleader, snapshot):
    link = f"rl-{scratch_name}-2"
    before = snapshot(scratch_name)
    subprocess.run(["ip", "link", "add", "rlblock", "type", "bridge"], check=True)
    try:
        subprocess.run(["ip", "link", "property", "add", "dev", "rlblock", "altname", link], check=True)
        done = ringleader("lab", "up", "--lab-name", scratch_name, "--hosts", "3", "--ssh-port", "34")
        assert done.returncode == 3
        assert link in done.stderr and "File exists" in done.stderr
    finally:
        subprocess.run(["ip", "link", "del", "rlblock"], check=True)
    assert snapshot(scratch_name) == before


# --- emulated machines; no QEMU is needed -----------------------------------------------------------------


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """What looks like a kernel's package, unpacked."""
    for name in ("boot/vmlinuz-6.1", "lib/modules/6.1/rdma_rxe.ko"):
        path = tmp_path / "kernel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"depends=\0")
    return tmp_path / "kernel"


@pytest.mark.parametrize("program", ["exec sleep 600", "echo 'qemu: no guest memory'; exit 1"])
def test_a_machine_that_does_not_boot(
    lab_machine: None, scratch_name: str, kernel: Path, tmp_path: Path, program: str
) -> None:
    if not Path("/dev/net/tun").exists():
        pytest.skip("there is no /dev/net/tun")
    for name, text in (("qemu-system-x86_64", program), ("busybox", ":")):
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    spec = LabSpec(name=scratch_name, hosts=2, slots=1, ssh_port=44, kernel=str(kernel))
    environ = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    with pytest.raises(LabError) as caught:
        lifecycle.up(spec, environ=environ, progress=lambda text: None, any_subnet=True, timeout=1.0)
    assert len(caught.value.faults) == 2
    wanted = "its machine has ended; qemu: no guest memory"
    assert (wanted if "exit 1" in program else "no sshd answers") in caught.value.faults[0].what
    assert not kernel_state.remains(scratch_name, saved_state.ROOT)

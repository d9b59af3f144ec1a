"""Emulated machines that do not come up: what was made for them is removed. No QEMU is needed."""

import os
from pathlib import Path

import pytest

from ringleader.errors import LabError
from ringleader.lab import kernel_state, lifecycle, saved_state
from ringleader.lab.spec import LabSpec

pytestmark = [pytest.mark.lab]


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    """What looks like a kernel's package, unpacked."""
    for name in ("boot/vmlinuz-6.1", "lib/modules/6.1/rdma_rxe.ko"):
        path = tmp_path / "kernel" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"depends=\0")
    return tmp_path / "kernel"


@pytest.mark.parametrize("program", ["exec sleep 600", "echo 'qemu: could not set up guest memory'; exit 1"])
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
    wanted = "its machine has ended; qemu: could not set up guest memory"
    assert (wanted if "exit 1" in program else "no sshd answers") in caught.value.faults[0].what
    assert not kernel_state.remains(scratch_name, saved_state.ROOT)

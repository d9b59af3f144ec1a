"""What emulated machines boot from, and why a lab of them is refused."""

import gzip
import lzma
import subprocess
from pathlib import Path

import pytest

from ringleader.lab import hosts, initramfs, kernel_state, requirements, saved_state
from ringleader.lab.host_files import INIT, MEMORY
from ringleader.lab.spec import LabSpec


def kernel(root: Path, version: str, **modules: str) -> Path:
    """Make a kernel's package, unpacked: modules by name, each with what it depends on."""
    image = root / f"boot/vmlinuz-{version}"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.touch()
    for name, needs in modules.items():
        path = root / "lib/modules" / version / "kernel" / f"{name}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + needs.encode() + b"\0name=x\0")
    return image


def test_the_newest_kernel_with_soft_roce_is_taken(tmp_path: Path) -> None:
    for version in ("6.1.0-9-amd64", "6.1.0-56-amd64"):
        kernel(tmp_path, version, ib_core="", other="")
        (tmp_path / "lib/modules" / version / "rdma_rxe.ko.xz").write_bytes(b"")
    kernel(tmp_path, "7.0-cloud", ib_core="")
    assert [image.name for image, _ in initramfs.kernels(tmp_path)] == [
        "vmlinuz-6.1.0-9-amd64",
        "vmlinuz-6.1.0-56-amd64",
    ]
    assert initramfs.kernels(tmp_path / "nowhere") == []


def test_modules_come_after_those_that_they_need() -> None:
    needs = {"a": "b,d-e", "b": "c", "c": "", "d_e": "c"}
    modules = {name: b"x=1\0depends=" + text.encode() + b"\0" for name, text in needs.items()}
    assert initramfs.in_order(modules, ("a", "built_in", "c")) == ["c", "b", "d_e", "a"]


def test_the_archive_has_busybox_the_first_program_and_modules(tmp_path: Path) -> None:
    image = kernel(tmp_path, "6.1", virtio_net="virtio", virtio="", rdma_rxe="ib_core", ib_core="")
    packed = tmp_path / "lib/modules/6.1/kernel/overlay.ko.xz"
    packed.write_bytes(lzma.compress(b"depends=\0"))
    (tmp_path / "busybox").write_bytes(b"#busybox")
    (tmp_path / "init").write_text(INIT)
    output = tmp_path / "initramfs"
    initramfs.main(str(image), str(tmp_path / "busybox"), str(tmp_path / "init"), str(output))
    files = unpacked(gzip.decompress(output.read_bytes()))
    assert files["order"].decode().split() == [
        *("virtio.ko", "virtio_net.ko", "overlay.ko", "ib_core.ko", "rdma_rxe.ko")
    ]
    assert files["bin/busybox"] == b"#busybox" and files["init"].startswith(b"#!/bin/busybox sh")
    assert files["modules/overlay.ko"] == b"depends=\0"


def unpacked(data: bytes) -> dict[str, bytes]:
    """Read an archive as the kernel's Documentation/driver-api/early-userspace/buffer-format.rst has it."""
    found, at = {}, 0
    while True:
        assert data[at : at + 6] == b"070701"
        size, length = (int(data[at + place : at + place + 8], 16) for place in (54, 94))
        name = data[at + 110 : at + 110 + length - 1].decode()
        start = (at + 110 + length + 3) // 4 * 4
        if name == "TRAILER!!!":
            return found
        found[name] = data[start : start + size]
        at = (start + size + 3) // 4 * 4


@pytest.mark.process
def test_the_first_program_is_a_script() -> None:
    subprocess.run(["sh", "-n"], input=INIT, text=True, check=True)


def machine(root: Path, *, memory: int, tun: bool = True) -> Path:
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {memory * 1024} kB\n")
    (root / "dev/net").mkdir(parents=True)
    if tun:
        (root / "dev/net/tun").touch()
    return root


def test_a_machine_that_cannot_emulate_hosts_says_all_that_it_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requirements, "find", lambda tool, path, **rest: None)
    spec = LabSpec(hosts=2, kernel=str(tmp_path / "none"))
    found = requirements.machine_faults(spec, {}, machine(tmp_path / "m", memory=MEMORY, tun=False))
    lacks = [fault.what for fault in found]
    assert "qemu-system-x86_64" in lacks[0] and "apt-get install qemu-system-x86" in found[0].hint
    assert "no kernel with Soft-RoCE" in lacks[1] and "--kernel" in found[1].hint
    assert "/dev/net/tun" in lacks[2]
    assert f"2 hosts need {2 * MEMORY + requirements.SPARE_MEMORY} MiB" in lacks[3]
    monkeypatch.setattr(requirements, "find", lambda tool, path, **rest: f"/bin/{tool}")
    kernel(tmp_path / "k", "6.1", rdma_rxe="")
    spec = LabSpec(hosts=2, kernel=str(tmp_path / "k"))
    assert requirements.machine_faults(spec, {}, machine(tmp_path / "n", memory=4 * MEMORY)) == []


def test_what_runs_on_a_machine_goes_through_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_state, "first_process", lambda namespace: 4711)
    lab = saved_state.lab_of(LabSpec(hosts=2, kernel="/opt/kernel"))
    argv = hosts.argv_on(lab, lab.hosts[1], ("echo", "a b"))
    assert argv[0] == "ssh" and argv[-3:-1] == (lab.ssh_config, "h2") and argv[-1].endswith("echo 'a b'")
    lab = saved_state.lab_of(LabSpec(hosts=2))
    assert "nsenter" in hosts.argv_on(lab, lab.hosts[1], ("echo", "a b"))[0]

"""The lab's lines in /etc/hosts, its state directory, its lock, and what a machine must offer."""

import gzip
import lzma
import os
import socket

import pytest

from ringleader.errors import LabError, RefusedError, RequestError
from ringleader.lab import hosts, initramfs, kernel_state, requirements, saved_state, steps
from ringleader.lab.host_files import INIT, MEMORY
from ringleader.lab.rootfs import (
    Bind,
    Rootfs,
    parse_bind,
    read_environment,
    read_set_env,
    rootfs_facts,
    rootfs_of_options,
)
from ringleader.lab.spec import LabSpec, to_json


def test_blocks_of_several_labs_and_later_lines_stay(tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(b"\n\n# \xc3\xa4\n1.2.3.4 a\n\n127.0.1.1 vm")
    before, inode = path.read_bytes(), path.stat().st_ino
    steps.add_block("ab", "10.0.1.1 ab-h1\n", path)
    assert b"\n10.0.1.1 ab-h1\n" in path.read_bytes() and path.read_bytes().startswith(before)
    steps.remove_block("ab", path)
    assert (path.read_bytes(), path.stat().st_ino) == (before, inode), "byte for byte"
    path.write_text("127.0.0.1 localhost\n")
    steps.add_block("a", "10.0.0.1 a-h1\n", path)
    steps.add_block("ab", "10.0.1.1 ab-h1\n", path)
    with path.open("a") as file:
        file.write("9.9.9.9 later\n")
    steps.remove_block("a", path)
    assert not steps.has_block("a", path) and steps.has_block("ab", path)
    steps.remove_block("ab", path)
    steps.remove_block("ab", path)
    assert path.read_text() == "127.0.0.1 localhost\n9.9.9.9 later\n"


def _make(root, name, **spec):
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "lab.json").write_text(to_json(LabSpec(name=name, hosts=2, **spec)))


def test_a_lab_that_is_not_there_is_told_of_the_word_that_named_it(tmp_path):
    for name, environ, where in (
        ("nolab", {"RINGLEADER_LAB": "other"}, "--lab-name"),
        (None, {"RINGLEADER_LAB": "nolab"}, "RINGLEADER_LAB"),
        (None, {}, "--lab"),
    ):
        with pytest.raises((LabError, RequestError)) as caught:
            saved_state.to_launch_on(name=name, environ=environ, root=tmp_path)
        assert [one.where for one in caught.value.faults] == [where]
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.json").write_text("{")
    with pytest.raises(LabError, match="ringleader lab down --lab-name lab"):
        saved_state.load("lab", tmp_path)


def test_the_lab_that_is_meant_is_the_default_one_or_the_only_one(tmp_path):
    def found(**environ):
        return saved_state.to_launch_on(environ=environ, root=tmp_path).name

    with pytest.raises(LabError, match="there is no lab 'lab'"):
        found()
    _make(tmp_path, "one")
    assert found() == "one"
    _make(tmp_path, "two")
    with pytest.raises(LabError, match="several labs are up: one, two") as caught:
        found()
    assert "RINGLEADER_LAB=one" in str(caught.value)
    assert found(RINGLEADER_LAB="two") == "two"
    with pytest.raises(LabError, match="there is no lab 'three'"):
        found(RINGLEADER_LAB="three")
    _make(tmp_path, "lab")
    assert found() == found(RINGLEADER_LAB="") == "lab"
    lab = saved_state.current("two", root=tmp_path)
    assert [host.name for host in lab.hosts] == ["two-h1", "two-h2"]
    assert lab.hostfile == str(tmp_path / "two" / "hostfile")


def test_a_job_that_begins_on_the_machine_is_not_sent_to_hosts_with_another_root(tmp_path):
    def found(here):
        return saved_state.to_launch_on(environ={}, root=tmp_path, here=here).name

    _make(tmp_path, "lab", tree=Rootfs(path="/srv/tree"))
    with pytest.raises(LabError, match=r"have the files of /srv/tree") as caught:
        found("node7")
    assert "ringleader lab exec h1 -- ringleader run --lab" in str(caught.value)
    assert found("h2") == "lab"
    _make(tmp_path, "lab")
    assert found("node7") == "lab"


def test_the_lock_waits_names_its_holder_and_survives_the_directorys_end(tmp_path):
    with saved_state.locked("lab", tmp_path, timeout=5):
        with pytest.raises(LabError, match=f"process {os.getpid()} is at work on it"):
            saved_state.locked("lab", tmp_path, timeout=0.1).__enter__()
        (tmp_path / "lab" / saved_state.WORKER).unlink()
        (tmp_path / "lab").rmdir()
        with saved_state.locked("lab", tmp_path, timeout=5):
            assert (tmp_path / "lab" / saved_state.WORKER).exists()


def test_everything_that_a_machine_lacks_is_named_at_once(tmp_path):
    for tool in ("ip", "mount"):
        (tmp_path / tool).write_text("#!/bin/sh\n")
        (tmp_path / tool).chmod(0o755)
    with pytest.raises(RefusedError) as caught:
        requirements.check_machine({"PATH": str(tmp_path)}, euid=1000, system=())
    user, tools = caught.value.faults
    assert "only root" in user.what and "sudo" in user.hint
    assert tools.what == "missing: tc, ssh, ssh-keygen, sshd, nsenter, unshare, setsid, mountpoint"
    assert tools.hint == "apt-get install iproute2 openssh-client openssh-server util-linux"
    assert caught.value.exit_code == 3


def test_a_port_that_someone_listens_on_is_a_fault():
    with socket.create_server(("", 0)) as server:
        (fault,) = requirements.port_faults(server.getsockname()[1])
    assert fault.where == "--ssh-port" and "in use" in fault.what


LAB = "/run/ringleader/lab/lab"


def make_tree(path):
    """Make the least that hosts can have as their root."""
    for place in ("bin/sh", "usr/sbin/sshd"):
        program = path / place
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (path / "etc").mkdir()
    return path


def _whats(root, *binds):
    return [str(fault) for fault in rootfs_of_options(root, binds, lab_directory=LAB)[1]]


def test_every_fault_of_a_tree_and_its_mounts_is_told_at_once(tmp_path):
    tree = make_tree(tmp_path / "good")
    assert _whats(str(tree), f"{tmp_path}:/code", f"{tmp_path}:/opt/code:ro", "/dev/null:/dev/mine") == []
    tree = tmp_path / "tree"
    (tree / "usr").mkdir(parents=True)
    (tree / "proc").symlink_to("/proc")
    (tree / "usr/lib").symlink_to("/lib")
    places = ("/etc", "/run/ringleader", "/b", "/b", "/proc/1", f"{LAB}/h1", "/usr/lib/x")
    said = _whats(str(tree), "x", f"{tmp_path}/none:/a", *(f"{tmp_path}:{place}" for place in places))
    text = "\n".join(said)
    for words in (
        *("'x' is not SRC:DST", "/none: no such file", "every host has its own /etc", "/b is named twice"),
        *("every host has its own /run/ringleader", "/proc/1 is not a place", f"{LAB}/h1 is not a place"),
        *("has no sshd", "has no /bin/sh", "symbolic links: proc", "/usr/lib is a symbolic link"),
    ):
        assert words in text, text
    assert len(said) == 12


@pytest.mark.process
def test_a_dry_run_prints_the_mounts_and_makes_nothing(tmp_path, call):
    tree = make_tree(tmp_path / "tree")
    words = ("--root", str(tree), "--bind", f"{tmp_path}:/code", "--name", "drytree", "--ssh-port", "34")
    code, out, err = call("lab", "up", "--dry-run", *words)
    assert (code, err) == (0, "")
    assert f"mount -n --bind {tree} lower\n" in out and f"mount -n --bind {tmp_path} ./code\n" in out
    assert not (tree / "etc/hosts").exists() and not (tree / "dev").exists()


def test_a_root_that_is_none(tmp_path):
    for root, what in (
        ("/nowhere/at/all", "no such directory"),
        ("/", "machine's own"),
        (__file__, "is not a"),
    ):
        (said,) = _whats(root)
        assert what in said
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "secret").write_text("PATH=/machine\n")
    (tree / "etc/environment").symlink_to(tmp_path / "secret")
    assert rootfs_facts(Rootfs(path=str(tree))).environment == (), "no link leads into the machine"
    assert dict(read_environment("A=1\nA=2\n B = 'x' \nC\n=3\nD='\n")) == {"A": "2", "B": "x", "D": "'"}


def test_binds():
    assert parse_bind("/a:/b") == Bind(source="/a", target="/b")
    assert parse_bind("a b:/c d:ro") == Bind(source="a b", target="/c d", read_only=True)
    assert (parse_bind("/a:/b/../c:rw").target, parse_bind("/a://etc").target) == ("/c", "/etc")
    for text in ("", "a", ":", "a:", ":/b", "a:b", "a:/b:rx", "a:/b:ro:", "a:/b\n"):
        with pytest.raises(ValueError, match=r"SRC:DST|absolute path"):
            parse_bind(text)


def test_what_an_images_sshd_gives_to_sessions():
    assert dict(read_set_env("Port 2\nSetEnv PATH=/opt/bin:/bin\n")) == {"PATH": "/opt/bin:/bin"}
    assert dict(read_set_env('setenv "A=b c" B=d\nSetEnv E=f\n')) == {"A": "b c", "B": "d"}
    for text in ("", "#SetEnv A=b\nAcceptEnv LANG\n", "SetEnv\n", "Match User x\n    SetEnv A=b\n"):
        assert not dict(read_set_env(text))


def kernel(root, version, **modules):
    """Make a kernel's package, unpacked: modules by name, each with what it depends on."""
    image = root / f"boot/vmlinuz-{version}"
    image.parent.mkdir(parents=True, exist_ok=True)
    image.touch()
    for name, needs in modules.items():
        path = root / "lib/modules" / version / "kernel" / f"{name}.ko"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x7fELF\0license=GPL\0depends=" + needs.encode() + b"\0name=x\0")
    return image


def test_the_archive_has_busybox_the_first_program_and_modules(tmp_path):
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


def unpacked(data):
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


def machine(root, *, memory, tun=True):
    (root / "proc").mkdir(parents=True)
    (root / "proc/meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable: {memory * 1024} kB\n")
    (root / "dev/net").mkdir(parents=True)
    if tun:
        (root / "dev/net/tun").touch()
    return root


def test_a_machine_that_cannot_emulate_hosts_says_all_that_it_lacks(tmp_path, monkeypatch):
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


def test_what_runs_on_a_machine_goes_through_ssh(monkeypatch):
    monkeypatch.setattr(kernel_state, "first_process", lambda namespace: 4711)
    lab = saved_state.lab_of(LabSpec(hosts=2, kernel="/opt/kernel"))
    argv = hosts.argv_on(lab, lab.hosts[1], ("echo", "a b"))
    assert argv[0] == "ssh" and argv[-3:-1] == (lab.ssh_config, "h2") and argv[-1].endswith("echo 'a b'")
    lab = saved_state.lab_of(LabSpec(hosts=2))
    assert "nsenter" in hosts.argv_on(lab, lab.hosts[1], ("echo", "a b"))[0]

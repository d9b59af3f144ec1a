"""The lab's lines in /etc/hosts, its state directory, its lock, and what a machine must offer."""

import os
import socket
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringleader.errors import LabError, RefusedError, RequestError
from ringleader.lab import requirements, saved_state, steps
from ringleader.lab.rootfs import Rootfs
from ringleader.lab.spec import LabSpec, to_json

BEFORE = [
    b"",
    b"127.0.0.1 localhost\n",
    b"127.0.0.1 localhost\n127.0.1.1 vm",
    b"\n\n# \xc3\xa4\n1.2.3.4 a\n\n",
]


@pytest.mark.parametrize("before", BEFORE)
def test_adding_and_removing_a_block_gives_the_file_back_byte_for_byte(before, tmp_path):
    path = tmp_path / "hosts"
    path.write_bytes(before)
    inode = path.stat().st_ino
    steps.add_block("lab", "10.0.0.1 h1\n", path)
    assert b"\n10.0.0.1 h1\n" in path.read_bytes() and path.read_bytes().startswith(before)
    steps.remove_block("lab", path)
    assert path.read_bytes() == before
    assert path.stat().st_ino == inode


def test_blocks_of_several_labs_and_later_lines_stay(tmp_path):
    path = tmp_path / "hosts"
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


@given(st.text(alphabet="a \n#.", max_size=60))
def test_any_text_around_a_block_is_kept(text):
    if text and not text.endswith("\n"):
        text += "\n"
    content = text + steps.block("lab", "10.0.0.1 h1\n") + text
    assert steps.without_block(content, "lab") == text + text


def _make(root, name, **spec):
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "lab.json").write_text(to_json(LabSpec(name=name, hosts=2, **spec)))


@pytest.mark.parametrize(
    ("name", "environ", "where"),
    [
        ("nolab", {}, "--lab-name"),
        ("No Lab", {}, "--lab-name"),
        ("nolab", {"RINGLEADER_LAB": "other"}, "--lab-name"),
        (None, {"RINGLEADER_LAB": "nolab"}, "RINGLEADER_LAB"),
        (None, {}, "--lab"),
    ],
)
def test_a_lab_that_is_not_there_is_told_of_the_word_that_named_it(tmp_path, name, environ, where):
    with pytest.raises((LabError, RequestError)) as caught:
        saved_state.to_launch_on(name=name, environ=environ, root=tmp_path)
    assert [one.where for one in caught.value.faults] == [where]


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


def test_a_broken_state_file_says_what_to_do(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "lab.json").write_text("{")
    with pytest.raises(LabError, match="ringleader lab down --lab-name lab"):
        saved_state.load("lab", tmp_path)


def test_the_lock_waits_names_its_holder_and_survives_the_directorys_end(tmp_path):
    with saved_state.locked("lab", tmp_path, timeout=5):
        with pytest.raises(LabError, match=f"process {os.getpid()} is at work on it"):
            saved_state.locked("lab", tmp_path, timeout=0.1).__enter__()
        (tmp_path / "lab" / saved_state.WORKER).unlink()
        (tmp_path / "lab").rmdir()
        with saved_state.locked("lab", tmp_path, timeout=5):
            assert (tmp_path / "lab" / saved_state.WORKER).exists()


@pytest.mark.process
def test_a_child_that_outlives_its_parent_keeps_the_lock(tmp_path):
    with saved_state.locked("lab", tmp_path, timeout=5) as lock:
        child = subprocess.Popen(["sleep", "60"], stdin=lock)
    try:
        with pytest.raises(LabError):
            saved_state.locked("lab", tmp_path, timeout=0.1).__enter__()
    finally:
        child.kill()
        child.wait(timeout=10)
    with saved_state.locked("lab", tmp_path, timeout=5):
        pass


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


def _ringleader(*words):
    argv = [sys.executable, "-m", "ringleader", "lab", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.process
def test_a_dry_run_is_data_on_standard_output_and_makes_nothing():
    done = _ringleader("up", "--dry-run", "--name", "dryrun", "--hosts", "1", "--ssh-port", "34")
    assert done.returncode == 0 and done.stderr == ""
    assert done.stdout.startswith("#!/bin/sh\n") and "ip netns add rl-dryrun-h1\n" in done.stdout
    assert "dryrun" not in saved_state.names()

"""Hosts with a root file system of their own: what is asked for, what is found in it, and the scripts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ringleader.errors import LabError
from ringleader.lab import rootfs_inspection, saved_state
from ringleader.lab.boot_scripts import rootfs_boot_script
from ringleader.lab.rootfs import Bind, Rootfs, parse_bind, read_environment, read_set_env
from ringleader.lab.setup_plan import Machine, up_phases
from ringleader.lab.spec import LabSpec, from_json, to_json
from ringleader.lab.steps import script

GOLDEN = Path(__file__).parent.parent / "golden" / "lab"
LAB = "/run/ringleader/lab/lab"
MACHINE = Machine(
    root="/run/ringleader/lab",
    head_names=("node7",),
    missing_names=(),
    path="/opt/venv/bin:/usr/bin:/bin",
    cores=2,
    variables=(("LANG", "C.UTF-8"), ("PATH", "never this one")),
)
TREE = Rootfs(
    path="/srv/an image's tree",
    binds=(
        Bind(source="/home/me/my code", target="/code", read_only=True),
        Bind(source="/data", target="/data"),
    ),
)


def make_tree(path: Path) -> Path:
    """Make the least that hosts can have as their root."""
    for place in ("bin/sh", "usr/sbin/sshd"):
        program = path / place
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (path / "etc").mkdir()
    return path


def test_golden_of_up_with_a_tree():
    text = script(up_phases(LabSpec(hosts=2, tree=TREE), MACHINE))
    path = GOLDEN / "up_tree.sh"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text(), f"{path} differs; UPDATE_GOLDEN=1 writes it anew"


@pytest.mark.process
def test_what_is_printed_is_a_shell_script():
    subprocess.run(["sh", "-n", str(GOLDEN / "up_tree.sh")], check=True)


def test_sessions_have_the_trees_path_and_variables_once_each():
    text = script(up_phases(LabSpec(hosts=1, tree=TREE), MACHINE))
    (line,) = [line for line in text.splitlines() if line.startswith("SetEnv ")]
    assert line.count("PATH=") == 1 and '"PATH=/opt/venv/bin:/usr/bin:/bin"' in line
    assert '"LANG=C.UTF-8"' in line and "TMPDIR" not in line


@pytest.mark.process
def test_odd_names_are_quoted_in_the_boot_script():
    odd = "/a'b c;$(d)"
    text = rootfs_boot_script(LabSpec(), Rootfs(path=odd, binds=(Bind(source=odd, target=odd),)), 1, LAB)
    done = subprocess.run(["sh", "-n"], input=text, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "mount -n --bind '/a'\"'\"'b c;$(d)' lower" in text


def test_the_state_file_keeps_the_tree_and_one_without_it_is_still_read():
    spec = LabSpec(hosts=2, tree=TREE)
    assert from_json(to_json(spec)) == spec
    old = json.loads(to_json(LabSpec()))
    del old["spec"]["tree"]
    assert from_json(json.dumps(old)) == LabSpec()
    for broken in ({"path": "/x"}, {"path": "/x", "binds": [{"source": "/y"}]}, "/x"):
        old["spec"]["tree"] = broken
        with pytest.raises(ValueError, match=r".*"):
            from_json(json.dumps(old))


def test_a_job_that_begins_on_the_machine_is_not_sent_to_hosts_with_another_root(tmp_path):
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/lab.json").write_text(to_json(LabSpec(hosts=2, tree=TREE)))
    with pytest.raises(LabError, match=r"have the files of /srv/an image's tree") as caught:
        saved_state.to_launch_on(environ={}, root=tmp_path, here="node7")
    assert "ringleader lab exec h1 -- ringleader run --lab" in str(caught.value)
    assert saved_state.to_launch_on(environ={}, root=tmp_path, here="h2").name == "lab"
    (tmp_path / "lab/lab.json").write_text(to_json(LabSpec(hosts=2)))
    assert saved_state.to_launch_on(environ={}, root=tmp_path, here="node7").name == "lab"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("/a:/b", Bind(source="/a", target="/b")),
        ("a b:/c d:ro", Bind(source="a b", target="/c d", read_only=True)),
        (".:/b/:rw", Bind(source=".", target="/b")),
        ("/a:/b/../c", Bind(source="/a", target="/c")),
        ("/a://etc", Bind(source="/a", target="/etc")),
    ],
)
def test_binds_that_can_be_read(text, wanted):
    assert parse_bind(text) == wanted


@pytest.mark.parametrize("text", ["", "a", ":", "a:", ":/b", "a:b", "a:/b:rx", "a:/b:ro:", "a:/b\n"])
def test_binds_that_are_none(text):
    with pytest.raises(ValueError, match=r"SRC:DST|absolute path"):
        parse_bind(text)


def _whats(root, *binds):
    return [str(fault) for fault in rootfs_inspection.rootfs_of_options(root, binds, lab_directory=LAB)[1]]


def test_a_tree_with_an_sshd_has_no_fault(tmp_path):
    tree = make_tree(tmp_path / "tree")
    assert _whats(str(tree), f"{tmp_path}:/code", f"{tmp_path}:/opt/code:ro", "/dev/null:/dev/mine") == []


def test_every_fault_of_a_tree_and_its_mounts_is_told_at_once(tmp_path):
    tree = tmp_path / "tree"
    (tree / "usr").mkdir(parents=True)
    (tree / "proc").symlink_to("/proc")
    (tree / "usr/lib").symlink_to("/lib")
    said = _whats(
        str(tree),
        *("x", f"{tmp_path}/none:/a", f"{tmp_path}:/etc", f"{tmp_path}:/run/ringleader", f"{tmp_path}:/b"),
        *(f"{tmp_path}:/b", f"{tmp_path}:/proc/1", f"{tmp_path}:{LAB}/h1", f"{tmp_path}:/usr/lib/x"),
    )
    text = "\n".join(said)
    for words in (
        *("'x' is not SRC:DST", "/none: no such file", "every host has its own /etc"),
        *(
            "every host has its own /run/ringleader",
            "/b is named twice",
            "/proc/1 is not a place for a mount",
        ),
        *(f"{LAB}/h1 is not a place", "has no sshd", "has no /bin/sh", "symbolic links: proc"),
        "/usr/lib is a symbolic link",
    ):
        assert words in text, text
    assert len(said) == 12


@pytest.mark.parametrize(("root", "what"), [("/nowhere/at/all", "no such directory"), ("/", "machine's own")])
def test_a_root_that_is_none(root, what):
    (said,) = _whats(root)
    assert what in said


def test_a_file_is_no_root(tmp_path):
    (tmp_path / "rootfs.tar").touch()
    (said,) = _whats(str(tmp_path / "rootfs.tar"))
    assert "is not a directory" in said


def test_what_is_found_in_a_tree(tmp_path):
    tree = make_tree(tmp_path / "tree")
    bare = rootfs_inspection.rootfs_facts(Rootfs(path=str(tree)))
    assert (bare.sshd, bare.shell, bare.environment, bare.root_is_locked) == (
        "/usr/sbin/sshd",
        "/bin/sh",
        (),
        False,
    )
    assert bare.search_path.startswith("/usr/local/sbin:")
    (tree / "etc/environment").write_text('PATH="/opt/venv/bin:/usr/bin"\n# no\nexport A=b c\nB="\n1=2\n')
    (tree / "etc/ssh").mkdir()
    (tree / "etc/ssh/sshd_config").write_text("Port 22\nSetEnv B=d\n")
    (tree / "etc/shadow").write_text("root:!:1::::::\n")
    (tree / "bin/bash").symlink_to("/usr/bin/bash")
    full = rootfs_inspection.rootfs_facts(Rootfs(path=str(tree)))
    assert full.search_path == "/opt/venv/bin:/usr/bin"
    assert dict(full.environment)["A"] == "b c" and dict(full.environment)["B"] == "d"
    assert full.shell == "/bin/bash" and full.root_is_locked


def test_a_link_in_a_tree_is_not_followed_into_the_machine(tmp_path):
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "secret").write_text("PATH=/machine\n")
    (tree / "etc/environment").symlink_to(tmp_path / "secret")
    assert rootfs_inspection.rootfs_facts(Rootfs(path=str(tree))).environment == ()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("Port 2222\nSetEnv PATH=/opt/venv/bin:/usr/bin\n", {"PATH": "/opt/venv/bin:/usr/bin"}),
        ('setenv "A=b c" B=d\nSetEnv E=f\n', {"A": "b c", "B": "d"}),
        ("#SetEnv A=b\nAcceptEnv LANG\n", {}),
        ("Match User x\n    SetEnv A=b\n", {}),
        ("SetEnv\n", {}),
    ],
)
def test_what_an_images_sshd_gives_to_sessions(text, wanted):
    assert dict(read_set_env(text)) == wanted


def test_the_environment_file_is_read_as_pam_env_reads_it():
    assert dict(read_environment("A=1\nA=2\n B = 'x' \nC\n=3\nD='\n")) == {"A": "2", "B": "x", "D": "'"}


def _ringleader(*words):
    argv = [sys.executable, "-m", "ringleader", "lab", *words]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.process
def test_the_command_line_tells_faults_of_the_tree_with_those_of_the_rest():
    done = _ringleader("up", "--root", "/nowhere/at/all", "--bind", "x", "--hosts", "0", "--ssh-port", "34")
    assert done.returncode == 2 and done.stdout == ""
    for option in ("--root", "--bind", "--hosts"):
        assert f"ringleader: {option}: " in done.stderr
    done = _ringleader("up", "--bind", "/tmp:/x", "--ssh-port", "34")
    assert done.returncode == 2 and "it goes with --root" in done.stderr


@pytest.mark.process
def test_a_dry_run_prints_the_mounts_and_makes_nothing(tmp_path):
    tree = make_tree(tmp_path / "tree")
    words = ("--root", str(tree), "--bind", f"{tmp_path}:/code", "--name", "drytree", "--ssh-port", "34")
    done = _ringleader("up", "--dry-run", *words)
    assert done.returncode == 0 and done.stderr == ""
    assert f"mount -n --bind {tree} lower\n" in done.stdout
    assert f"mount -n --bind {tmp_path} ./code\n" in done.stdout
    assert not (tree / "etc/hosts").exists() and not (tree / "dev").exists()


def test_several_labs_are_told_apart_by_a_variable(tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "lab.json").write_text(to_json(LabSpec(hosts=2, name=name)))
    with pytest.raises(LabError, match="several labs are up: one, two") as caught:
        saved_state.to_launch_on(environ={}, root=tmp_path)
    assert "RINGLEADER_LAB=one" in str(caught.value)
    assert saved_state.to_launch_on(environ={"RINGLEADER_LAB": "two"}, root=tmp_path).name == "two"
    with pytest.raises(LabError, match="there is no lab 'three'"):
        saved_state.to_launch_on(environ={"RINGLEADER_LAB": "three"}, root=tmp_path)
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab/lab.json").write_text(to_json(LabSpec(hosts=2)))
    assert saved_state.to_launch_on(environ={"RINGLEADER_LAB": ""}, root=tmp_path).name == "lab"

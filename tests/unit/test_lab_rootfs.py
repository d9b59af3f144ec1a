"""Hosts with their own root file system: what is asked for, and what is found in it."""

from pathlib import Path

import pytest

from ringleader.lab.rootfs import (
    Bind,
    Rootfs,
    parse_bind,
    read_environment,
    read_set_env,
    rootfs_facts,
    rootfs_of_options,
)

LAB = "/run/ringleader/lab/lab"


def make_tree(path: Path) -> Path:
    """Make the least that hosts can have as their root."""
    for place in ("bin/sh", "usr/sbin/sshd"):
        program = path / place
        program.parent.mkdir(parents=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    (path / "etc").mkdir()
    return path


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
    return [str(fault) for fault in rootfs_of_options(root, binds, lab_directory=LAB)[1]]


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


@pytest.mark.parametrize(
    ("root", "what"),
    [
        ("/nowhere/at/all", "no such directory"),
        ("/", "machine's own"),
        (__file__, "is not a directory"),
    ],
)
def test_a_root_that_is_none(root, what):
    (said,) = _whats(root)
    assert what in said


def test_what_is_found_in_a_tree(tmp_path):
    tree = make_tree(tmp_path / "tree")
    bare = rootfs_facts(Rootfs(path=str(tree)))
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
    full = rootfs_facts(Rootfs(path=str(tree)))
    assert full.search_path == "/opt/venv/bin:/usr/bin"
    assert dict(full.environment)["A"] == "b c" and dict(full.environment)["B"] == "d"
    assert full.shell == "/bin/bash" and full.root_is_locked


def test_a_link_in_a_tree_is_not_followed_into_the_machine(tmp_path):
    tree = make_tree(tmp_path / "tree")
    (tmp_path / "secret").write_text("PATH=/machine\n")
    (tree / "etc/environment").symlink_to(tmp_path / "secret")
    assert rootfs_facts(Rootfs(path=str(tree))).environment == ()


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


@pytest.mark.process
def test_a_dry_run_prints_the_mounts_and_makes_nothing(tmp_path, call):
    tree = make_tree(tmp_path / "tree")
    words = ("--root", str(tree), "--bind", f"{tmp_path}:/code", "--name", "drytree", "--ssh-port", "34")
    code, out, err = call("lab", "up", "--dry-run", *words)
    assert (code, err) == (0, "")
    assert f"mount -n --bind {tree} lower\n" in out and f"mount -n --bind {tmp_path} ./code\n" in out
    assert not (tree / "etc/hosts").exists() and not (tree / "dev").exists()

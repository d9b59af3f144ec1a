"""Code that is sent to hosts before the ranks start: real sshds, real rsync, and tar where there is none."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.system_programs import program

from ringleader.errors import ProbeError
from ringleader.launch.code_files import frozen
from ringleader.launch.host_probe.probe import probe
from ringleader.plan.job import Host, Job, Ssh, Sync

pytestmark = pytest.mark.timeout(120)


@pytest.fixture
def project(tmp_path) -> Path:
    """A directory with code, and something that is ignored."""
    made = tmp_path / "a project"
    (made / "pack" / "deep").mkdir(parents=True)
    (made / "train.py").write_text("print('one')\n")
    (made / "pack" / "deep" / "more.py").write_text("x = 1\n")
    (made / "run.sh").write_text("#!/bin/sh\n")
    (made / "run.sh").chmod(0o755)
    (made / "link").symlink_to("pack/deep")
    (made / "data").mkdir()
    (made / "data" / "large").write_bytes(b"x" * 5000)
    (made / ".gitignore").write_text("data/\n")
    return made


@pytest.fixture
def send(bench, environ, project):
    """Probe hosts by alias with the code of the project sent before."""
    with ExitStack() as stack:

        def run(*names, dry=False, command=("true",), progress=lambda text: None, environ=environ, **sync):
            sync = {"on": True, "target": str(bench.directory / "store"), **sync}
            job = Job(
                command=command,
                workdir=str(project),
                hosts=tuple(Host(name=name) for name in names),
                ssh=Ssh(config=bench.config, connect_timeout=5.0),
                sync=Sync(**sync),
            )
            job = frozen(job, environ, lambda text: None, dry=dry)
            found = probe(job, environ=environ, progress=progress, ssh_base=bench.base)
            stack.callback(found.ssh.close)
            return found.facts

        yield run


def files(directory: str | Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in Path(directory).rglob("*") if path.is_file())


def machine(bench, name: str) -> tuple[Path, ...]:
    """A host that sees another directory than this machine at the place of the store."""
    own = bench.directory / f"disk of {name}"
    own.mkdir(mode=0o755)
    (bench.directory / "store").mkdir(mode=0o755, exist_ok=True)
    bench.sshd(name, hostname=name, mounts=((own, bench.directory / "store"),))
    return own


@pytest.mark.root("make namespaces")
@pytest.mark.parametrize("way", ["rsync", "tar"])
def test_a_host_gets_the_files_once_and_only_what_changed_next(bench, send, project, environ, way):
    program("rsync", "rsync")
    own = machine(bench, "h1")
    if way == "tar":
        environ = environ | {"PATH": without(bench.directory, "rsync")}
    (first,) = send("h1", environ=environ, command=("./run.sh",))
    assert first.code_by == way
    (copy,) = [path for path in own.iterdir() if not path.name.startswith("incoming")]
    assert files(copy / "tree") == [".gitignore", "pack/deep/more.py", "run.sh", "train.py"]
    assert os.readlink(copy / "tree" / "link") == "pack/deep"
    assert os.access(copy / "tree" / "run.sh", os.X_OK)
    assert first.directory == str(bench.directory / "store" / copy.name / "tree")
    assert first.program == f"{first.directory}/run.sh"
    (again,) = send("h1", environ=environ)
    assert (again.directory, again.code_by) == (first.directory, "")
    (project / "train.py").write_text("print('two')\n")
    (other,) = send("h1", environ=environ)
    assert other.directory != first.directory and other.code_by == way
    assert len(list(own.iterdir())) == 2, "nothing half made is left"


def without(directory: Path, name: str) -> str:
    """Return a PATH with this machine's programs but one."""
    made = directory / "programs"
    made.mkdir(exist_ok=True)
    for place in ("/usr/bin", "/bin"):
        for entry in Path(place).iterdir():
            if entry.name != name and not (made / entry.name).exists():
                (made / entry.name).symlink_to(entry)
    return str(made)


def disk(bench, name: str, options: str) -> Path:
    """A small file system for the store of a host; its mount here is not needed once the host has it."""
    made = bench.directory / f"disk of {name}"
    made.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", made], check=True)
    if name == "file":
        (made / "copies").write_text("")
    subprocess.run(["mount", "-o", f"remount,{options}", made], check=True)
    return made


@pytest.mark.root("make namespaces")
def test_hosts_that_cannot_keep_a_copy_are_named_together(bench, send, project):
    (bench.directory / "store").mkdir()
    disks = {
        name: disk(bench, name, options)
        for name, options in (("full", "size=16k"), ("inodes", "nr_inodes=3"), ("read", "ro"), ("file", "rw"))
    }
    try:
        for name, made in disks.items():
            bench.sshd(name, hostname=name, mounts=((made, bench.directory / "store"),))
        with pytest.raises(ProbeError) as caught:
            send(*disks, target=str(bench.directory / "store/copies"))
        left = {name: files(made) for name, made in disks.items()}
    finally:
        for made in disks.values():
            subprocess.run(["umount", "--lazy", made], check=True)
    found = {fault.where: fault.what for fault in caught.value.faults}
    assert all("--sync-to" in fault.hint for fault in caught.value.faults)
    assert list(found) == ["host full", "host inodes", "host read", "host file"]
    assert "no space is left" in found["host full"] and "no space is left" in found["host inodes"]
    assert "cannot be written: Read-only file system" in found["host read"]
    assert f"{bench.directory}/store/copies cannot be written: File exists" in found["host file"]
    assert left == {"full": [], "inodes": [], "read": [], "file": ["copies"]}, "nothing is half made"


@pytest.mark.root("make namespaces")
def test_the_script_is_still_checked(bench, send, project):
    machine(bench, "h1")
    with pytest.raises(ProbeError) as caught:
        send("h1", command=("python", str(project / "train.py")))  # names the original, which h1 has
        send("h1", command=("python", "data/large.py"))
    (fault,) = caught.value.faults
    assert "does not exist" in fault.what and ".gitignore" in fault.hint


def test_a_host_whose_sshd_is_this_machines_shares_the_copy(bench, send):
    bench.sshd("h1")
    (facts,) = send("h1")
    assert facts.code_by == "" and Path(facts.directory, "train.py").is_file()


@pytest.mark.root("make namespaces")
def test_several_hosts_at_once_and_an_rsync_that_fails(bench, send, environ):
    """So rsync does where a login shell prints a greeting: the archive is sent instead."""
    broken = bench.directory / "programs"
    broken.mkdir()
    (broken / "rsync").write_text("#!/bin/sh\necho 'is your shell clean?' >&2\nexit 2\n")
    (broken / "rsync").chmod(0o755)
    disks = [machine(bench, name) for name in ("h1", "h2", "h3")]
    facts = send("h1", "h2", "h3", environ={**environ, "PATH": f"{broken}:{environ['PATH']}"})
    assert [one.code_by for one in facts] == ["tar", "tar", "tar"]
    assert len({one.directory for one in facts}) == 1
    assert all(len(list(disk.iterdir())) == 1 for disk in disks), "nothing half made is left"

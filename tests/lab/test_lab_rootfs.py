"""Hosts whose root file system is its own tree: they see that tree and nothing else of the machine."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from ringleader.lab import hosts as lab_hosts
from ringleader.lab import saved_state

pytestmark = pytest.mark.lab

PROGRAMS = "sh bash cat env ls touch uname hostname ssh sshd readlink sleep"
ACCOUNTS = "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n"


def _put(path: str, tree: Path) -> None:
    target = tree / path.lstrip("/")
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(path, target)


@pytest.fixture(scope="module")
def tree(lab_machine, tmp_path_factory) -> Path:
    """A tree with a dozen programs of this machine and the libraries they load; its own accounts and name."""
    made = tmp_path_factory.mktemp("tree") / "an image"
    for place in ("usr/bin", "usr/sbin", "usr/lib", "usr/lib64", "etc/ssh", "root"):
        (made / place).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (made / name).symlink_to(f"usr/{name}")
    libraries = set()
    for name in PROGRAMS.split():
        path = shutil.which(name, path="/usr/bin:/bin:/usr/sbin:/sbin")
        assert path, f"{name} is missing"
        _put(path, made)
        said = subprocess.run(["ldd", path], capture_output=True, text=True, check=True).stdout
        libraries |= set(re.findall(r"(/\S+) \(0x", said))
    for path in sorted(libraries):
        _put(path, made)
    (made / "etc/passwd").write_text(ACCOUNTS)
    (made / "etc/group").write_text("root:x:0:\nnogroup:x:65534:\n")
    (made / "etc/nsswitch.conf").write_text("passwd: files\ngroup: files\nhosts: files\n")
    (made / "etc/ssh/ssh_config").write_text("Host *\n    Port 2222\n    User nobody\n    SendEnv LANG\n")
    (made / "etc/ssh/sshd_config").write_text("Port 2222\nSetEnv PATH=/opt/tool/bin:/usr/bin:/usr/sbin\n")
    (made / "etc/environment").write_text('PATH="/not/this"\nOF_THE_TREE="a b"\n')
    (made / "only-here").write_text("of the tree\n")
    return made


@pytest.fixture
def rooted(tree, scratch_name, ringleader, tmp_path):
    """A lab of two hosts on that tree, with a directory to share and a file to read."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "note").write_text("of the machine\n")
    done = ringleader(
        *("lab", "up", "--lab-name", scratch_name, "--hosts", "2", "--ssh-port", "34", "--root", str(tree)),
        *("--bind", f"{tmp_path / 'shared'}:/shared", "--bind", f"{tmp_path / 'note'}:/etc/note:ro"),
    )
    assert done.returncode == 0, done.stderr
    return saved_state.load(scratch_name)


@pytest.mark.long
def test_hosts_of_a_tree(rooted, tree, ringleader, tmp_path):
    def on(host, *words):
        done = ringleader("lab", "exec", "--lab-name", rooted.name, host, "--", *words)
        return done.stdout if done.returncode == 0 else f"{done.returncode}: {done.stderr}"

    first, second = (host.name for host in rooted.hosts)
    before = sorted(str(path) for path in tree.rglob("*"))

    # The tree is the root, with the host's own places in it; nothing else of the machine is there.
    own = {"dev", "proc", "run", "shared", "sys", "tmp", "var"}
    assert set(on("h1", "ls", "/").split()) == own | {entry.name for entry in tree.iterdir()}
    assert on("h1", "cat", "/only-here") == "of the tree\n"
    assert on("h1", "ls", "/run").split() == ["lock", "ringleader", "sshd"]
    assert on("h1", "ls", "/tmp", "/var/tmp", "/dev/shm").split() == ["/dev/shm:", "/tmp:", "/var/tmp:"]
    assert "No such file" in on("h1", "ls", str(Path.cwd()))
    places = {line.split()[1] for line in on("h1", "cat", "/proc/mounts").splitlines()}
    assert {"/", "/dev/shm", "/proc", "/sys", "/shared", "/etc/note", rooted.directory} <= places
    assert not {place for place in places if place.startswith(("/home", "/usr", "/mnt", str(tmp_path)))}

    # The tree's own sshd answers, with the tree's own PATH, and hosts know each other by name.
    assert on("h1", "readlink", "/proc/1/exe") == "/usr/sbin/sshd\n"
    over_ssh = ("ssh", second, "uname -n; echo $PATH; echo $OF_THE_TREE; touch /root/mark /tmp/mark")
    path = "/opt/tool/bin:/usr/bin:/usr/sbin"
    assert on("h1", *over_ssh) == f"{second}\n{path}\na b\n"
    assert on("h2", "sh", "-c", "echo $PATH; echo $OF_THE_TREE; echo $VIRTUAL_ENV") == f"{path}\na b\n\n"

    # What one host writes is its own; what is mounted is shared, or read-only where that was asked for.
    assert on("h2", "ls", "/root", "/tmp").split() == ["/root:", "mark", "/tmp:", "mark"]
    assert on("h1", "ls", "/root", "/tmp").split() == ["/root:", "/tmp:"]
    assert on("h1", "touch", f"/shared/{first}") == ""
    assert (tmp_path / "shared" / first).exists() and on("h2", "ls", "/shared").split() == [first]
    assert on("h1", "cat", "/etc/note") == "of the machine\n"
    assert "Read-only file system" in on("h1", "touch", "/etc/note")
    assert on("h1", "sh", "-c", "exit 7").startswith("7:")

    # A host that is killed comes up again without what it had written.
    assert ringleader("lab", "kill", "--lab-name", rooted.name, "h2").returncode == 0
    assert [row.state for row in lab_hosts.status(rooted)] == ["up", "dead"]
    assert ringleader("lab", "heal", "--lab-name", rooted.name, "h2").returncode == 0
    assert on("h2", "ls", "/root") == "" and on("h2", "uname", "-n") == f"{second}\n"
    assert sorted(str(path) for path in tree.rglob("*")) == before


def test_nothing_of_it_stays_and_up_again_leaves_it_alone(rooted, tree, ringleader, snapshot):
    words = ("lab", "up", "--lab-name", rooted.name, "--hosts", "2", "--ssh-port", "34")
    other = ringleader(*words)
    assert other.returncode == 3 and f"tree {tree} with /" in other.stderr, other.stderr
    assert ringleader("lab", "down", "--lab-name", rooted.name).returncode == 0
    left = snapshot(rooted.name)
    assert not left["processes"] and not left["labs"] and not left["nameless namespaces"]
    mounts = Path("/proc/self/mounts").read_text()
    assert str(tree).replace(" ", "\\040") not in mounts and f"/lab/{rooted.name}/" not in mounts
    assert (tree / "only-here").exists() and not (tree / "dev").exists()

"""Compose applications as they are written to disk, run with real sshds, and ranks that train over them."""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import compose_containers as containers
import pytest
import sshd

REASON = containers.why_not() or ("" if sshd.SSHD == "/usr/sbin/sshd" else "needs /usr/sbin/sshd")
pytestmark = pytest.mark.skipif(bool(REASON), reason=REASON)

HOSTILE = """two words, $HOME $$ ${X} `id` "double" 'single' back\\slash \\n # not a comment; üñí 訓練"""
PROGRAM = """\
import os, socket
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
print(socket.gethostname(), world.rank, world.size, total, os.environ["HOSTILE"], flush=True)
"""
RINGLEADER = (sys.executable, "-m", "ringleader")
ALONE = (*RINGLEADER, "run", "-n", "1", sys.executable, "train.py")
ALL = (*RINGLEADER, "run", "--hostfile", "/etc/ringleader/hostfile", sys.executable, "train.py")


@pytest.fixture
def base() -> Iterator[Path]:
    # Not below /tmp: each container has its own.
    made = Path(tempfile.mkdtemp(prefix="rl-compose-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def runtime_of(base: Path) -> Iterator[Callable[..., containers.Runtime]]:
    """Returns a function: words of the command line → what runs the application that they make."""
    made: list[containers.Runtime] = []

    def runtime(*words: str) -> containers.Runtime:
        directory, work = base / "app", base / "work"
        work.mkdir()
        (work / "train.py").write_text(PROGRAM)
        argv = [*RINGLEADER, "render", "compose", "--image", "none", "-o", str(directory), *words]
        subprocess.run([*argv, "--mount", f"{work}:{work}"], check=True, timeout=60)
        made.append(containers.Runtime(directory, base))
        return made[0]

    yield runtime
    for one in made:
        one.stop()


@pytest.mark.smoke
def test_on_one_host(runtime_of):
    runtime = runtime_of("-n", "2", "--env", f"HOSTILE={HOSTILE}")
    head = runtime.start("mpihead")
    containers.wait_for(lambda: "waiting for mpinode-1" in head.log, head)
    node = runtime.start("mpinode-1")
    head.wait_healthy()
    assert "all nodes answer" in head.log

    alone = head.run(*ALONE)
    assert (alone.returncode, alone.stdout) == (0, f"[0] mpihead 0 1 1 {HOSTILE}\n"), alone.stderr
    done = head.run(*ALL)
    assert done.returncode == 0, done.stderr
    expected = [f"[0] mpihead 0 2 3 {HOSTILE}", f"[1] mpinode-1 1 2 3 {HOSTILE}"]
    assert sorted(done.stdout.splitlines()) == expected
    assert head.run("ssh", "mpinode-1", "hostname").stdout == "mpinode-1\n"
    if shutil.which("mpirun.openmpi"):
        mpirun = ("mpirun.openmpi", "--allow-run-as-root", "--hostfile", "/etc/ringleader/hostfile")
        bare = head.run(*mpirun, "hostname")
        assert sorted(bare.stdout.split()) == ["mpihead", "mpinode-1"], bare.stderr
    assert "id_ed25519" not in node.run("ls", "-A", "/etc/ringleader").stdout.split()
    refused = node.run("ssh", "-p", "33", "-o", "BatchMode=yes", "127.0.0.1", "true")
    assert refused.returncode == 255


def test_a_node_with_another_key_is_not_let_pass(runtime_of):
    runtime = runtime_of("-n", "3", "--wait", "2", "--env", "HOSTILE=")
    key = runtime.directory / "mpinode-2" / "host_key"
    key.unlink()
    sshd.make_key(key)
    runtime.start("mpinode-2").wait_listening()
    head = runtime.start("mpihead")
    assert head.process.wait(containers.SECONDS) == 3, head.log
    assert "no answer from mpinode-2 within 2 s" in head.log
    assert "Host key verification failed" in head.log
    assert "Connection refused" in head.log, "of the one that never comes"
    assert "given up, without: mpinode-1 mpinode-2" in head.log


def test_sshd_of_another_user_than_root(runtime_of):
    account = containers.ACCOUNT
    runtime = runtime_of("-n", "2", "--user", f"{account}:{account}", "--env", "HOSTILE=")
    node, head = runtime.start("mpinode-1"), runtime.start("mpihead")
    head.wait_healthy()
    assert "port 2234" in node.log
    said = head.run("ssh", "mpinode-1", "id -u; hostname")
    assert (said.returncode, said.stdout) == (0, f"{account}\nmpinode-1\n"), said.stderr


def test_a_user_without_an_account_is_told(runtime_of):
    runtime = runtime_of("-n", "1", "--user", f"{containers.ACCOUNT + 1}:1", "--env", "HOSTILE=")
    head = runtime.start("mpihead")
    assert head.process.wait(containers.SECONDS) == 2
    assert f"user {containers.ACCOUNT + 1} has no account in this image" in head.log

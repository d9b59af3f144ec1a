"""A compose application as it is written to disk, run with real sshds, and ranks that train over them."""

from __future__ import annotations

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


@pytest.fixture
def base() -> Iterator[Path]:
    # Not below /tmp: each container has its own.
    made = Path(tempfile.mkdtemp(prefix="rl-compose-", dir="/var/tmp"))
    yield made
    shutil.rmtree(made)


@pytest.fixture
def host_of(base: Path) -> Iterator[Callable[..., containers.Host]]:
    """Returns a function: words of the command line → the host on which that application was written."""
    made: list[containers.Host] = []

    def host(*words: str) -> containers.Host:
        directory, work = base / "app", base / "work"
        work.mkdir()
        (work / "train.py").write_text(PROGRAM)
        argv = [*RINGLEADER, "render", "compose", "--image", "none", "-o", str(directory), *words]
        subprocess.run([*argv, "--mount", f"{work}:{work}"], check=True, timeout=60)
        made.append(containers.Host(directory, base))
        return made[0]

    yield host
    for one in made:
        one.stop()


def test_ranks_of_all_containers_meet(host_of):
    host = host_of("-n", "2", "--env", f"HOSTILE={HOSTILE}")
    head = host.start("mpihead")
    containers.wait_for(lambda: "waiting for mpinode-1" in head.log, head)
    node = host.start("mpinode-1")
    head.wait_healthy()
    assert "all nodes answer" in head.log

    alone = head.run(*RINGLEADER, "run", "-n", "1", sys.executable, "train.py")
    assert (alone.returncode, alone.stdout) == (0, f"[0] mpihead 0 1 1 {HOSTILE}\n"), alone.stderr
    every = ("run", "--hostfile", "/etc/ringleader/hostfile", sys.executable, "train.py")
    both = head.run(*RINGLEADER, *every)
    assert both.returncode == 0, both.stderr
    assert sorted(both.stdout.splitlines()) == [
        f"[0] mpihead 0 2 3 {HOSTILE}",
        f"[1] mpinode-1 1 2 3 {HOSTILE}",
    ]

    assert head.run("ssh", "mpinode-1", "hostname").stdout == "mpinode-1\n"
    assert "id_ed25519" not in node.run("ls", "-A", "/etc/ringleader").stdout.split()
    refused = node.run("ssh", "-p", "33", "-o", "BatchMode=yes", "127.0.0.1", "true")
    assert refused.returncode == 255


def test_a_node_with_another_key_is_not_let_pass(host_of, base):
    host = host_of("-n", "2", "--wait", "2", "--env", "HOSTILE=")
    key = host.directory / "mpinode-1" / "host_key"
    key.unlink()
    sshd.make_key(key)
    host.start("mpinode-1").wait_listening()
    head = host.start("mpihead")
    assert head.process.wait(containers.SECONDS) == 3, head.log
    assert "no answer from mpinode-1 within 2 s" in head.log
    assert "Host key verification failed" in head.log
    assert "given up, without: mpinode-1" in head.log


def test_a_node_that_never_comes_is_named(host_of):
    host = host_of("-n", "3", "--wait", "1", "--env", "HOSTILE=")
    host.start("mpinode-2").wait_listening()
    head = host.start("mpihead")
    assert head.process.wait(containers.SECONDS) == 3, head.log
    assert "Connection refused" in head.log
    assert "given up, without: mpinode-1\n" in head.log


def test_sshd_of_another_user_than_root(host_of):
    account = containers.ACCOUNT
    host = host_of("-n", "2", "--user", f"{account}:{account}", "--env", "HOSTILE=")
    node, head = host.start("mpinode-1"), host.start("mpihead")
    head.wait_healthy()
    assert "port 2234" in node.log
    said = head.run("ssh", "mpinode-1", "id -u; hostname")
    assert (said.returncode, said.stdout) == (0, f"{account}\nmpinode-1\n"), said.stderr


def test_a_user_without_an_account_is_told(host_of):
    host = host_of("-n", "1", "--user", f"{containers.ACCOUNT + 1}:1", "--env", "HOSTILE=")
    head = host.start("mpihead")
    assert head.process.wait(containers.SECONDS) == 2
    assert f"user {containers.ACCOUNT + 1} has no account in this image" in head.log

"""Connections: arguments arrive byte for byte, one connection serves all, nothing is left."""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.commands import finished
from tests.time_limits import until

from ringleader.launch.ssh.connections import SshConnections
from ringleader.plan.job import Host, Ssh

ECHO = "import json, sys; print(json.dumps(sys.argv[1:]))"
HOSTILE = (
    *("two words", "", "it's", 'say "hi"', "$HOME", "a;touch x", "`id`", "line\nbreak", "tab\t"),
    *("back\\slash", "Straße 訓練", "*", "~", "-n", "!x", "&& true", "%h"),
)


@pytest.fixture
def session(bench, environ):
    bench.sshd("h1")
    hosts = (Host(name="h1"),)
    with contextlib.closing(
        SshConnections(Ssh(config=bench.config), hosts, environ=environ, base=bench.base)
    ) as made:
        yield made


def test_arguments_arrive_as_they_are(session):
    reply = session.run(Host(name="h1"), (sys.executable, "-c", ECHO, *HOSTILE), deadline=60)
    assert reply.exit_code == 0, reply.stderr
    assert tuple(json.loads(reply.stdout)) == HOSTILE


def test_standard_input_and_exit_code_pass(session):
    data = bytes(range(256)) * 1000
    program = "import hashlib, sys; print(hashlib.md5(sys.stdin.buffer.read()).hexdigest()); sys.exit(7)"
    reply = session.run(Host(name="h1"), (sys.executable, "-c", program), stdin=data, deadline=60)
    assert reply.stdout.decode().strip() == hashlib.md5(data).hexdigest()
    assert reply.exit_code == 7


def test_one_connection_serves_the_probe_and_the_mpi(bench, session):
    assert session.run(Host(name="h1"), ("true",), deadline=60).exit_code == 0
    assert session.run(Host(name="h1"), ("true",), deadline=60).exit_code == 0
    done = subprocess.run((*session.agent_argv(), "h1", "echo from mpirun"), capture_output=True, timeout=60)
    assert done.stdout == b"from mpirun\n"
    assert bench.started[0].connections == 1


def test_a_connection_that_ends_is_told_without_asking_ssh(bench, session, monkeypatch):
    """The loop that supervises ranks asks for it: a process for each host would hold that up."""
    session.run(Host(name="h1"), ("true",), deadline=20)
    session.add_host(Host(name="h2"))
    assert session.lost() == ()
    (shared,) = [path for path in Path(session.config).parent.iterdir() if path.is_socket()]
    monkeypatch.setattr(subprocess, "Popen", None)
    shared.unlink()
    assert session.lost() == ("h1",) and session.lost() == ()


@pytest.mark.parametrize("name", ["mpi", "it's $HOME; mpi"])
def test_an_mpi_in_any_directory_starts_its_daemon(session, tmp_path, name):
    """What PRRTE 3 and Hydra give their agent: the MPI's directory unquoted, in one word or in several.

    Intel's Hydra (2021.18) puts options of its own before those that it is given.
    """
    prefix = tmp_path / name
    daemon = prefix / "bin/prted"
    daemon.parent.mkdir(parents=True)
    daemon.write_text('#!/bin/sh\nprintf "%s|" "$PRTE_PREFIX" "$@"\n')
    daemon.chmod(0o755)
    real = tmp_path / "reached by a link"
    real.symlink_to(tmp_path)
    for given in (prefix, real / name):
        argv = session.agent_argv(str(given))
        assert not any(" " in word for word in argv)
        words = (
            f"PRTE_PREFIX={prefix};export PRTE_PREFIX;{prefix}/bin/prted",
            "-x",
            '"a b"',
            f"{prefix}/lib",
        )
        done = finished((argv[0], "-q", *argv[1:], "h1", *words), timeout=60)
        assert done.stdout == f"{prefix}|-x|a b|{prefix}/lib|", done.stderr


def test_close_ends_commands_connections_and_files(bench, session):
    session.run(Host(name="h1"), ("true",), deadline=60)
    directory = session.config.parent
    replies, started = [], bench.directory / "started"
    command = ("sh", "-c", f"touch {started}; exec sleep 60")
    thread = threading.Thread(
        target=lambda: replies.append(session.run(Host(name="h1"), command, deadline=60))
    )
    thread.start()
    until(started.exists)
    session.close()
    thread.join(20)
    assert replies and replies[0].exit_code != 0
    assert not directory.exists()
    until(lambda: not masters_of(directory))  # they end after they have answered
    session.close()


def test_the_directory_of_a_killed_job_is_swept_by_the_next(bench, environ):
    bench.sshd("h1")
    config = bench.config
    program = (
        "import os, signal, sys; from pathlib import Path\n"
        "from ringleader.plan.job import Host, Ssh\n"
        "from ringleader.launch.ssh.connections import SshConnections\n"
        "host = Host(name='h1')\n"
        f"ssh, base = Ssh(config={config!r}), Path({str(bench.base)!r})\n"
        "made = SshConnections(ssh, (host,), environ=os.environ, base=base)\n"
        "assert made.run(host, ('true',), deadline=60).exit_code == 0\n"
        "print(made.config.parent, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    died = subprocess.run([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, timeout=60)
    directory = Path(died.stdout.strip())
    assert directory.is_dir() and died.returncode == -9
    with contextlib.closing(
        SshConnections(Ssh(config=config), (Host(name="h1"),), environ=environ, base=bench.base)
    ) as other:
        assert not directory.exists()
        assert other.config.exists()
    until(lambda: not masters_of(directory))  # they end after they have answered


def masters_of(directory: Path) -> list[str]:
    """Command lines of ssh processes that still serve a directory."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if "ssh" in line and str(directory) in line:
            found.append(line)
    return found

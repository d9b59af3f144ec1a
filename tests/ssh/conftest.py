"""Sshds that tests start, and the client's side of them."""

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system_programs import program

sys.path.insert(0, str(Path(__file__).parent))  # sshd.py lies beside the tests
import sshd as servers


class Bench:
    """Everything one test needs: sshds by alias, a client configuration, known_hosts, a place for sockets."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.key = servers.make_key(directory / "id")
        self.known_hosts = directory / "known_hosts"
        self.known_hosts.touch()
        self.aliases: dict[str, dict[str, object]] = {}
        self.started: list[servers.Sshd] = []

    def sshd(self, alias: str, *, hostname: str = "", mounts: tuple = (), known: bool = True) -> servers.Sshd:
        found = servers.start(self.directory / alias, self.key, hostname=hostname, mounts=mounts)
        self.started.append(found)
        self.alias(alias, found.port)
        if known:
            self.know(found)
        return found

    def alias(self, alias: str, port: int, **options: object) -> None:
        self.aliases[alias] = {"Port": port, "IdentityFile": self.key, **options}

    def know(self, found: servers.Sshd, key: str = "") -> None:
        with self.known_hosts.open("a") as file:
            file.write(f"[127.0.0.1]:{found.port} {key or found.public_host_key}\n")

    @property
    def config(self) -> str:
        return str(servers.client_config(self.directory / "client", self.aliases, self.known_hosts))

    @property
    def base(self) -> Path:
        """Where control directories are made: short, so that sockets fit."""
        return self.directory


@pytest.fixture
def bench() -> Iterator[Bench]:
    program("sshd", "openssh-server")
    directory = Path(tempfile.mkdtemp(prefix="rl-t-", dir="/tmp"))  # tmp_path is too long for sockets
    made = Bench(directory)
    try:
        yield made
    finally:
        for found in made.started:
            found.stop()
        left = list(directory.glob("rl-ssh-*"))
        shutil.rmtree(directory)
        assert not left, f"directories left behind: {left}"


@pytest.fixture
def environ() -> dict[str, str]:
    return {**os.environ, "SSH_AUTH_SOCK": ""}

"""Just enough of a container runtime to run a compose file's services on this machine, without any image.

Each service gets what its document says: host name, names in /etc/hosts, user, entrypoint, environment, bind
mounts, no new privileges. Its root is the machine's own. All services share one fresh network namespace, "the
host", so that the ports of the document are free whatever else runs here. Needs root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml

UNDERSTOOD = {
    *("image", "init", "hostname", "user", "entrypoint", "ulimits", "working_dir", "environment"),
    *("healthcheck", "network_mode", "extra_hosts", "security_opt", "shm_size", "depends_on", "volumes"),
}
NEEDED = ("unshare", "nsenter", "setpriv", "ip", "mount")
ACCOUNT = 61234
"""Number of the account ``trainer``, which every container has beside those of the machine."""
SECONDS = 60.0
"""For what takes a moment; a busy machine may need all of it."""


def why_not() -> str:
    """Why containers cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "needs root"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    done = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], capture_output=True)
    return "" if done.returncode == 0 else f"needs namespaces: {done.stderr.decode().strip()}"


class Container:
    """One running service."""

    def __init__(self, host: Host, service: str, document: dict[str, Any]) -> None:
        assert set(document) <= UNDERSTOOD, f"not understood: {set(document) - UNDERSTOOD}"
        assert document["network_mode"] == "host"
        self.document = document
        self.log_file = host.base / f"{service}.log"
        home = "/root" if document["user"] == "0:0" else "/tmp"
        self.environ = {"PATH": os.environ["PATH"], "HOME": home, **values(document)}
        boot = boot_script(document, host.directory, etc=host.base / f"{service}.etc")
        argv = ["nsenter", f"--net=/proc/{host.process.pid}/ns/net", "unshare", "--uts", "--ipc", "--mount"]
        argv += ["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", boot]
        with self.log_file.open("wb") as log:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environ, cwd="/"
            )

    @property
    def log(self) -> str:
        return self.log_file.read_text()

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        """What docker compose exec does: a further process in the container, in its working directory."""
        entered = ["nsenter", f"--target={self._first()}", "--net", "--uts", "--ipc", "--mount", "--pid"]
        directory = self.document.get("working_dir", "/")
        return subprocess.run(
            [*entered, f"--wd={directory}", "--", *confined(self.document), *argv],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            env=self.environ,
        )

    def wait_healthy(self) -> None:
        """Wait for the document's own healthcheck."""
        word, *test = (text.replace("$$", "$") for text in self.document["healthcheck"]["test"])
        assert word == "CMD"
        wait_for(lambda: self.running() and self.run(*test).returncode == 0, self)

    def running(self) -> bool:
        assert self.process.poll() is None, f"it ended with {self.process.returncode}: {self.log}"
        return bool(self._children())

    def stop(self) -> None:
        children = self._children()
        for pid in children:
            os.kill(pid, signal.SIGKILL)  # with the first process of its namespace go all others
        if not children:
            self.process.kill()
        self.process.wait(SECONDS)

    def wait_listening(self) -> None:
        """Wait until its sshd takes connections."""
        wait_for(lambda: self.running() and "Server listening" in self.log, self)

    def _first(self) -> int:
        return self._children()[0]

    def _children(self) -> list[int]:
        if self.process.poll() is not None:
            return []
        pid = self.process.pid
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(word) for word in text.split()]


class Host:
    """One host: its network, and the containers on it."""

    def __init__(self, directory: Path, base: Path) -> None:
        """``directory`` holds the application; ``base`` is for our own files and outlives no test."""
        self.directory, self.base = directory, base
        self.containers: list[Container] = []
        self.services = yaml.safe_load((directory / "compose.yaml").read_text())["services"]
        script = (
            "ip link set lo up; ip link add one type veth peer name two; ip addr add 10.123.45.1/24 dev one; "
            "ip link set one up; ip link set two up; echo up; exec cat"
        )
        self.process = subprocess.Popen(
            ["unshare", "--net", "sh", "-ec", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == b"up\n", "the host has no network"

    def start(self, service: str) -> Container:
        made = Container(self, service, self.services[service])
        self.containers.append(made)
        return made

    def stop(self) -> None:
        with ExitStack() as ends:  # one that does not end keeps no other from being ended
            ends.callback(self.process.communicate)
            ends.callback(self.process.kill)
            for container in self.containers:
                ends.callback(container.stop)


def values(document: dict[str, Any]) -> dict[str, str]:
    return {name: text.replace("$$", "$") for name, text in document.get("environment", {}).items()}


def confined(document: dict[str, Any]) -> list[str]:
    """Words in front of a command that make it run as the document's user, without new privileges."""
    uid, _, gid = document["user"].partition(":")
    assert document["security_opt"] == ["no-new-privileges:true"]
    return ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups", "--no-new-privs", "--"]


def boot_script(document: dict[str, Any], directory: Path, *, etc: Path) -> str:
    """The script that makes a container of fresh namespaces and becomes its entrypoint."""
    quoted = shlex.quote
    names = [f"{address} {name}" for name, address in (one.split(":") for one in document["extra_hosts"])]
    hosts = "\n".join(["127.0.0.1 localhost", *names, ""])
    lines = [
        f"hostname {quoted(document['hostname'])}",
        f"cp -a /etc {quoted(str(etc))}",
        f"printf %s {quoted(hosts)} >{quoted(str(etc / 'hosts'))}",
        f"mkdir {quoted(str(etc / 'ringleader'))}",
        f"echo trainer:x:{ACCOUNT}:{ACCOUNT}::/tmp:/bin/sh >>{quoted(str(etc / 'passwd'))}",
        f"mount --bind {quoted(str(etc))} /etc",
        "mount -t tmpfs tmpfs /dev/shm",
        "mount -t tmpfs -o mode=1777 tmpfs /tmp",
        "mount -t tmpfs tmpfs /run",
    ]
    for volume in document["volumes"]:
        source = Path(directory, volume["source"].replace("$$", "$"))
        target = quoted(volume["target"].replace("$$", "$"))
        lines.append(f"mount --bind {quoted(str(source))} {target}")
        if volume.get("read_only"):
            lines.append(f"mount -o remount,bind,ro {target}")
    entrypoint = [word.replace("$$", "$") for word in document["entrypoint"]]
    lines.append("exec " + shlex.join([*confined(document), *entrypoint]))
    return "\n".join(lines)


def wait_for(condition: Any, about: Container) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < end, f"it never happened: {about.log}"
        time.sleep(0.05)

"""Just enough of a container runtime to run an application's services on this machine, without any image.

Each service gets what its document says: host name, names in /etc/hosts, user, entrypoint, environment,
mounts, no new privileges. Its root is the machine's own. The `Machine` is a network namespace, a host with
the containers on it, so the ports of a document are free whatever else runs here. Needs root.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import yaml
from tests.commands import finished
from tests.time_limits import patience

Document = dict[str, Any]

UNDERSTOOD = {
    *("image", "init", "hostname", "user", "entrypoint", "ulimits", "working_dir", "environment"),
    *("healthcheck", "network_mode", "extra_hosts", "security_opt", "shm_size", "depends_on", "volumes"),
}
ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("unshare", "nsenter", "setpriv", "ip", "mount")
ACCOUNT = 61234
"""Number of the account ``trainer``, which every container has beside those of the machine."""
SECONDS = 60.0
"""For what takes a moment; a busy machine may need all of it."""


def why_not() -> str:
    """Why containers cannot be made here; empty: they can."""
    if os.geteuid() != 0:
        return "only root can make namespaces"
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        return f"needs {', '.join(missing)}"
    done = subprocess.run(["unshare", "--net", "--pid", "--fork", "--mount", "true"], capture_output=True)
    return "" if done.returncode == 0 else f"needs namespaces: {done.stderr.decode().strip()}"


class Machine:
    """A network namespace with an address that is its own alone."""

    def __init__(self) -> None:
        up = "ip link set lo up; ip link add eth0 type veth peer name eth1; ip link set eth0 up"
        up += "; ip link set eth1 up; ip addr add 10.123.45.1/24 dev eth0; echo up; exec cat"
        self.process = subprocess.Popen(
            ["unshare", "--net", "sh", "-ec", up], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert self.process.stdout.readline() == b"up\n", "it has no network"
        self.network = f"/proc/{self.process.pid}/ns/net"

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


class Container:
    def __init__(self, service: str, boot: str, document: Document, machine: Machine, base: Path) -> None:
        assert set(document) <= UNDERSTOOD, f"not understood: {set(document) - UNDERSTOOD}"
        self.document = document
        self.log_file = base / f"{service}.log"
        home = "/root" if document["user"] == "0:0" else "/tmp"
        values = document.get("environment", {})
        self.environ = {"PATH": os.environ["PATH"], "HOME": home, **values}
        argv = ["nsenter", f"--net={machine.network}", "unshare", "--uts", "--ipc", "--mount"]
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
        first = self._children()[0]
        entered = ["nsenter", f"--target={first}", "--net", "--uts", "--ipc", "--mount", "--pid"]
        directory = self.document.get("working_dir", "/")
        return finished(
            [*entered, f"--wd={directory}", "--", *confined(self.document), *argv],
            stdin=subprocess.DEVNULL,
            timeout=120,
            env=self.environ,
        )

    def wait_healthy(self) -> None:
        """Wait for the document's own healthcheck."""
        word, *test = self.document["healthcheck"]["test"]
        assert word == "CMD"
        wait_for(lambda: self.running() and self.run(*test).returncode == 0, self)

    def wait_listening(self) -> None:
        """Wait until its sshd takes connections."""
        wait_for(lambda: self.running() and "Server listening" in self.log, self)

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

    def _children(self) -> list[int]:
        if self.process.poll() is not None:
            return []
        pid = self.process.pid
        try:
            text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
        except FileNotFoundError:
            return []
        return [int(word) for word in text.split()]


class Runtime:
    def __init__(self, directory: Path, base: Path) -> None:
        """``directory`` holds the application; ``base`` is for our own files and outlives no test."""
        self.directory, self.base = directory, base
        self.services: dict[str, tuple[Document, list[tuple[Path | None, str, bool]]]] = {}
        for path in sorted(directory.rglob("*.yaml")):
            whole = plain(yaml.safe_load(path.read_text()))
            for name, document in whole["services"].items():
                self.services[name] = (document, list(mounts(document, path.parent)))
        self._machine: Machine | None = None
        self._ends = ExitStack()

    def start(self, service: str) -> Container:
        if self._machine is None:
            self._machine = Machine()
            self._ends.callback(self._machine.stop)
        document, places = self.services[service]
        boot = boot_script(document, places, etc=self.base / f"{service}.etc")
        made = Container(service, boot, document, self._machine, self.base)
        self._ends.callback(made.stop)
        return made

    def stop(self) -> None:
        self._ends.close()  # one that does not end keeps no other from being ended


def plain(value: Any) -> Any:
    """What compose makes of a document: ``$$`` is a dollar."""
    if isinstance(value, str):
        assert "$" not in value.replace("$$", "")
        return value.replace("$$", "$")
    if isinstance(value, dict):
        return {key: plain(one) for key, one in value.items()}
    return [plain(one) for one in value] if isinstance(value, list) else value


def mounts(document: Document, directory: Path) -> Iterator[tuple[Path | None, str, bool]]:
    """What stands where: (source or a new file system, target, read-only)."""
    for volume in document["volumes"]:
        source = None if volume["type"] == "tmpfs" else directory / volume["source"]
        yield source, volume["target"], volume.get("read_only", False)


def confined(document: Document) -> list[str]:
    """Words in front of a command that make it run as the document's user, without new privileges."""
    uid, _, gid = document["user"].partition(":")
    words = ["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups"]
    for option in document.get("security_opt", ()):
        assert option == "no-new-privileges:true"
        words.append("--no-new-privs")
    return [*words, "--"]


def boot_script(document: Document, places: list[tuple[Path | None, str, bool]], *, etc: Path) -> str:
    """The script that makes a container of fresh namespaces and becomes its entrypoint."""
    known = dict(one.split(":") for one in ("localhost:127.0.0.1", *document.get("extra_hosts", ())))
    hosts = "".join(f"{address} {name}\n" for name, address in known.items())
    quoted = shlex.quote
    lines = [
        f"hostname {quoted(document['hostname'])}",
        f"cp -a /etc {quoted(str(etc))}",
        f"printf %s {quoted(hosts)} >{quoted(str(etc / 'hosts'))}",
        f"echo trainer:x:{ACCOUNT}:{ACCOUNT}::/tmp:/bin/sh >>{quoted(str(etc / 'passwd'))}",
        f"mkdir {quoted(str(etc / 'ringleader'))}",
        f"mount --bind {quoted(str(etc))} /etc",
        "mount -t tmpfs tmpfs /dev/shm",
        *own_tmp(ROOT),
        "mount -t tmpfs tmpfs /run",
    ]
    for source, target, read_only in places:
        there = quoted(target)
        if source is None:
            lines.append(f"mount -t tmpfs tmpfs {there}")
            continue
        if source.is_file():
            lines.append(f"touch {there}")
        lines.append(f"mount --bind {quoted(str(source))} {there}")
        if read_only:
            lines.append(f"mount -o remount,bind,ro {there}")
    lines.append("exec " + shlex.join([*confined(document), *document["entrypoint"]]))
    return "\n".join(lines)


def own_tmp(kept: Path) -> list[str]:
    """Lines that give the container a /tmp of its own; a checkout below the machine's stays where it is."""
    empty = "mount -t tmpfs -o mode=1777 tmpfs /tmp"
    if not kept.is_relative_to("/tmp"):
        return [empty]
    place = shlex.quote(str(kept))
    return [f"mount --bind {place} /mnt", empty, f"mkdir -p {place}", f"mount --move /mnt {place}"]


def wait_for(condition: Callable[[], bool], about: Container) -> None:
    end = time.monotonic() + patience(SECONDS)
    while not condition():
        assert time.monotonic() < end, f"it never happened: {about.log}"
        time.sleep(0.05)

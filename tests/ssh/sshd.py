"""A real sshd for tests: on 127.0.0.1, a free port, with keys and known_hosts of its own."""

import getpass
import os
import shlex
import shutil
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from tests.time_limits import patience

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ.get("PATH", ""))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def make_key(path: Path) -> Path:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@dataclass(frozen=True, kw_only=True)
class Sshd:
    """One running sshd and what a client needs to log in."""

    directory: Path
    port: int
    key: Path
    process: subprocess.Popen

    @property
    def log(self) -> str:
        return (self.directory / "log").read_text()

    @property
    def connections(self) -> int:
        """Connections it has taken so far, a waiting for its first word not counted."""
        return self.log.count("Connection from 127.0.0.1")

    @property
    def public_host_key(self) -> str:
        return " ".join((self.directory / "host_key.pub").read_text().split()[:2])

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def start(
    directory: Path, key: Path, *, hostname: str = "", mounts: tuple[tuple[Path, Path], ...] = ()
) -> Sshd:
    """Start one. With ``hostname`` it becomes another machine to the eye: own UTS and mount namespace (root
    only), with each (source, target) of ``mounts`` put in place there."""
    directory.mkdir(parents=True)
    make_key(directory / "host_key")
    (directory / "authorized_keys").write_text((key.parent / (key.name + ".pub")).read_text())
    port = free_port()
    (directory / "config").write_text(
        f"ListenAddress 127.0.0.1\nPort {port}\nHostKey {directory}/host_key\nPidFile none\nUsePAM no\n"
        f"AuthorizedKeysFile {directory}/authorized_keys\nStrictModes no\nPermitRootLogin yes\n"
        "PasswordAuthentication no\nKbdInteractiveAuthentication no\nLogLevel VERBOSE\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    argv = [SSHD, "-D", "-e", "-f", str(directory / "config")]
    if hostname:
        steps = [f"hostname {hostname}"]
        steps += [
            f"mount --bind {shlex.quote(str(source))} {shlex.quote(str(there))}" for source, there in mounts
        ]
        steps.append("exec " + shlex.join(argv))
        argv = ["unshare", "--uts", "--mount", "sh", "-ec", "\n".join(steps)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    sshd = Sshd(directory=directory, port=port, key=key, process=process)
    end = time.monotonic() + patience(20)
    while "Server listening" not in sshd.log:
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"sshd did not start: {sshd.log}")
        time.sleep(0.02)
    return sshd


def client_config(path: Path, blocks: dict[str, dict[str, object]], known_hosts: Path) -> Path:
    """Write an ssh configuration with one Host block for each alias; every alias is on 127.0.0.1."""
    lines = []
    for alias, options in blocks.items():
        lines.append(f"Host {alias}")
        wanted = {"HostName": "127.0.0.1", "User": getpass.getuser(), "IdentitiesOnly": "yes", **options}
        lines += [f"    {option} {value}" for option, value in wanted.items()]
    lines += ["Host *", f"    UserKnownHostsFile {known_hosts}", "    GlobalKnownHostsFile none", ""]
    path.write_text("\n".join(lines))
    return path

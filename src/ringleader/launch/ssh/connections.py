"""One job's connections to its hosts: opened once, shared by probe and MPI launcher, then closed.

OpenSSH itself shares the connections (ControlMaster). Everything it is to do is in one configuration
file of the job, so that the MPI needs only ``ssh -F FILE``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from ringleader.errors import Fault, ProbeError, RefusedError, RequestError
from ringleader.plan.job import Host, Ssh
from ringleader.render.hostfile import mpi_name, ssh_config_text

PERSIST_SECONDS = 3
"""How long a connection outlives its last use; also how long after a SIGKILL of ours one may stay."""
TIMED_OUT = -1000
QUOTING = """
import os, shlex, sys
ssh, *words = sys.argv[1:]
end = words.index("--")
for plain in words[:end]:
    words[end:] = [w if w[:1] == '"' else w.replace(plain, shlex.quote(plain)) for w in words[end:]]
os.execv(ssh, [ssh, *words[end + 1 :]])
"""
"""Python: ``SSH PATH… -- WORD…`` runs ssh with the paths quoted in its words; MPICH quotes some by itself."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What came back from one command on one host."""

    exit_code: int
    """The command's own; 255: ssh failed; TIMED_OUT: the deadline passed; negative: ssh died of a signal."""
    stdout: bytes
    stderr: str


def remote_command(argv: Iterable[str]) -> str:
    """Return the one string that the host's login shell turns back into ``argv``: the only quoting there is.

    Raises ValueError for a NUL byte, which no program can be given.
    """
    words = tuple(argv)
    if any("\0" in word for word in words):
        raise ValueError("an argument holds a NUL byte")
    return shlex.join(words)


class SshConnections:
    """Shared connections to hosts. Safe to use from several threads; ``close`` ends all of it."""

    def __init__(
        self,
        ssh: Ssh,
        hosts: Iterable[Host],
        *,
        environ: Mapping[str, str],
        base: Path | None = None,
        persist: int = PERSIST_SECONDS,
    ) -> None:
        """Write the configuration; nobody is contacted yet.

        ``base``: where the private directory is made (default: the first of /tmp and the like whose path is
        short enough for a socket). ``persist``: seconds that a connection outlives its last use. Raises
        ProbeError without an ssh client, RequestError for files that do not exist and for paths that
        ssh_config cannot hold.
        """
        program = shutil.which("ssh", path=environ.get("PATH"))
        if program is None:
            raise ProbeError("there is no ssh client on this machine", hint="apt install openssh-client")
        check_files(ssh)
        self._program, self._environ = program, dict(environ)
        self._ssh, self._persist = ssh, persist
        self._hosts = {host.name: host for host in hosts}
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._closed = False
        self._shared: set[str] = set()
        """Names of the sockets that ``lost`` saw last."""
        for left in abandoned_control_directories(base):
            self._end_masters(left)
        self._directory, self._held = make_control_directory(base)
        self.config = self._directory / "config"
        """The job's ssh configuration file."""
        self._is_written = True
        try:
            self.config.write_text(self._config_text(self._hosts.values()), encoding="utf-8")
        except RequestError:
            self.close()
            raise

    def _config_text(self, hosts: Iterable[Host]) -> str:
        try:
            return ssh_config_text(
                ssh=self._ssh,
                hosts=hosts,
                control_dir=str(self._directory),
                user_config=_user_config(self._ssh),
                persist=self._persist,
            )
        except ValueError as error:
            raise RequestError(str(error), where="--ssh-config, --ssh-identity") from None

    def add_host(self, host: Host) -> None:
        """Let one more host be reached; connections that are open stay. Raises RequestError for its name."""
        with self._lock:
            if host.name not in self._hosts:
                self._config_text((host,))
                self._hosts[host.name], self._is_written = host, False

    def agent_argv(self, prefix: str = "") -> tuple[str, ...]:
        """Return what an MPI is to use as its remote agent; no word of it holds a space.

        ``prefix``: the MPI's directory. An MPI writes it unquoted into the command that a host's shell reads.
        """
        if not prefix or shlex.quote(prefix) == prefix:
            return (self._program, "-F", str(self.config))
        plain = dict.fromkeys((prefix, os.path.realpath(prefix)))
        script = self.config.with_name("ssh")
        words = (sys.executable, "-I", "-S", "-c", QUOTING, self._program, *plain, "--")
        script.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n', encoding="utf-8")
        script.chmod(0o700)
        return (str(script), "-F", str(self.config))

    def run(
        self, host: Host, argv: Iterable[str], *, stdin: bytes | IO[bytes] = b"", deadline: float
    ) -> Reply:
        """Run a command on a host, at most ``deadline`` seconds, its arguments byte for byte as they are."""
        return self._call(("-T", "--", mpi_name(host.name), remote_command(argv)), stdin, deadline)

    def run_here(self, argv: Iterable[str], *, stdin: bytes, deadline: float) -> Reply:
        """Run a program of this machine that uses the connections (``agent_argv``), such as rsync."""
        return self._run(tuple(argv), stdin, deadline)

    def settings(self, host: Host) -> dict[str, tuple[str, ...]]:
        """Return what ssh would use for a host (``ssh -G``): lower-case option to its values."""
        reply = self._call(("-G", "--", mpi_name(host.name)), b"", 10.0)
        found: dict[str, tuple[str, ...]] = {}
        for line in reply.stdout.decode(errors="replace").splitlines():
            option, _, value = line.partition(" ")
            found[option] = (*found.get(option, ()), value)
        return found

    def lost(self) -> tuple[str, ...]:
        """Return hosts to which the shared connection ended since the last call; its socket goes with it."""
        there = {socket.name for socket in sockets(self._directory)}
        gone, self._shared = self._shared - there, there
        names = tuple(self._hosts)
        return tuple(names[int(number)] for number in sorted(gone) if number.isdigit())

    def close(self) -> None:
        """End every command and connection and remove every file; calling it again does nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            running = tuple(self._running)
        for process in running:
            process.kill()
        self._end_masters(self._directory)
        os.close(self._held)

    def _call(self, arguments: tuple[str, ...], stdin: bytes | IO[bytes], deadline: float) -> Reply:
        return self._run((*self.agent_argv(), *arguments), stdin, deadline)

    def _run(self, argv: tuple[str, ...], stdin: bytes | IO[bytes], deadline: float) -> Reply:
        # The shared connection's background process keeps our standard error open, so that is a file: waiting
        # for the end of a pipe would be waiting for that process.
        with tempfile.TemporaryFile() as errors:
            with self._lock:
                if self._closed:
                    return Reply(exit_code=255, stdout=b"", stderr="the connection was closed")
                if not self._is_written:  # all hosts that were added since together
                    text = self.config.with_name("config.new")
                    text.write_text(self._config_text(self._hosts.values()), encoding="utf-8")
                    text.replace(self.config)  # an ssh that starts just now reads the old or the new one
                    self._is_written = True
                process = subprocess.Popen(
                    argv,
                    stdin=subprocess.PIPE if isinstance(stdin, bytes) else stdin,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    env=self._environ,
                    # A Ctrl-C at the terminal is ours to handle, once, for every host.
                    start_new_session=True,
                )
                self._running.add(process)
            with process:
                try:
                    stdout, _ = process.communicate(
                        stdin if isinstance(stdin, bytes) else None, timeout=deadline
                    )
                    code = process.returncode
                except subprocess.TimeoutExpired:
                    stdout, code = b"", TIMED_OUT
                finally:
                    process.kill()
                    with self._lock:
                        self._running.discard(process)
            errors.seek(0)
            return Reply(exit_code=code, stdout=stdout, stderr=errors.read().decode(errors="replace"))

    def _end_masters(self, directory: Path) -> None:
        """Tell every shared connection whose socket is in a directory to end, all at once; remove it."""
        asked = [
            subprocess.Popen(
                (self._program, "-F", "none", "-o", f"ControlPath={socket}", "-O", "exit", "master"),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for socket in sockets(directory)
        ]
        for process in asked:
            try:
                process.wait(5.0)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def check_files(ssh: Ssh) -> None:
    """Raise RequestError for files of an ssh that do not exist."""
    # ssh itself passes over an Include that does not exist, and over a key.
    given = (("--ssh-config", ssh.config), ("--ssh-identity", ssh.identity))
    faults = [
        Fault(where=option, what=f"there is no file {path}", hint="check the path")
        for option, path in given
        if path is not None and not os.path.isfile(os.path.expanduser(path))  # noqa: PTH111, PTH113 - an endless name is not a file either
    ]
    if faults:
        raise RequestError(faults)


def _user_config(ssh: Ssh) -> str | None:
    """Return the path of the user's own configuration; ssh looks in the account's home, not in $HOME."""
    if ssh.config is not None:
        return str(Path(ssh.config).expanduser().absolute())
    usual = Path(pwd.getpwuid(os.getuid()).pw_dir) / ".ssh/config"
    return str(usual) if usual.is_file() else None


# --- the directory of the connections' sockets ------------------------------------------------------------

PREFIX = "rl-ssh-"
LOCK = "lock"
"""A file that the process which made the directory holds locked: the kernel drops that however it ends."""
SOCKET_NAME_LENGTH = 40 + 17
"""ssh's ``%C`` (40 characters) and the suffix (17) it adds while it makes the socket."""
SOCKET_PATH_LIMIT = 104
"""The shortest limit of a unix socket's path that OpenSSH's systems have (Linux: 108)."""


def sockets(directory: Path) -> tuple[Path, ...]:
    """Sockets of the shared connections that are open (or whose process died)."""
    try:
        return tuple(entry for entry in directory.iterdir() if entry.is_socket())
    except OSError:
        return ()


def bases() -> tuple[Path, ...]:
    """Directories in which one can be made, best first: short, without spaces, ours to write in."""
    wanted = (Path("/tmp"), Path(tempfile.gettempdir()), Path(f"/run/user/{os.getuid()}"), Path("/dev/shm"))
    return tuple(base for base in wanted if base.is_dir() and os.access(base, os.W_OK) and fits(base))


def fits(base: Path) -> bool:
    """Whether a socket in one under ``base`` has a path that the kernel and an MPI's arguments take."""
    longest = len(os.fsencode(base)) + len(f"/{PREFIX}12345678/") + SOCKET_NAME_LENGTH
    return longest < SOCKET_PATH_LIMIT and not any(char.isspace() for char in str(base))


def make_control_directory(base: Path | None = None) -> tuple[Path, int]:
    """Make one that only its owner can enter; return it and its lock, which is held.

    Raises RefusedError where there is no directory for one.
    """
    places = bases() if base is None else (base,) if fits(base) else ()
    if not places:
        raise RefusedError(
            "there is no directory for ssh's sockets: none of /tmp, $TMPDIR, /run/user and /dev/shm "
            "is writable and short enough",
            hint="make /tmp writable",
        )
    directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=places[0]))
    lock = os.open(directory / "new", os.O_RDWR | os.O_CREAT, 0o600)
    with contextlib.suppress(OSError):  # without locks nobody takes it for abandoned
        fcntl.flock(lock, fcntl.LOCK_SH)
        (directory / "new").rename(directory / LOCK)  # nobody finds it before it is held
    return directory, lock


def abandoned_control_directories(base: Path | None = None) -> tuple[Path, ...]:
    """Return those of ours whose process is gone (it was killed), for their connections to be ended."""
    places = bases() if base is None else (base,)
    return tuple(path for place in places for path in place.glob(f"{PREFIX}*") if _is_abandoned(path))


def _is_abandoned(directory: Path) -> bool:
    try:
        status = directory.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
            return False
        lock = os.open(directory / LOCK, os.O_RDWR)
    except OSError:  # just being made, or being removed
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(lock)
    return True

"""Starts an sshd on a free loopback port with throw-away keys, logs in, and starts two ranks from there.

They meet, then they train a step with each framework that is installed.
"""

from __future__ import annotations

import json
import os
import pwd
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ringleader.agents import parent_death, process_tree, temporary_directory
from ringleader.doctor.image_facts import TwoRankTest
from ringleader.doctor.import_checks import ImportChecks
from ringleader.doctor.training_step import FRAMEWORKS
from ringleader.doctor.two_rank_program import MARK
from ringleader.images.processes import Answer, answer

IMAGE_CONFIG = Path("/etc/ssh/sshd_config")
PLACES = "/usr/sbin:/usr/local/sbin:/sbin"
START_SECONDS = 30.0
LOGIN_SECONDS = 30.0
RANKS_SECONDS = 180.0
ATTEMPTS = 3
"""A free port may be taken by another before sshd has it."""


def run(
    checks: ImportChecks, *, own_config: bool, places: str = PLACES, frameworks: Sequence[str] = FRAMEWORKS
) -> TwoRankTest:
    """Try it all and say how far it went. ``own_config``: sshd is to run with the image's configuration.
    ``places``: where it is looked for besides PATH. ``frameworks``: to train with, where they are installed.

    Without sshd, or where it does not let us in, the ranks start locally. Nothing is left behind.
    """
    path = f"{checks.environ.get('PATH', os.defpath)}:{places}"
    sshd = shutil.which("sshd", path=path)
    if sshd is None:
        return _with_ranks(TwoRankTest(), checks, None, frameworks)
    config = str(IMAGE_CONFIG) if own_config and IMAGE_CONFIG.is_file() else ""
    found = TwoRankTest(sshd=sshd, version=_version(checks), config=config)
    client = shutil.which("ssh", path=path)
    if client is None:
        found = replace(found, login_error="there is no ssh client here")
        return _with_ranks(found, checks, None, frameworks)
    try:
        with _keys_in(checks) as directory, _listening(sshd, config, directory, checks) as port:
            argv = _client(client, directory, port)
            said = answer((*argv, "true"), environ=checks.environ, seconds=checks.left(LOGIN_SECONDS))
            if said.code != 0:
                why = _why(said, LOGIN_SECONDS)
                found = replace(found, login_error=_joined(why, _log(directory)))
            return _with_ranks(found, checks, argv if said.code == 0 else None, frameworks)
    except _NotStartedError as error:
        return _with_ranks(replace(found, start_error=str(error)), checks, None, frameworks)


class _NotStartedError(Exception):
    """The sshd does not run; the words say why."""


def _version(checks: ImportChecks) -> str:
    said = answer(("ssh", "-V"), environ=checks.environ, seconds=checks.left(10.0))
    return said.words.partition(",")[0] if said.code == 0 else ""


@contextmanager
def _keys_in(checks: ImportChecks) -> Iterator[Path]:
    """Yield a directory with keys for a host and a user, which goes afterwards."""
    with ExitStack() as stack:
        try:
            directory = stack.enter_context(temporary_directory.directory("doctor"))
        except OSError as error:
            raise _NotStartedError(f"no place for its keys: {error}") from None
        for name in ("host", "user"):
            options = (
                "-q",
                "-t",
                "ed25519",
                "-N",
                "",
                "-C",
                "ringleader doctor",
                "-f",
                f"{directory / name}",
            )
            said = answer(("ssh-keygen", *options), environ=checks.environ, seconds=checks.left(30.0))
            if said.code != 0:
                raise _NotStartedError(f"ssh-keygen makes no key: {_why(said, 30.0)}")
        shutil.copy(directory / "user.pub", directory / "authorized_keys")
        yield directory


@contextmanager
def _listening(sshd: str, config: str, directory: Path, checks: ImportChecks) -> Iterator[int]:
    """Start an sshd, yield its port; end it with everything that it started."""
    if os.geteuid() == 0:
        with suppress(OSError):
            Path("/run/sshd").mkdir(mode=0o755, parents=True, exist_ok=True)
    for attempt in range(1, ATTEMPTS + 1):
        try:
            port, process = _start(sshd, config, directory, checks)
            break
        except _NotStartedError as error:
            if attempt == ATTEMPTS or "in use" not in str(error):
                raise
    try:
        yield port
    finally:
        _end(process)


def _start(
    sshd: str, config: str, directory: Path, checks: ImportChecks
) -> tuple[int, subprocess.Popen[bytes]]:
    """Return the port of an sshd that listens, and its process."""
    port = _free_port()
    own = directory / "sshd_config"
    own.write_text("UsePAM no\nPermitRootLogin prohibit-password\n", encoding="utf-8")
    # What is said here comes before the file, and the first word counts for sshd.
    options = (
        f"ListenAddress=127.0.0.1:{port}",
        f"Port={port}",
        f"HostKey={directory}/host",
        f"AuthorizedKeysFile={directory}/authorized_keys",
        "PidFile=none",
        "StrictModes=no",
        "PasswordAuthentication=no",
        "KbdInteractiveAuthentication=no",
        "LogLevel=VERBOSE",
    )
    argv = (sshd, "-D", "-e", "-f", config or str(own), *(word for one in options for word in ("-o", one)))
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            parent_death.argv(argv),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=dict(checks.environ),
            start_new_session=True,
        )
    end = time.monotonic() + checks.left(START_SECONDS)
    while f"port {port}" not in (said := (directory / "log").read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > end:
            _end(process)
            raise _NotStartedError(_joined(f"sshd ended with {process.returncode}", said))
        time.sleep(0.02)
    return port, process


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End an sshd and its sessions, which are process groups of their own."""
    below = process_tree.below(process.pid) if process.poll() is None else []
    for pid in (process.pid, *below):
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _client(ssh: str, directory: Path, port: int) -> tuple[str, ...]:
    known = directory / "known_hosts"
    host_key = (directory / "host.pub").read_text(encoding="utf-8").split()
    known.write_text(f"[127.0.0.1]:{port} {host_key[0]} {host_key[1]}\n", encoding="utf-8")
    options = (
        "BatchMode=yes",
        "ConnectTimeout=20",
        "IdentitiesOnly=yes",
        "StrictHostKeyChecking=yes",
        f"UserKnownHostsFile={known}",
        "GlobalKnownHostsFile=none",
        "ControlPath=none",
    )
    words = [word for one in options for word in ("-o", one)]
    identity = str(directory / "user")
    # -F none: what the account or the image configures for its own hosts means nothing here.
    return (ssh, "-F", "none", "-i", identity, "-p", str(port), *words, "-l", _user(), "127.0.0.1")


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _with_ranks(
    found: TwoRankTest, checks: ImportChecks, ssh: tuple[str, ...] | None, frameworks: Sequence[str]
) -> TwoRankTest:
    """Start two ranks: from a session of the sshd, else from here. If they meet, have them train."""
    said, seconds = _two_ranks(checks, ssh, "ringleader.doctor.two_rank_program")
    ranks: Mapping[str, Any] = {}
    for line in said.out.splitlines():
        if line.startswith(MARK):
            ranks = json.loads(line[len(MARK) :])
    error = "" if said.code == 0 and ranks else _why(said, seconds)
    found = replace(found, over="ssh" if ssh else "local", ranks=ranks, ranks_error=error)
    return found if error else replace(found, training=_training(checks, ssh, frameworks))


def _training(checks: ImportChecks, ssh: tuple[str, ...] | None, frameworks: Sequence[str]) -> dict[str, str]:
    """Have two ranks train a step with each framework that is installed; return name → what went wrong."""
    results = {}
    for framework in frameworks:
        if find_spec(framework) is not None:
            said, seconds = _two_ranks(checks, ssh, "ringleader.doctor.training_step", framework)
            results[framework] = "" if said.code == 0 else _why(said, seconds)
    return results


def _two_ranks(checks: ImportChecks, ssh: tuple[str, ...] | None, *program: str) -> tuple[Answer, float]:
    """Run a module on two ranks; return what they said, and the seconds that they had."""
    seconds = checks.left(RANKS_SECONDS)
    options = ("-n", "2", "--oversubscribe", "--share-gpus", "--no-prefix", "--timeout", f"{seconds:.0f}")
    python = (sys.executable, "-P", "-m")
    run = (*python, "ringleader", "run", *options, *python, *program)
    argv = run if ssh is None else (*ssh, shlex.join(run))
    return answer(argv, environ=checks.environ, seconds=seconds + 15), seconds


def _why(said: Answer, seconds: float) -> str:
    if said.code is None:
        return f"it did not end within {seconds:.0f} s"
    return _joined(f"it ended with {said.code}", f"{said.out}\n{said.err}")


def _log(directory: Path) -> str:
    return (directory / "log").read_text(errors="replace")


def _joined(what: str, text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "; ".join([what, *lines[-6:]])

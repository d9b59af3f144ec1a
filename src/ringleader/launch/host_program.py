"""Runs a short program on a host: on this machine as a child, elsewhere over open ssh connections."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from ringleader.launch.ssh.connections import TIMED_OUT, Reply, SshConnections
from ringleader.rank_placement import HostFacts


def run_on_host(
    host: HostFacts,
    argv: tuple[str, ...],
    *,
    stdin: bytes,
    seconds: float,
    environ: Mapping[str, str],
    ssh: SshConnections | None,
) -> Reply:
    """Return how a program ended, or ``TIMED_OUT``. ``environ`` is what it has on this machine."""
    try:
        if host.is_local or ssh is None:
            return _run_here(argv, stdin, seconds, environ)
        return ssh.run(host.host, argv, stdin=stdin, deadline=seconds)
    except OSError as error:
        return Reply(exit_code=127, stdout=b"", stderr=f"{argv[0]}: {error.strerror}")


def why_failed(reply: Reply, what: str, seconds: float) -> str:
    """Return in words why ``what`` did not start."""
    if reply.exit_code == TIMED_OUT:
        return f"its {what} could not be started within {seconds:g} s"
    lines = [line.strip() for line in reply.stderr.splitlines() if line.strip()]
    said = lines[-1] if lines else f"it ended with exit code {reply.exit_code}"
    return f"its {what} could not be started: {said}"


def _run_here(argv: tuple[str, ...], stdin: bytes, seconds: float, environ: Mapping[str, str]) -> Reply:
    try:
        ended = subprocess.run(
            argv,
            input=stdin,
            capture_output=True,
            timeout=seconds,
            env=environ,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Reply(exit_code=TIMED_OUT, stdout=b"", stderr="")
    return Reply(
        exit_code=ended.returncode, stdout=ended.stdout, stderr=ended.stderr.decode(errors="replace")
    )

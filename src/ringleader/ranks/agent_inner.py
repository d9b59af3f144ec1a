"""From the connection to the launcher until the agent's end: who we are, what we are told, how we leave."""

from __future__ import annotations

import os
import time

from ringleader.ranks import control_protocol, job_directory, process_tree, rank_identity
from ringleader.ranks.agent_loop import Session
from ringleader.ranks.agent_outer import ALONE
from ringleader.ranks.fast_stdlib import signal, socket

TYPE_CHECKING = False  # see light.py
if TYPE_CHECKING:
    from collections.abc import Mapping

CONNECT_SECONDS = 3.0
"""For one address; the launcher may offer several of which only some can be reached from here."""
ROUNDS = 3


class UnreachableError(Exception):
    """The launcher cannot be reached, or what answers is not the launcher."""


def serve(guard: int, starter: int, environ: Mapping[str, str]) -> int:
    """Connect, introduce ourselves, and serve until the rank has ended; return the exit code: 0, or ALONE."""
    wake_read, wake_write = os.pipe()
    for fd in (wake_read, wake_write):
        os.set_blocking(fd, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, frame: None)  # the byte in the wake-up pipe is what counts
    process_tree.die_with_parent(signal.SIGTERM, guard)
    process_tree.become_subreaper()
    rank = rank_identity.number(environ, rank_identity.RANK_NAMES)
    if rank is None:
        raise UnreachableError("the MPI gave this process no rank; start it with `ringleader run`")
    here = rank_identity.host_identity()
    sock = connect(environ.get("RINGLEADER_CONTROL", ""), environ.get("RINGLEADER_TOKEN", ""))
    directory = job_directory.JobDirectory(environ["RINGLEADER_JOB_DIR"], rank_identity.host_key(here))
    directory.make_backing()
    session = Session(
        sock=sock,
        wake=wake_read,
        parents=(guard, starter),
        rank=rank,
        directory=directory,
        environ=environ,
    )
    session.hello(
        size=rank_identity.number(environ, rank_identity.SIZE_NAMES), host=here, hostname=socket.gethostname()
    )
    if not rank_identity.number(
        environ, rank_identity.LOCAL_RANK_NAMES
    ):  # the first of this host, or nobody knows
        job_directory.sweep(directory.job.rpartition("/")[0], directory.key)
    try:
        session.serve()
    finally:
        process_tree.kill_below(os.getpid(), 5.0)
        directory.leave()
    return ALONE if session.launcher_gone else 0


def connect(control: str, token: str, *, rounds: int = ROUNDS) -> socket.socket:
    """Return a connection to the launcher, proven on both sides, by the first address that works."""
    reasons: dict[str, str] = {}
    for attempt in range(rounds):
        for entry in control.split(","):
            address, _, port = entry.rpartition(":")
            try:
                sock = _connected(address.strip("[]"), int(port))
                control_protocol.introduce(sock, token)
            except (OSError, ValueError, control_protocol.ProtocolError) as error:
                reasons[entry] = str(error)
                continue
            control_protocol.keep_alive(sock)
            sock.setblocking(False)
            return sock
        time.sleep(0.2 * attempt)
    tried = "; ".join(f"{entry}: {reason}" for entry, reason in reasons.items())
    raise UnreachableError(
        f"{socket.gethostname()} cannot reach the launcher ({tried}). "
        "Open that port for this host, or name the interface with --network-interface"
    )


def _connected(address: str, port: int) -> socket.socket:
    """Return a blocking connection; ``address`` is a numeric one."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.settimeout(CONNECT_SECONDS)
        sock.connect((address, port))
    except BaseException:
        sock.close()
        raise
    return sock

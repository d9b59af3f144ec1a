"""The user's elastic jobs that run on this machine, found by their sockets, and asked (``host_requests``)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringleader.errors import RefusedError, RequestError
from ringleader.launch.elastic.host_requests import SOCKET_NAME
from ringleader.ranks import job_directory, rank_identity, unix_messages
from ringleader.value_class import dataclass

DESCRIBE_SECONDS = 5.0
"""For a job to say which it is: its loop turns several times a second."""


@dataclass(frozen=True, kw_only=True)
class RunningJob:
    """An elastic job that runs."""

    job: str
    path: str
    """Of its socket."""
    pid: int
    command: str

    def __str__(self) -> str:
        return f"{self.job}: {self.command} (process {self.pid})"


def running_jobs(base: str | None = None) -> tuple[RunningJob, ...]:
    """Return the jobs whose launcher answers, by name. ``base``: the directory of all jobs of the user."""
    base = base or job_directory.base_directory("/tmp", os.getuid())
    key = rank_identity.host_key(rank_identity.host_identity())
    found = []
    for path in sorted(Path(base).glob(f"*/{key}/{SOCKET_NAME}")):
        try:
            words = ask(str(path), "describe", seconds=DESCRIBE_SECONDS)
        except OSError:  # it has just ended, or was killed, or is another user's
            continue
        name, pid, command = (words.get(one) for one in ("job", "pid", "command"))
        if isinstance(name, str) and isinstance(pid, int) and isinstance(command, str):
            found.append(RunningJob(job=name, path=str(path), pid=pid, command=command))
    return tuple(found)


def chosen_job(jobs: Sequence[RunningJob], name: str | None) -> RunningJob:
    """Return the job that is meant: by its name or how that begins, or the only one.

    Raises RequestError with the jobs that there are, RefusedError where there is none.
    """
    if not jobs:
        hint = "ask on the machine where `ringleader run --min-np …` was started, as the same user"
        raise RefusedError("no elastic job of yours runs on this machine", where="hosts", hint=hint)
    meant = [one for one in jobs if one.job.startswith(name or "")]
    if len(meant) == 1:
        return meant[0]
    listed = "".join(f"\n    {one}" for one in jobs)
    if not meant:
        raise RequestError(f"no elastic job is named {name!r}; there are:{listed}", where="JOB")
    raise RequestError(f"{len(meant)} elastic jobs run:{listed}", where="JOB", hint="name one of them")


def ask(path: str, what: str, *, seconds: float) -> dict[str, Any]:
    """Return what a job answers within ``seconds``; OSError where nobody listens, it ended or is late."""
    address = unix_messages.SocketAddress(path)
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(seconds)
            sock.connect(address.address)
            unix_messages.check_peer(sock)
            unix_messages.send(sock, {"do": what})
            try:
                received = unix_messages.receive(sock)
            except ValueError as error:
                raise ConnectionError(f"the answer cannot be read: {error}") from None
    finally:
        address.close()
    if received is None:
        raise ConnectionError("the job ended before it answered")
    words, descriptors = received
    for one in descriptors:  # nobody sends us any
        os.close(one)
    return words

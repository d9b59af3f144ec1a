"""A job in Slurm is followed to its end: its state every few seconds, its output as it is written."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from ringleader.errors import RefusedError
from ringleader.followed_job import End, Listener
from ringleader.slurm.controller import UNKNOWN, Slurm
from ringleader.slurm.job_state import SlurmJob, end_of, progress

STATE_SECONDS = 3.0
"""Between two looks at a job's state: one controller serves the whole cluster."""
LOG_SECONDS = 0.3
"""Between two looks at its output."""
LOG_PATIENCE = 5.0
"""Seconds after a job's end in which a shared file system may still show the rest of its output."""
PATIENCE = 600.0
"""Seconds for which the controller may be away while a job is followed."""


class Log:
    """The file of a job's output, read as it grows; its place is known once Slurm says it."""

    def __init__(self, path: str = "") -> None:
        """``path``: empty until it is known."""
        self.path, self._at = path, 0

    def more(self) -> bytes:
        """Return what is new; nothing where there is no file yet, or it is not visible here."""
        try:
            with Path(self.path).open("rb") as file:
                file.seek(self._at)
                data = file.read(1 << 20)
        except (OSError, ValueError):
            return b""
        self._at += len(data)
        return data


async def follow(slurm: Slurm, number: str, listener: Listener, *, shows_log: bool = True) -> End:
    """Return how a job ended, once it has; show its progress and its output until then.

    Raises RefusedError where Slurm forgets it, or does not answer for long.
    """
    log = Log()
    looks = asyncio.ensure_future(_looked(slurm, number, listener, log))
    try:
        while not looks.done():
            await asyncio.wait({looks}, timeout=LOG_SECONDS)
            _show(log, listener, shows_log)
        job = looks.result()
    finally:
        looks.cancel()
    end = end_of(job)
    assert end is not None
    if shows_log:
        since = time.monotonic()
        while not Path(log.path).exists() and time.monotonic() < since + LOG_PATIENCE:
            await asyncio.sleep(LOG_SECONDS)
        await asyncio.sleep(LOG_SECONDS)
        _show(log, listener, shows_log)
        if not log.path or not Path(log.path).exists():
            listener.warning(f"its output cannot be seen on this machine: {log.path or 'where is not known'}")
    return end


def _show(log: Log, listener: Listener, shows_log: bool) -> None:
    while shows_log and (data := log.more()):
        listener.output(data)


async def _looked(slurm: Slurm, number: str, listener: Listener, log: Log) -> SlurmJob:
    """Look at a job until it has ended, telling what changes."""
    told: tuple[str, ...] = ()
    away_since = 0.0
    while True:
        try:
            job = await slurm.job(number)
            drained = await slurm.drained() if job.state == "PENDING" else []
        except RefusedError as error:
            now = time.monotonic()
            if now > (away_since or now) + PATIENCE or UNKNOWN in str(error):
                raise
            if not away_since:
                listener.warning(f"{error}\n    → the job continues; trying again")
            away_since = away_since or now
        else:
            away_since = 0.0
            log.path = job.log or log.path
            if job.has_ended:
                return job
            news = progress(job, drained)
            if news.key != told:
                told = news.key
                listener.progress(news)
        await asyncio.sleep(STATE_SECONDS)

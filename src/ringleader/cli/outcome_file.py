"""An outcome for programs: what ``ringleader run --json FILE`` writes."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ringleader import __version__
from ringleader.errors import Fault, RefusedError, RequestError, RingleaderError

if TYPE_CHECKING:
    from ringleader.job import Job
    from ringleader.launch.outcome import Outcome, RankEnd

FORMAT = 1
"""Grows when a reader of the file must change."""


def outcome_json(outcome: Outcome, job: Job) -> dict[str, Any]:
    """Return the outcome as JSON values. Seconds are seconds; ``null`` is what does not apply."""
    plan = outcome.plan
    failure = outcome.first_failure
    return {
        "format": FORMAT,
        "ringleader": __version__,
        "command": list(job.command),
        "exit_code": outcome.exit_code,
        "whose": outcome.whose,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "mpi": {"family": outcome.mpi.family, "version": outcome.mpi.version, "mpirun": outcome.mpi.mpirun},
        "hosts": [
            {"name": facts.host.name, "hostname": facts.hostname, "ranks": count}
            for facts, count in zip(plan.hosts, plan.counts(), strict=True)
        ],
        "plan": [
            {
                "rank": place.rank,
                "host": plan.hosts[place.host_index].host.name,
                "local_rank": place.local_rank,
                "cpus": list(place.cpus),
                "threads": place.threads,
                "gpu": place.gpu,
            }
            for place in plan.ranks
        ],
        "ranks": [_end(end) for end in outcome.ends],
        "first_failure": None if failure is None else _end(failure),
    }


def error_json(error: RingleaderError, command: tuple[str, ...]) -> dict[str, Any]:
    """Return what is said of a job that did not come to an outcome."""
    return {
        "format": FORMAT,
        "ringleader": __version__,
        "command": list(command),
        "exit_code": error.exit_code,
        "whose": "ringleader",
        "reason": str(error),
        "faults": [{"where": f.where, "what": f.what, "hint": f.hint} for f in error.faults],
    }


def _end(end: RankEnd) -> dict[str, Any]:
    return {
        "rank": end.rank,
        "host": end.host,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "seconds": end.seconds,
        "at": end.at,
        "stopped": end.stopped,
        "reason": end.reason,
        "log": end.log,
    }


class OutcomeFile:
    """The file of ``--json``: opened before the job starts, so that a wrong place is found before any work.

    What was in it stays until there is an outcome to write. Opening waits for no reader of a pipe.
    """

    def __init__(self, path: str) -> None:
        """Open or make it. Raises RequestError where that cannot be."""
        self._path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        self._made = not Path(path).exists()
        try:
            self._file = os.fdopen(os.open(path, flags, 0o666), "wb", buffering=0)
        except OSError as error:
            what = f"{path} cannot be written: {error.strerror or error}"
            raise RequestError(Fault(where="--json", what=what)) from None
        os.set_blocking(self._file.fileno(), True)

    def write(self, values: Mapping[str, Any]) -> None:
        """Replace what is in it. Raises RefusedError where there is no room any more."""
        self._made = False
        data = (json.dumps(values, indent=2) + "\n").encode()
        try:
            with contextlib.suppress(OSError):  # a pipe or a device has no length
                self._file.truncate(0)
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            what = f"{self._path} cannot be written: {error.strerror or error}"
            raise RefusedError(Fault(where="--json", what=what)) from None

    def close(self) -> None:
        """Close it; a file that was made here and got no word is removed."""
        self._file.close()
        if self._made:
            with contextlib.suppress(OSError):
                Path(self._path).unlink()


@contextlib.contextmanager
def opened(path: str | None) -> Iterator[OutcomeFile | None]:
    """Yield the file of ``--json``, ``None`` where none was asked for, and close it. Raises RequestError."""
    if path is None:
        yield None
        return
    with contextlib.closing(OutcomeFile(path)) as file:
        yield file


def keep(file: OutcomeFile | None, values: Mapping[str, Any], *, failed: bool) -> None:
    """Write the outcome for programs; one that failed keeps its own code where that cannot be written."""
    try:
        if file is not None:
            file.write(values)
    except RefusedError as error:
        if not failed:
            raise
        print(f"ringleader: {error}", file=sys.stderr)

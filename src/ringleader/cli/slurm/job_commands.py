"""``ringleader slurm status``, ``logs`` and ``cancel``: jobs in Slurm; `run_job` sends them."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from ringleader.cli.follow_job import job_terminal
from ringleader.cli.output import JsonOptions, show, table
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RefusedError, RequestError, collected, refuse
from ringleader.option_fields import LEAST, argument, flag, group, option
from ringleader.slurm.controller import Slurm
from ringleader.slurm.job_follower import follow
from ringleader.slurm.job_state import SlurmJob, end_of, progress

HEADERS = ("JOB", "NAME", "STATE", "NODES", "ELAPSED", "LIMIT", "WHY")


@dataclass(frozen=True, kw_only=True)
class StatusOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)
    job: str | None = argument("[JOB]", default=None)


@Command.of("status", StatusOptions)
def status_command(options: StatusOptions) -> None:
    """Show your Slurm jobs, or the state of one JOB and why it is pending or how it ended.

    \b
      ringleader slurm status
      ringleader slurm status 1234
    """
    numbers = () if options.job is None else (_number(options.job),)
    jobs, drained = asyncio.run(_known(*numbers))
    values = [_json(job, drained) for job in jobs]
    show(options.json, values[0] if numbers else values, lambda: _table(jobs, drained))
    if not jobs and not options.json.json:
        print("ringleader: you have no jobs in Slurm", file=sys.stderr)


async def _known(*numbers: str) -> tuple[list[SlurmJob], list[str]]:
    slurm = Slurm(os.environ)
    jobs = [await slurm.job(one) for one in numbers] or await slurm.jobs()
    is_waiting = any(job.state == "PENDING" for job in jobs)
    return jobs, await slurm.drained() if is_waiting else []


def _why(job: SlurmJob, drained: list[str]) -> str:
    """Return what is worth a word besides a job's state."""
    end = end_of(job)
    if end is not None:
        return end.reason or (f"exit code {end.exit_code}" if end.exit_code else "")
    return progress(job, drained).text if job.state == "PENDING" else ""


def _json(job: SlurmJob, drained: list[str]) -> dict[str, object]:
    end = end_of(job)
    return vars(job) | {"code": None if end is None else end.exit_code, "why": _why(job, drained)}


def _table(jobs: list[SlurmJob], drained: list[str]) -> str:
    rows = [
        (job.id, job.title, job.state.lower(), job.nodes, job.elapsed, job.limit, _why(job, drained))
        for job in jobs
    ]
    text = f"{table(rows, HEADERS, form='plain')}\n" if rows else ""
    return text + (f"output: {jobs[0].log}\n" if len(jobs) == 1 and jobs[0].log else "")


@dataclass(frozen=True, kw_only=True)
class LogsOptions:
    """The options, as they were written."""

    follow: bool = flag("Wait for the output, and follow it to the job's end.", "-f", "--follow")
    tail: int | None = option("Only the last N lines.", metavar="N", least=0, wrong=LEAST)
    job: str = argument("JOB")
    faults: tuple[Fault, ...] = ()


@Command.of("logs", LogsOptions)
def logs_command(options: LogsOptions) -> int:
    """Show the output of JOB. With -f, follow the output until the job ends and return its exit code.

    \b
      ringleader slurm logs -f 1234
    """
    number, found = _number(options.job), list(options.faults)
    if options.tail is not None and options.follow:
        what = "output that is followed is shown from its beginning"
        found.append(Fault(where="-f and --tail", what=what, hint="leave one of them out"))
    refuse(found)
    slurm = Slurm(os.environ)
    if options.follow:
        terminal = job_terminal(number)
        end = asyncio.run(follow(slurm, number, terminal))
        terminal.finish(end)
        return end.exit_code
    path = Path(asyncio.run(_log_of(slurm, number)))
    try:
        data = path.read_bytes()
    except OSError as error:
        what = f"its output cannot be read: {path}: {error.strerror}"
        hint = f"ringleader slurm status {number} says whether it has begun; is the directory shared?"
        raise RefusedError(what, where=f"job {number}", hint=hint) from None
    lines = data.splitlines(keepends=True)
    sys.stdout.buffer.write(b"".join(lines if options.tail is None else lines[len(lines) - options.tail :]))
    sys.stdout.buffer.flush()
    return 0


async def _log_of(slurm: Slurm, number: str) -> str:
    """Return the path of a job's output; Slurm's usual one in this directory where it is forgotten."""
    usual = Path(f"slurm-{number}.out")
    try:
        return (await slurm.job(number)).log or str(usual)
    except RefusedError:
        if not usual.is_file():
            raise
        return str(usual)


@dataclass(frozen=True, kw_only=True)
class CancelOptions:
    """The options, as they were written."""

    dry_run: bool = flag("Print what would be cancelled, and stop.")
    jobs: tuple[str, ...] = argument("JOB...")


@Command.of("cancel", CancelOptions)
def cancel_command(options: CancelOptions) -> None:
    """Cancel each JOB: its ranks get SIGTERM, and after the cluster's KillWait (30 s) SIGKILL."""
    faults: list[Fault] = []
    for name in dict.fromkeys(options.jobs):
        with collected(faults):
            _number(name)
    refuse(faults)
    asyncio.run(_cancel(tuple(dict.fromkeys(options.jobs)), is_dry=options.dry_run))


async def _cancel(numbers: tuple[str, ...], *, is_dry: bool) -> None:
    """Cancel what can be; what cannot is reported together at the end."""
    slurm = Slurm(os.environ)
    faults: list[Fault] = []
    for number in numbers:
        with collected(faults, RefusedError):
            job = await slurm.job(number)
            if job.has_ended:
                print(f"{number} has ended already ({job.state.lower()})")
                continue
            if not is_dry:
                await slurm.cancel(number)
            print(f"{number} would be cancelled" if is_dry else f"{number} cancelled", flush=True)
    refuse(faults, RefusedError)


def _number(text: str) -> str:
    if not re.fullmatch(r"[0-9]{1,12}(_[0-9]{1,9})?", text):
        raise RequestError(f"{text[:80]!r} is not the number of a job", where="JOB", hint="such as 1234")
    return text

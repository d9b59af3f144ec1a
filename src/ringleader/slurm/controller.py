"""Slurm's programs: sbatch, squeue, sacct, scancel, sinfo; each without a shell, with a deadline.

What they refuse becomes an error that names the option that is wrong, or what is down. `job_state` reads
what they print.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence

from ringleader.errors import RefusedError, RequestError
from ringleader.slurm.job_state import SACCT_FIELDS, SEPARATOR, SQUEUE_FIELDS, SlurmJob, jobs_of

SECONDS = 75.0
"""For an answer; a program tries for up to 60 s to read its configuration."""
_FORMATS = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT")
"""Beginnings of variables that change what is printed."""
_WRONG = (
    ("invalid partition", "--partition", "Slurm has no partition {partition}"),
    ("invalid account", "--account", "Slurm does not accept the account, or not in this partition"),
    ("invalid qos", "--sbatch-arg=--qos", "Slurm does not accept the QOS"),
    ("violates accounting", "--account", "a limit of your account or QOS does not allow it"),
    ("time limit", "--time", "Slurm does not accept the time limit"),
    ("node count|more processors|too many|PartitionNodeLimit", "--nodes, -n", "Slurm refuses as many"),
    (r"generic resource|\bgres\b", "--gpus", "the cluster has no such GPUs"),
    ("node configuration is not available", "--nodes, -n, --gpus", "no node of the partition has that"),
    ("unrecognized option|invalid option|invalid.*specif|is invalid", "--sbatch-arg", "Slurm refuses it"),
)
"""What sbatch prints where the request is wrong, in any case → the option, and what is wrong with it."""
_MUNGE = "[Mm]unge|authentication|credential"
_AWAY = "[Uu]nable to contact|[Cc]onnection refused|[Cc]ommunication|timed out|now in progress|[Ss]ocket"
_INVALID = "[Ii]nvalid job id"
_NO_ACCOUNTING = "accounting storage is disabled"
UNKNOWN = "Slurm does not know it"
"""How an error says that there is no job of a number."""


class Slurm:
    """The cluster that the programs on PATH belong to."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        """Raises RefusedError where a program is missing."""
        self._environ = {name: v for name, v in environ.items() if not name.startswith(_FORMATS)}
        self._environ["LC_ALL"] = "C.UTF-8"
        missing = [one for one in ("sbatch", "squeue", "scancel") if not shutil.which(one, path=self._path)]
        if missing:
            hint = "run this on a node of the cluster from which jobs are submitted, or load Slurm's module"
            raise RefusedError("not found on PATH", where=", ".join(missing), hint=hint)

    @property
    def _path(self) -> str:
        return self._environ.get("PATH", os.defpath)

    async def submit(self, script: str, words: Sequence[str], variables: Mapping[str, str]) -> str:
        """Send a script and return the job's number. ``words``: options, stronger than variables of sbatch.

        Raises RequestError where the request is wrong, RefusedError where Slurm takes no jobs.
        """
        argv = ("sbatch", "--parsable", *words)
        code, out, err = await self._run(argv, text=script, variables=variables)
        job = out.strip().splitlines()[-1].partition(";")[0] if out.strip() else ""
        if code == 0 and job.isdigit():
            return job
        where, what = wrong_option(err)
        if not where:
            raise refusal("sbatch", code, err)
        name = next((one.partition("=")[2] for one in words if one.startswith("--partition=")), "")
        hint = await self._known_partitions() if where == "--partition" else _said(err)
        raise RequestError(what.format(partition=name), where=where, hint=hint)

    async def jobs(self, *ids: str) -> list[SlurmJob]:
        """Return jobs by number, else all of this user; of one that ended long ago, what accounting has."""
        fields = ",".join(f"{name}:{SEPARATOR}" for name in SQUEUE_FIELDS)
        which = [f"--jobs={','.join(ids)}"] if ids else [f"--user={os.getuid()}"]
        argv = ("squeue", "--noheader", "--states=all", *which, f"--Format={fields}")
        code, out, err = await self._run(argv)
        if code and not re.search(_INVALID, err):
            raise refusal("squeue", code, err)
        found = jobs_of(out)
        if ids and not found and shutil.which("sacct", path=self._path):
            argv = ("sacct", "--noheader", "--parsable2", f"--jobs={','.join(ids)}", "--allocations")
            code, out, err = await self._run((*argv, f"--format={','.join(SACCT_FIELDS)}"))
            if code and not re.search(_NO_ACCOUNTING, err):
                raise refusal("sacct", code, err)
            found = jobs_of(out, accounting=True)
        return found

    async def job(self, number: str) -> SlurmJob:
        """Return one job. Raises RefusedError where Slurm does not know it."""
        found = await self.jobs(number)
        if found:
            return found[-1]
        hint = "ringleader slurm status lists yours; without accounting, Slurm soon forgets those that end"
        raise RefusedError(UNKNOWN, where=f"job {number}", hint=hint)

    async def drained(self) -> list[str]:
        """Return the nodes that take no jobs, each with the reason that was given; none where that fails."""
        code, out, _ = await self._run(("sinfo", "--noheader", "--list-reasons", f"--format=%n{SEPARATOR}%E"))
        lines = [line.partition(SEPARATOR) for line in out.splitlines() if SEPARATOR in line]
        return [] if code else [f"{node.strip()} ({why.strip()})" for node, _, why in lines]

    async def cancel(self, number: str) -> None:
        """End a job. Raises RefusedError where Slurm does not know it, or it is somebody else's."""
        code, _, err = await self._run(("scancel", number))
        if code:
            raise refusal(f"job {number}", code, err)

    async def _known_partitions(self) -> str:
        code, out, _ = await self._run(("sinfo", "--noheader", "--format=%R"))
        names = sorted(set(out.split()))
        return f"there are {', '.join(names)}" if names and not code else "sinfo lists them"

    async def _run(
        self, argv: Sequence[str], *, text: str = "", variables: Mapping[str, str] | None = None
    ) -> tuple[int, str, str]:
        """Run a program; return its exit code, what it printed, and its errors. It outlives nobody."""
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env={**self._environ, **(variables or {})},
                start_new_session=True,  # Ctrl-C is ours
            )
        except OSError as error:
            raise RefusedError(f"cannot be started: {error.strerror}", where=argv[0]) from None
        try:
            async with asyncio.timeout(SECONDS):
                out, err = await process.communicate(text.encode(errors="surrogateescape"))
        except TimeoutError:
            hint = "scontrol ping says whether the controller is up"
            raise RefusedError(f"has not answered for {SECONDS:g} s", where=argv[0], hint=hint) from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                await process.wait()
        code = process.returncode or 0
        return code, out.decode(errors="replace"), err.decode(errors="replace")


def wrong_option(err: str) -> tuple[str, str]:
    """Return which option sbatch refuses, and what is wrong with it; empty where it is none of them."""
    if re.search(f"{_MUNGE}|[Uu]nable to contact|now in progress", err):
        return "", ""
    found = (row[1:] for row in _WRONG if re.search(row[0], err, re.IGNORECASE))
    return next(found, ("", ""))


def refusal(where: str, code: int, err: str) -> RefusedError:
    """Return what a program says that did not do what it should."""
    if re.search(_MUNGE, err):
        what, hint = "Slurm does not authenticate us", "is munge running here? munge -n | unmunge"
    elif where == "sacct" and re.search(_AWAY, err):
        what, hint = "Slurm's accounting does not answer", "is slurmdbd running?"
    elif re.search(_AWAY, err):
        what, hint = "Slurm's controller does not answer", "scontrol ping; is SLURM_CONF the right file?"
    elif "configuration" in err:
        what, hint = "this machine has no configuration of Slurm", "SLURM_CONF names its file"
    elif re.search(_INVALID, err):
        what, hint = UNKNOWN, "ringleader slurm status lists yours"
    else:
        what, hint = _said(err) or f"ended with exit code {code}", ""
    return RefusedError(what, where=where, hint=hint and f"{hint} ({_said(err)})")


def _said(err: str) -> str:
    """Return the last words of a program's errors, without its name."""
    lines = [re.sub(r"^\w+: (error: )?", "", line).strip() for line in err.splitlines() if line.strip()]
    lines = [line for line in lines if not line.startswith("Try ")]
    return lines[-1] if lines else ""

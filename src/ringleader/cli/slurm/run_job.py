"""``--on slurm``: a command becomes a batch script that runs the same command, is sent and followed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Collection

import click

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.cli.follow_job import attend, job_terminal
from ringleader.cli.kept_words import without_secrets
from ringleader.cli.option_defaults import Configuration
from ringleader.cli.options.kubernetes_options import FollowOptions
from ringleader.cli.output import result_to
from ringleader.cli.typed_command import words_given
from ringleader.errors import RingleaderError, refuse
from ringleader.followed_job import End, Listener
from ringleader.option_fields import names_of
from ringleader.plan.job import Job
from ringleader.slurm.batch_script import BatchOptions, faults_of, faults_of_export, sbatch_words, script_of
from ringleader.slurm.controller import Slurm
from ringleader.slurm.job_follower import follow as follow_job
from ringleader.slurm.job_state import SlurmJob

FORMAT = 1
"""Of the outcome as JSON: grows when a reader of it must change."""
_OUTSIDE = names_of(BatchOptions) | {"on", "no_allocation", "dry_run"}
"""Parameters that belong to the job's sending, not to the command in its allocation."""


class SlurmPlace:
    """Slurm, as `Place` has it."""

    ends = ("cancel", "cancelling")
    where = " in Slurm"

    def __init__(self, slurm: Slurm) -> None:
        """Keep what speaks to it."""
        self.slurm = slurm

    def command(self, verb: str, name: str = "") -> str:
        """As `Place` has it."""
        return f"ringleader slurm {verb} {name}".rstrip()

    async def follow(
        self, job: SlurmJob, listener: Listener, *, shows_log: bool, start_timeout: float | None
    ) -> End:
        """As `Place` has it; the time that a job may wait in a queue has no limit."""
        return await follow_job(self.slurm, job.id, listener, shows_log=shows_log)


class _Submission:
    """A script on its way to Slurm."""

    cleans_up = False

    def __init__(self, slurm: Slurm, script: str, words: tuple[str, ...], secret: dict[str, str]) -> None:
        self._slurm, self._script, self._words, self._secret = slurm, script, words, secret
        self._number = ""

    async def send(self) -> SlurmJob:
        self._number = await self._slurm.submit(self._script, self._words, self._secret)
        return SlurmJob(id=self._number, state="PENDING")

    async def remove(self) -> None:
        if self._number:
            await self._slurm.cancel(self._number)


def run_on_slurm(
    verb: str, job: Job, batch: BatchOptions, follow: FollowOptions, outside: Collection[str] = ()
) -> int:
    """Send the command line of ``ringleader VERB`` to Slurm and follow it; return the job's exit code.

    ``outside``: parameters that mean something here besides those of Slurm. Raises RequestError.
    """
    refuse((*job.faults, *faults_of(batch, grace=job.grace)))
    context = click.get_current_context()
    words, secret = without_secrets(words_given(context, _OUTSIDE | set(outside)))
    refuse(faults_of_export(batch, secret, os.environ))
    configuration = context.find_object(Configuration)
    chosen = None if configuration is None else configuration.chosen
    python = (sys.executable, "-P", "-m", "ringleader", *([] if chosen is None else [f"--config={chosen}"]))
    command = (*python, verb, "--on", "slurm", *words, "--", *job.command)
    asked = sbatch_words(batch, name=run_file.script_name(job.command), np=most_ranks(job), grace=job.grace)
    script = script_of(batch, command, asked, grace=job.grace)
    if follow.dry_run:
        sys.stdout.write(script)
        return 0
    slurm = Slurm(os.environ)
    with result_to(follow.json) as result:
        name, to_stderr = run_file.script_name(job.command), follow.json.json
        terminal = job_terminal(name, quiet=follow.quiet, output_to_stderr=to_stderr)
        work = _Submission(slurm, script, asked, secret)
        about = {"format": FORMAT, "ringleader": __version__}
        try:
            end = asyncio.run(attend(SlurmPlace(slurm), work, terminal, follow, name=name))
        except RingleaderError as error:
            terminal.finish(None)
            values = {"exit_code": error.exit_code, "whose": "ringleader", "reason": str(error)}
            result.keep(lambda: about | {"job": terminal.name} | values, failed=True)
            raise
        terminal.finish(end)
        values = {"exit_code": end.exit_code, "whose": end.whose, "reason": end.reason, "state": end.state}
        result.keep(lambda: about | {"job": terminal.name} | values, failed=bool(end.exit_code))
    return end.exit_code


def most_ranks(job: Job) -> int | None:
    """Return the number of ranks that the nodes must have room for; ``None``: one for each GPU or node."""
    most = None if job.elastic is None else job.elastic.max_np
    return most or job.np

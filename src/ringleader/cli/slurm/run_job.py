"""``--on slurm``: a command becomes a batch script that runs the same command, is sent and followed."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType

import click

from ringleader import __version__
from ringleader.bench import run_file
from ringleader.cli.follow_job import JobTerminal, attend, job_terminal
from ringleader.cli.kept_words import without_secrets
from ringleader.cli.option_defaults import Configuration
from ringleader.cli.options.kubernetes_options import FollowOptions
from ringleader.cli.output import result_to
from ringleader.cli.typed_command import words_given
from ringleader.errors import Fault, RefusedError, RingleaderError, refuse
from ringleader.followed_job import End, Listener
from ringleader.option_fields import names_of
from ringleader.plan.job import Job
from ringleader.slurm.batch_script import (
    BatchOptions,
    after,
    faults_of,
    faults_of_export,
    faults_of_spares,
    sbatch_words,
    script_of,
)
from ringleader.slurm.controller import UNKNOWN, Slurm
from ringleader.slurm.job_follower import follow as follow_job
from ringleader.slurm.job_state import SlurmJob

FORMAT = 1
"""Of the outcome as JSON: grows when a reader of it must change."""
_OUTSIDE = names_of(BatchOptions) | {"on", "no_allocation", "dry_run"}
"""Parameters that belong to the job's sending, not to the command in its allocation."""
Script = Callable[[BatchOptions], tuple[str, tuple[str, ...]]]
"""Returns the script of a job, and the options for sbatch."""


class SlurmPlace:
    """Slurm, as `Place` has it."""

    ends = ("cancel", "cancelling")
    where = " in Slurm"

    def __init__(self, slurm: Slurm, terminal: JobTerminal) -> None:
        """Keep what speaks to it, and whose lines begin with the number of the job that is followed."""
        self.slurm, self._terminal = slurm, terminal

    def command(self, verb: str, name: str = "") -> str:
        """As `Place` has it. Of several jobs one can be followed: the last."""
        name = name if verb in self.ends else " ".join(name.split()[-1:])
        return f"ringleader slurm {verb} {name}".rstrip()

    async def follow(
        self, job: SlurmJob, listener: Listener, *, shows_log: bool, start_timeout: float | None
    ) -> End:
        """As `Place` has it; the time that a job may wait in a queue has no limit.

        Of several jobs one after the other, until one fails: Slurm cancels those that wait for it.
        """
        for number in job.id.split():
            self._terminal.name = number
            end = await follow_job(self.slurm, number, listener, shows_log=shows_log)
            if end.exit_code:
                break
        return end


class _Submission:
    """Scripts on their way to Slurm."""

    cleans_up = False

    def __init__(
        self, slurm: Slurm, batches: Sequence[BatchOptions], script: Script, secret: dict[str, str]
    ) -> None:
        self._slurm, self._batches, self._script, self._secret = slurm, batches, script, secret
        self._numbers: list[str] = []

    async def send(self) -> SlurmJob:
        """Send each, to begin after the one before; where one is refused, those before it are cancelled."""
        for batch in self._batches:
            text, words = self._script(after(batch, "".join(self._numbers[-1:])))
            try:
                self._numbers.append(await self._slurm.submit(text, words, self._secret))
            except RingleaderError as error:
                try:
                    await self.remove()
                except RingleaderError as left:
                    raise type(error)([*error.faults, *left.faults]) from None
                raise
        return SlurmJob(id=" ".join(self._numbers), state="PENDING")

    async def remove(self) -> None:
        """Cancel each; one that Slurm has forgotten has ended."""
        faults: list[Fault] = []
        for number in reversed(self._numbers):
            try:
                await self._slurm.cancel(number)
            except RingleaderError as error:
                faults += [one for one in error.faults if one.what != UNKNOWN]
        if faults:
            raise RefusedError(faults)


def run_on_slurm(
    verb: str,
    job: Job,
    batches: Sequence[BatchOptions],
    follow: FollowOptions,
    outside: Collection[str] = (),
    inside: Mapping[str, str] = MappingProxyType({}),
) -> int:
    """Send the command line of ``ringleader VERB`` to Slurm and follow it; return the job's exit code.

    ``batches``: what each of the jobs asks for that run it one after the other; ``outside``: parameters that
    mean something here besides those of Slurm; ``inside``: options that are given there, by name. Raises
    RequestError.
    """
    spares = faults_of_spares(batches[0], spare=job.spare_hosts, np=job.np)
    refuse((*job.faults, *faults_of(batches[0], grace=job.grace), *spares))
    context = click.get_current_context()
    given = words_given(context, _OUTSIDE | set(outside))
    words, secret = without_secrets([*given, *(f"--{name}={value}" for name, value in inside.items())])
    refuse(faults_of_export(batches[0], secret, os.environ))
    configuration = context.find_object(Configuration)
    chosen = None if configuration is None else configuration.chosen
    python = (sys.executable, "-P", "-m", "ringleader", *([] if chosen is None else [f"--config={chosen}"]))
    command = (*python, verb, "--on", "slurm", *words, "--", *job.command)
    name = run_file.script_name(job.command)

    def script(batch: BatchOptions) -> tuple[str, tuple[str, ...]]:
        asked = sbatch_words(batch, name=name, np=most_ranks(job), grace=job.grace)
        return script_of(batch, command, asked, grace=job.grace), asked

    if follow.dry_run:
        for number, batch in enumerate(batches):
            sys.stdout.write(script(after(batch, f"JOB{number}" if number else ""))[0])
        return 0
    slurm = Slurm(os.environ)
    with result_to(follow.json) as result:
        terminal = job_terminal(name, quiet=follow.quiet, output_to_stderr=follow.json.json)
        work = _Submission(slurm, batches, script, secret)
        about = {"format": FORMAT, "ringleader": __version__}
        try:
            end = asyncio.run(attend(SlurmPlace(slurm, terminal), work, terminal, follow, name=name))
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
    """Return the number of ranks that all nodes must have room for; ``None``: the slots of each decide.

    With spare hosts these come from --ntasks-per-node: a node is spare with all its slots.
    """
    if job.spare_hosts:
        return None
    most = None if job.elastic is None else job.elastic.max_np
    return most or job.np

"""``run --report DIR``: the record of a run from its launch to its end, and the page of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click

from ringleader import __version__
from ringleader.agents.training_progress import cpu_model
from ringleader.cli.kept_words import kept_words
from ringleader.cli.run.terminal import Terminal
from ringleader.errors import RingleaderError
from ringleader.launch.job_record import JobRecord
from ringleader.launch.outcome import Outcome
from ringleader.measurements.recorded_job import Begun, Ended, JobRun
from ringleader.measurements.run_context import with_facts
from ringleader.measurements.trace_split import Split
from ringleader.plan.job import Job
from ringleader.scaling import Context, HostContext
from ringleader.text_files import write_text

PAGE = "index.html"
_OF_THIS_CALL = frozenset(("command", "report", "output", "output_dir", "json", "json_file", "dry_run"))


class Recording:
    """The record of one run. Nothing that fails here changes how the job ends."""

    def __init__(self, job: Job, directory: str, listener: Terminal) -> None:
        """Begin it. Raises RequestError, RefusedError where that cannot be."""
        self._listener = listener
        self._context = Context(
            command=job.command,
            date=datetime.now(UTC).isoformat(timespec="seconds"),
            hosts=tuple(HostContext(name=host.name) for host in job.hosts),
            ringleader=__version__,
            binding=job.bind,
            threads=job.threads,
        )
        self.record = JobRecord(directory, warn=listener.warning)
        begun = Begun(schema=JobRun.schema, context=self._context, again=_again(job))
        self.record.write("run", begun)
        listener.warning(f"recording this run; to watch it: ringleader report --serve {directory}")

    def failed(self, error: RingleaderError) -> None:
        """Note that the job came to no outcome."""
        self._end(exit_code=error.exit_code, reason=str(error), context=self._context)

    def ended(self, outcome: Outcome, split: Split | None = None) -> None:
        """Note how the job ended, and make the page. ``split``: where the steps went that were profiled."""
        context = with_facts(self._context, outcome, self._listener.contexts, cpu=cpu_model())
        code, reason = outcome.exit_code, outcome.reason
        self._end(exit_code=code, reason=reason, context=context, proof=outcome.proof, split=split)

    def _end(self, **values: Any) -> None:
        self.record.flush()
        self.record.write("end", Ended(at=self.record.now(), **values))
        self.record.close()
        page = self.record.path.with_name(PAGE)
        try:
            from ringleader.bench.run_file import read_any
            from ringleader.report.page import render

            write_text(page, render(read_any(self.record.path)))
        except Exception as error:  # a fault of ours costs the page, never the job's outcome
            why = str(error) if isinstance(error, RingleaderError | OSError) else repr(error)
            self._listener.warning(f"no page: {why}")
        else:
            self._listener.warning(f"report written to {page}")


def _again(job: Job) -> tuple[str, ...]:
    """Return the command line that runs the job again; empty where none of ours has."""
    context = click.get_current_context(silent=True)
    if context is None or context.command.name != "run":
        return ()
    return ("ringleader", "run", *kept_words(context, _OF_THIS_CALL), *job.command)

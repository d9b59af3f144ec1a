"""One job of our own whose ranks measure: ``python -m PROGRAM PLAN``, with the plan as JSON.

    finished = run(
        rank_program_job(job, "ringleader.bench.pair_program", plan, seconds=60.0),
        title="measuring pairs",
        environ=os.environ,
        progress=line.show,
        answered=answers.take,
    )

The ranks answer with ``launch.rank_answer.send``; ``answered`` hears of each answer as it comes. How a
job ended badly after its ranks have answered is in ``Finished.failure``, so that nothing measured is lost.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ringleader.dataclass_json import document
from ringleader.errors import RingleaderError, StoppedError
from ringleader.launch.launch_job import launch as launch_job
from ringleader.launch.outcome import Outcome
from ringleader.launch.rank_answer import JobListener
from ringleader.plan.job import Job, Placement

START_SECONDS = 120.0
"""What a job may take besides its measurements: starts on many hosts, imports from a slow file system."""
LAST_LINES = 6
"""Of a rank that failed: as long as Open MPI's words on a peer that it cannot reach."""


class Launcher(Protocol):
    """``ringleader.launch.launch_job.launch``, or a scripted one in tests."""

    def __call__(self, job: Job, *, environ: Mapping[str, str], listener: JobListener) -> Outcome:
        """Run the job to its end."""
        ...


@dataclass(frozen=True, kw_only=True)
class Finished:
    """A job of ours that has ended."""

    answers: Mapping[int, Mapping[str, Any]]
    """Rank → name → the last value that it sent with this name."""
    failure: str = ""
    """How it ended, where it did not end well: one line that names who failed."""
    outcome: Outcome | None = None
    """``None``: the launch failed after ranks had answered."""

    @property
    def failed_host(self) -> str:
        """The host of the rank that failed first; empty: none did."""
        first = None if self.outcome is None else self.outcome.first_failure
        return first.host if self.failure and first is not None else ""


def rank_program_job(job: Job, program: str, plan: object, *, seconds: float) -> Job:
    """Return the job whose ranks run our ``program`` (a module) and are given the plan, a dataclass.

    ``seconds``: what the plan may take at most; the job is stopped ``START_SECONDS`` after that.
    """
    python = job.interpreter(sys.executable)
    words = json.dumps(document(plan), separators=(",", ":"))
    return replace(
        job,
        command=(python, "-P", "-m", program, words),  # -P: no module out of the working directory
        timeout=seconds + START_SECONDS * job.patience,
        output_dir=None,
        uncoupled=False,
        require=(),
    )


def pair_job(job: Job, command: tuple[str, ...], first: str, second: str, *, seconds: float) -> Job:
    """Return a job that runs a command of others on two ranks, on a host or two of the job."""
    hosts = {host.name: host for host in job.hosts}
    names = dict.fromkeys((first, second))
    chosen = tuple(
        replace(hosts[name], slots=2 // len(names), max_slots=None) for name in names if name in hosts
    )
    return replace(
        job,
        command=command,
        hosts=chosen,
        np=2,
        oversubscribe=True,
        share_gpus=True,
        placement=Placement.SLOT,
        timeout=seconds + START_SECONDS * job.patience,
        output_dir=None,
        require=(),
    )


def on_each_host(job: Job, ranks: int) -> Job:
    """Return the job with ``ranks`` on each host, counted host by host, with one thread each."""
    return replace(
        job,
        hosts=tuple(replace(host, slots=ranks, max_slots=None) for host in job.hosts),
        np=ranks * max(1, len(job.hosts)),
        oversubscribe=True,
        share_gpus=True,
        all_gpus=ranks == 1,
        placement=Placement.SLOT,
        threads=1,
        bind="none" if ranks == 1 else job.bind,
    )


def run(
    job: Job,
    *,
    title: str,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    answered: Callable[[int, str, Any], None] = lambda rank, name, value: None,
    heard: Callable[[], bool] | None = None,
    printed: Callable[[int, str, str], None] = lambda rank, stream, line: None,
    launch: Launcher = launch_job,
) -> Finished:
    """Run a job of ours to its end; what its ranks answered is kept, also where it ends badly.

    ``title`` stands before what is shown of the start, and before a failure. ``heard`` returns whether
    something was measured that a failure of the launch must not lose; ``None``: whether a rank has answered.
    ``printed`` hears of each line that a rank prints, with its stream.
    Raises what ``launch`` raises where nothing was, and StoppedError for a signal.
    """
    listener = JobListener(
        progress=lambda text: progress(f"{title}: {text}" if text else title),
        answered=answered,
        printed=printed,
    )
    try:
        outcome = launch(job, environ=environ, listener=listener)
    except StoppedError:
        raise
    except RingleaderError as error:
        if not (listener.answers if heard is None else heard()):
            raise
        why = error.faults[0].what if error.faults else str(error)
        return Finished(answers=listener.answers, failure=f"{title}: {why}")
    if outcome.whose == "ringleader" and outcome.exit_code > 128:
        raise StoppedError(outcome.exit_code - 128, "the measurement had ended")
    failure = ""
    if outcome.exit_code:
        said = listener.tail(outcome.first_failure.rank) if outcome.first_failure else ()
        why = outcome.reason or f"{outcome.whose} ended with {outcome.exit_code}"
        failure = f"{title}: {'; '.join([why, *last_words(said)])}"
    return Finished(answers=listener.answers, failure=failure, outcome=outcome)


def last_words(lines: Iterable[str]) -> list[str]:
    """Return the last lines of a rank that say something: an MPI's message stands between rules."""
    told = [line.strip() for line in lines if re.search(r"\w", line)]
    return told[-LAST_LINES:]

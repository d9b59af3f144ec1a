"""What an elastic job went through, in sentences and a table of its events. Pure."""

from __future__ import annotations

import shlex
from dataclasses import asdict

from ringleader.launch.elastic_history import Event
from ringleader.measurements.elastic import ElasticRun
from ringleader.report.context_facts import context_facts
from ringleader.report.number_format import plural, seconds
from ringleader.report.run_summary import NONE, RunSummary, Table


def summary(run: ElasticRun) -> RunSummary:
    """Put a job into words and a table."""
    lost = sum(event.seconds for event in resets(run))
    return RunSummary(
        name=run.name,
        kind="Elastic job",
        headline=_headline(run, lost),
        tiles=(
            (str(run.generations), "generations"),
            (str(run.ranks_started), "ranks started"),
            (seconds(lost), "without training"),
        ),
        tables=(_events(run),),
        facts=(("Command", shlex.join(run.context.command)), *context_facts(run.context)),
    )


def results(run: ElasticRun) -> list[dict[str, object]]:
    """Return the resets, as JSON values: what the job recovered from, and how."""
    return [asdict(event) for event in resets(run)]


def resets(run: ElasticRun) -> list[Event]:
    """Return the events by which ranks went on in another generation."""
    return [event for event in run.events if event.kind == "generation" and event.generation > 1]


def _headline(run: ElasticRun, lost: float) -> str:
    ended = "ended well" if run.exit_code == 0 else f"failed with exit code {run.exit_code} ({run.reason})"
    count = len(resets(run))
    if not count:
        return f"The job {ended} after {seconds(run.seconds)}; its ranks never changed."
    times = "once" if count == 1 else f"{count} times"
    return (
        f"The job {ended} after {seconds(run.seconds)}; it went on with other ranks {times}, and "
        f"did not train for {seconds(lost)} meanwhile."
    )


def _events(run: ElasticRun) -> Table:
    return Table(
        key="events",
        title="What happened",
        names=("at", "what", "who", "why", "without training", "from commit"),
        rows=tuple(_row(event) for event in run.events),
        note="Seconds from the start of the job. Steps since the commit were made again.",
        is_prose=True,
    )


def _row(event: Event) -> tuple[str, ...]:
    what = event.kind.replace("_", " ")
    if event.kind == "generation":
        what = f"generation {event.generation}, {plural(event.size, 'rank')}"
    again = event.kind == "generation" and event.generation > 1
    origin = (str(event.commit) if event.commit else "the beginning") if again else NONE
    return (
        f"{event.at:.2f} s",
        what,
        event.who,
        event.why or NONE,
        seconds(event.seconds) if again else NONE,
        origin,
    )

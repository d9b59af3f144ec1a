"""What an elastic job went through, in a sentence and a table of its events. Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from ringleader.launch.elastic_history import Event
from ringleader.measurements.elastic import ElasticRun
from ringleader.number_format import NONE, plural, seconds
from ringleader.report.summary import Summary, facts, run_document, table_of


def summary(run: ElasticRun) -> Summary:
    """Put a job into words and a table."""
    again = _resets(run)
    lost = seconds(sum(event.seconds for event in again))
    ended = "ended well" if run.exit_code == 0 else f"failed with exit code {run.exit_code} ({run.reason})"
    headline = f"The job {ended} after {seconds(run.seconds)}; "
    if again:
        often = "once" if len(again) == 1 else f"{len(again)} times"
        headline += f"it continued with other ranks {often}, and did not train for {lost} meanwhile."
    else:
        headline += "its ranks never changed."
    events = table_of(
        "events",
        "What happened",
        run.events,
        (
            ("at", lambda event: f"{event.at:.2f} s"),
            (
                "what",
                lambda event: (
                    f"generation {event.generation}, {plural(event.size, 'rank')}"
                    if event.kind == "generation"
                    else event.kind.replace("_", " ")
                ),
            ),
            ("who", lambda event: event.who),
            ("why", lambda event: event.why or NONE),
            ("without training", lambda event: seconds(event.seconds) if event in again else NONE),
            ("from commit", lambda event: str(event.commit or "the beginning") if event in again else NONE),
        ),
        note="Seconds from the start of the job. Steps since the commit were made again.",
        keep=6,
        is_prose=True,
    )
    return Summary(
        name=run.name,
        kind="Elastic job",
        headline=headline,
        tiles=(
            (str(run.generations), "generations"),
            (str(run.ranks_started), "ranks started"),
            (lost, "without training"),
        ),
        tables=(events,),
        facts=facts(run.context),
    )


def document(run: ElasticRun) -> dict[str, Any]:
    """Return the resets, as JSON values: what the job recovered from, and how."""
    return run_document(run, summary(run), [asdict(event) for event in _resets(run)])


def _resets(run: ElasticRun) -> list[Event]:
    """Return the events by which ranks continued in another generation."""
    return [event for event in run.events if event.kind == "generation" and event.generation > 1]

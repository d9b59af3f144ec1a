"""What an elastic job went through, in a sentence and a table of its events. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ringleader.launch.elastic_history import Event
from ringleader.measurements.elastic import ElasticRun
from ringleader.report.number_format import NONE, plural, seconds
from ringleader.report.summary import Summary, Table, facts, run_document, table_of


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
    return Summary(
        name=run.name,
        kind="Elastic job",
        headline=headline,
        tiles=(
            (str(run.generations), "generations"),
            (str(run.ranks_started), "ranks started"),
            (lost, "without training"),
        ),
        tables=(events_table(run.events),),
        facts=facts(run.context),
    )


def events_table(events: Sequence[Event]) -> Table:
    """Return the events of a job, elastic or not."""

    def is_reset(event: Event) -> bool:
        return event.kind == "generation" and event.generation > 1

    return table_of(
        "events",
        "What happened",
        events,
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
            ("without training", lambda event: seconds(event.seconds) if is_reset(event) else NONE),
            ("from commit", lambda event: str(event.commit or "the beginning") if is_reset(event) else NONE),
        ),
        note="Seconds from the start of the job."
        + (" Steps since the commit were made again." if any(map(is_reset, events)) else ""),
        keep=4,
        is_prose=True,
    )


def document(run: ElasticRun) -> dict[str, Any]:
    """Return the resets, as JSON values: what the job recovered from, and how."""
    return run_document(run, summary(run), [asdict(event) for event in _resets(run)])


def _resets(run: ElasticRun) -> list[Event]:
    """Return the events by which ranks continued in another generation."""
    return [event for event in run.events if event.kind == "generation" and event.generation > 1]

"""``ringleader hosts``: the hosts of a running elastic job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from ringleader.cli.typed_command import Command
from ringleader.errors import RefusedError
from ringleader.option_fields import argument

ANSWER_SECONDS = 90.0
"""Two runs of a discovery script that take as long as they may, and what comes between."""


@click.group(name="hosts")
def command() -> None:
    """The hosts of a running elastic job."""


@dataclass(frozen=True, kw_only=True)
class RefreshOptions:
    """The options, as they were written."""

    job: str | None = argument("[JOB]", default=None)


def refresh(options: RefreshOptions) -> None:
    """Have the job look, and print what it found."""
    from ringleader.launch.elastic.running_jobs import ask, chosen_job, running_jobs

    job = chosen_job(running_jobs(), options.job)
    try:
        answer = ask(job.path, "refresh", seconds=ANSWER_SECONDS)
    except TimeoutError:
        raise RefusedError(f"did not answer within {ANSWER_SECONDS:g} s", where=f"job {job.job}") from None
    except OSError as error:
        raise RefusedError(f"cannot be asked: {error}", where=f"job {job.job}") from None
    if answer["trouble"]:
        what = f"{answer['trouble']}\n    what it said last still counts: {hosts_text(answer)}"
        raise RefusedError(what, where=f"job {job.job}")
    print(f"job {job.job}: {answer_text(answer)}")


def answer_text(answer: Mapping[str, Any]) -> str:
    """Return a job's answer as a line."""
    out = answer["excluded"]
    stays = f"; out after a failure: {', '.join(out)}" if out else ""
    change = answer["change"] or "nothing has changed"
    return f"{answer['source']} names {hosts_text(answer)} ({change}){stays}"


def hosts_text(answer: Mapping[str, Any]) -> str:
    """Return the hosts with their slots; no slots: as many as the host has cores."""
    names = [f"{name}:{slots}" if slots else str(name) for name, slots in answer["hosts"]]
    return ", ".join(names) or "no host"


command.add_command(
    Command(
        "refresh",
        options=RefreshOptions,
        run=refresh,
        help="""Have a running elastic job look at its hosts now, and print what it found.

        Run it on the machine where the job was started, as the same user. JOB, its name or how that begins,
        is needed where several run; they are listed then. Exit code 3: none runs, or its source of hosts
        does not answer.
        """,
    )
)

"""The outcome of a job for programs: what ``ringleader run --json`` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringleader import __version__

if TYPE_CHECKING:
    from ringleader.errors import RingleaderError
    from ringleader.job import Job
    from ringleader.launch.elastic_history import ElasticHistory
    from ringleader.launch.outcome import Outcome, RankEnd

FORMAT = 1
"""Grows when a reader must change."""


def outcome_json(outcome: Outcome, job: Job) -> dict[str, Any]:
    """Return the outcome as JSON values. Seconds are seconds; ``null`` is what does not apply."""
    from ringleader.fabric.facts import document  # once the job has ended, as it takes its time

    plan = outcome.plan
    failure = outcome.first_failure
    return {
        "format": FORMAT,
        "ringleader": __version__,
        "command": list(job.command),
        "exit_code": outcome.exit_code,
        "whose": outcome.whose,
        "reason": outcome.reason,
        "seconds": outcome.seconds,
        "mpi": {"family": outcome.mpi.family, "version": outcome.mpi.version, "mpirun": outcome.mpi.mpirun},
        "hosts": [
            {"name": facts.host.name, "hostname": facts.hostname, "ranks": count}
            for facts, count in zip(plan.hosts, plan.counts(), strict=True)
        ],
        "plan": [
            {
                "rank": place.rank,
                "host": plan.hosts[place.host_index].host.name,
                "local_rank": place.local_rank,
                "cpus": list(place.cpus),
                "threads": place.threads,
                "gpu": place.gpu,
            }
            for place in plan.ranks
        ],
        "ranks": [_end(end) for end in outcome.ends],
        "restarts": [vars(restart) for restart in outcome.restarts],
        "first_failure": None if failure is None else _end(failure),
        **({} if outcome.elastic is None else {"elastic": _history(outcome.elastic)}),
        "consistency": [{k: v for k, v in one.items() if k != "kind"} for one in outcome.differences],
        "proof": None if outcome.proof is None else document(outcome.proof),
    }


def error_json(error: RingleaderError, command: tuple[str, ...]) -> dict[str, Any]:
    """Return what is said of a job that did not come to an outcome."""
    return {
        "format": FORMAT,
        "ringleader": __version__,
        "command": list(command),
        "exit_code": error.exit_code,
        "whose": "ringleader",
        "reason": str(error),
        "faults": [{"where": f.where, "what": f.what, "hint": f.hint} for f in error.faults],
    }


def _history(history: ElasticHistory) -> dict[str, Any]:
    from ringleader.launch.elastic_history import event_json

    return {
        "generations": history.generations,
        "worlds": history.worlds,
        "ranks_started": history.ranks_started,
        "events": [event_json(event) for event in history.events],
    }


def _end(end: RankEnd) -> dict[str, Any]:
    return {
        "rank": end.rank,
        "host": end.host,
        "exit_code": end.exit_code,
        "signal": end.signal,
        "seconds": end.seconds,
        "at": end.at,
        "stopped": end.stopped,
        "reason": end.reason,
        "log": end.log,
    }

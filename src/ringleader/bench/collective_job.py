"""One job that measures a collective operation: starts it, and turns what its ranks answer into a run.

run = measure(job, plan, CollectiveRun(...), environ=os.environ, progress=line.show, keep=write)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringleader.bench.collective_plan import CollectivePlan, cases
from ringleader.bench.measurement_job import Finished, Launcher, rank_program_job, run
from ringleader.dataclass_json import from_document
from ringleader.errors import RefusedError, StoppedError
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.check_result import listed
from ringleader.fabric.port_selection import line_rate
from ringleader.launch.launch_job import launch as launch_job
from ringleader.launch.outcome import Outcome
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    RankProcess,
    WrongResult,
)
from ringleader.measurements.run_context import with_facts
from ringleader.plan.job import Job

PROGRAM = "ringleader.bench.collective_program"


class CollectiveAnswers:
    """What the ranks have answered so far, as a run."""

    def __init__(self, empty: CollectiveRun, implementations: Sequence[str]) -> None:
        """``empty``: the run before the first result."""
        self._results: dict[str, list[CollectiveResult]] = {name: [] for name in implementations}
        self._notes: dict[str, dict[str, None]] = {name: {} for name in implementations}
        self._wrong: list[WrongResult] = []
        self._empty = empty
        self.of_ranks: dict[str, dict[int, Mapping[str, Any]]] = {"place": {}, "stuck": {}, "refused": {}}
        """``place``, ``stuck`` or ``refused`` → rank → what it said."""

    def take(self, rank: int, name: str, value: Any) -> bool:
        """Take an answer; tell whether it is a result."""
        if name in self.of_ranks:
            self.of_ranks[name][rank] = value
        elif name == "note":
            self._notes[value["implementation"]][value["what"]] = None
        elif name == "result":
            for implementation, own in value["series"].items():
                self._results[implementation].append(from_document(CollectiveResult, own))
            self._wrong += [from_document(WrongResult, one) for one in value["wrong"]]
        return name == "result"

    def run(self, failure: str = "") -> CollectiveRun:
        """Return everything so far."""
        return replace(
            self._empty,
            series=tuple(
                CollectiveSeries(implementation=name, results=tuple(found), note="; ".join(self._notes[name]))
                for name, found in self._results.items()
            ),
            processes=tuple(
                RankProcess(rank=rank, host=said["hostname"], pid=said["pid"], device=said["device"])
                for rank, said in sorted(self.of_ranks["place"].items())
            ),
            wrong_results=tuple(self._wrong),
            failure=failure,
        )


def most_seconds(plan: CollectivePlan, ranks: int) -> float:
    """Return what everything may take before the job is stopped; each step has its own deadline."""
    arms = len(plan.implementations) * len(plan.places)
    steps = sum(
        2 * plan.seconds + plan.deadline(size, plan.checks + 2) for size, _count in cases(plan, ranks)
    )
    return 300.0 + arms * steps


def measure(
    job: Job,
    plan: CollectivePlan,
    empty: CollectiveRun,
    *,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    keep: Callable[[CollectiveRun], object],
    link: float | None = None,
    launch: Launcher = launch_job,
) -> CollectiveRun:
    """Run the job and return what it measured; ``keep`` is given the run after each size.

    ``empty``: the run before the first result; its context has only what is not the job's.
    ``link``: bits per second of each host's only link, where that is known.

    Raises what the launcher raises where nothing was measured, and RefusedError where ranks cannot. A job
    that ends badly later is reported in ``CollectiveRun.failure``.
    """
    ranks = empty.ranks
    answers, total, done = CollectiveAnswers(empty, plan.implementations), len(cases(plan, ranks)), 0

    def answered(rank: int, word: str, value: Any) -> None:
        nonlocal done
        if answers.take(rank, word, value):
            done += 1
            progress(f"{plan.operation}: {done} of {total} sizes, {byte_size(value['size'])}")
            keep(answers.run())

    try:
        finished = run(
            rank_program_job(job, PROGRAM, plan, seconds=most_seconds(plan, ranks)),
            title=f"measuring {plan.operation}",
            environ=environ,
            progress=progress,
            answered=answered,
            heard=lambda: bool(done),
            launch=launch,
        )
    except StoppedError as error:
        if done:
            keep(answers.run(error.faults[0].what))
        raise
    if refused := answers.of_ranks["refused"]:
        rank = min(refused)
        where = f"rank {rank}{_host_of(rank, finished)}"
        raise RefusedError(refused[rank]["what"], where=where, hint=refused[rank]["hint"])
    measured = answers.run(_stuck_words(answers.of_ranks["stuck"], ranks, finished) or finished.failure)
    if (outcome := finished.outcome) is not None:
        names = [facts.host.name for facts in outcome.plan.hosts]
        measured = replace(
            measured,
            context=with_facts(empty.context, outcome, answers.of_ranks["place"]),
            per_host=per_host(outcome),
            line_rate=line_rate(names, outcome.devices, link=link),
        )
    keep(measured)
    return measured


def per_host(outcome: Outcome) -> int:
    """Return the ranks of each host; 0: not the same on all."""
    counts = {len(outcome.plan.on_host(index)) for index in range(len(outcome.plan.hosts))} - {0}
    return counts.pop() if len(counts) == 1 else 0


def _host_of(rank: int, finished: Finished) -> str:
    outcome = finished.outcome
    if outcome is None or len(outcome.plan.hosts) < 2:
        return ""
    for index, facts in enumerate(outcome.plan.hosts):
        if any(place.rank == rank for place in outcome.plan.on_host(index)):
            return f" on {facts.host.name}"
    return ""


def _stuck_words(stuck: Mapping[int, Mapping[str, Any]], ranks: int, finished: Finished) -> str:
    """Return who was waited for, and in what, where ranks gave up; else nothing."""
    if not stuck:
        return ""
    furthest = max(stuck.values(), key=lambda one: int(one["step"]))
    behind = [rank for rank in range(ranks) if rank not in stuck or stuck[rank]["step"] < furthest["step"]]
    who = listed((f"rank {rank}{_host_of(rank, finished)}" for rank in behind), 8)
    late = f"; not there: {who}" if behind else ""
    return f"{furthest['what']}: not done after {furthest['seconds']:.0f} s{late}"

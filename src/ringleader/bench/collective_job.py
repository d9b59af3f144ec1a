"""One job that measures a collective operation: starts it, and turns what its ranks answer into a run.

run = measure(job, plan, context, name="allreduce", environ=os.environ, progress=line.show, keep=write)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ringleader.bench.collective_plan import CollectivePlan, cases
from ringleader.bench.measurement_job import Finished, Launcher, rank_program_job, run
from ringleader.errors import RefusedError, StoppedError
from ringleader.fabric.byte_size import byte_size
from ringleader.fabric.port_selection import line_rate
from ringleader.launch.launch_job import launch as launch_job
from ringleader.launch.outcome import Outcome
from ringleader.measurements.collective import (
    CollectiveResult,
    CollectiveRun,
    CollectiveSeries,
    RankProcess,
    Sweep,
    Timing,
    WrongResult,
)
from ringleader.measurements.run_context import with_facts
from ringleader.plan.job import Job
from ringleader.scaling import Context

PROGRAM = "ringleader.bench.collective_program"


class CollectiveAnswers:
    """What the ranks have answered so far, as a run."""

    def __init__(self, empty: CollectiveRun, plan: CollectivePlan) -> None:
        """``empty``: the run before the first result."""
        self._plan = plan
        self._results: dict[str, list[CollectiveResult]] = {name: [] for name in plan.implementations}
        self._notes: dict[str, list[str]] = {name: [] for name in plan.implementations}
        self._wrong: list[WrongResult] = []
        self._empty = empty
        self.places: dict[int, Mapping[str, Any]] = {}
        self.stuck: dict[int, Mapping[str, Any]] = {}
        self.refused: dict[int, Mapping[str, str]] = {}

    def take(self, rank: int, name: str, value: Any) -> bool:
        """Take an answer; tell whether it is a result."""
        if name == "place":
            self.places[rank] = value
        elif name == "stuck":
            self.stuck[rank] = value
        elif name == "refused":
            self.refused[rank] = value
        elif name == "note" and value["what"] not in self._notes[value["implementation"]]:
            self._notes[value["implementation"]].append(value["what"])
        elif name == "result":
            for implementation, own in value["series"].items():
                self._results[implementation].append(_result(value, own))
            self._wrong += [WrongResult(**one) for one in value["wrong"]]
        return name == "result"

    def run(self, failure: str = "") -> CollectiveRun:
        """Return everything so far."""
        series = tuple(
            CollectiveSeries(
                implementation=name,
                results=tuple(self._results[name]),
                note="; ".join(self._notes[name]),
            )
            for name in self._plan.implementations
        )
        processes = tuple(
            RankProcess(rank=rank, host=said["hostname"], pid=said["pid"], device=said["device"])
            for rank, said in sorted(self.places.items())
        )
        return replace(
            self._empty,
            series=series,
            processes=processes,
            wrong_results=tuple(self._wrong),
            failure=failure,
        )


def _result(told: Mapping[str, Any], own: Mapping[str, Any]) -> CollectiveResult:
    places = {place: Timing(**own[place]) for place in ("out_of_place", "in_place") if place in own}
    return CollectiveResult(size=told["size"], count=told["count"], iterations=own["iterations"], **places)


def most_seconds(plan: CollectivePlan, ranks: int) -> float:
    """Return what everything may take before the job is stopped; each step has a deadline of its own."""
    arms = len(plan.implementations) * len(plan.places)
    steps = sum(
        2 * plan.seconds + plan.deadline(size, plan.checks + 2) for size, _count in cases(plan, ranks)
    )
    return 300.0 + arms * steps


def sweep_of(plan: CollectivePlan, *, maximum: int, factor: int, step: int) -> Sweep:
    """Return the plan as nccl-tests' header tells it; ``maximum``: bytes, as asked for."""
    return Sweep(
        minimum=min(plan.sizes),
        maximum=maximum,
        step_factor=factor,
        step_bytes=step,
        warmup=plan.warmup,
        iterations=plan.iterations,
        checks=plan.checks,
    )


def measure(
    job: Job,
    plan: CollectivePlan,
    context: Context,
    *,
    name: str,
    sweep: Sweep,
    environ: Mapping[str, str],
    progress: Callable[[str], None],
    keep: Callable[[CollectiveRun], object],
    link: float | None = None,
    launch: Launcher = launch_job,
) -> CollectiveRun:
    """Run the job and return what it measured; ``keep`` is given the run after each size.

    ``link``: bits per second of each host's only link, where that is known.

    Raises what the launcher raises where nothing was measured, and RefusedError where ranks cannot. A job
    that ends badly later is told in ``CollectiveRun.failure``.
    """
    ranks = job.np or 0
    total = len(cases(plan, ranks))
    answers, done = CollectiveAnswers(_empty(job, plan, context, name, sweep), plan), 0

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
    if answers.refused:
        raise _refusal(answers.refused, finished)
    failure = _stuck_words(answers.stuck, ranks, finished) or finished.failure
    measured = answers.run(failure)
    if finished.outcome is not None:
        outcome = finished.outcome
        measured = replace(
            measured,
            context=with_facts(context, outcome, answers.places),
            per_host=per_host(outcome),
            line_rate=line_rate(
                [facts.host.name for facts in outcome.plan.hosts], outcome.devices, link=link
            ),
        )
    keep(measured)
    return measured


def _empty(job: Job, plan: CollectivePlan, context: Context, name: str, sweep: Sweep) -> CollectiveRun:
    """Return the run before the first result."""
    ranks = job.np or 0
    return CollectiveRun(
        name=name,
        context=context,
        operation=plan.operation,
        ranks=ranks,
        per_host=0 if job.hosts else ranks,
        dtype=plan.dtype,
        redop=plan.redop,
        root=plan.root,
        memory=plan.memory,
        sweep=sweep,
    )


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


def _refusal(refused: Mapping[int, Mapping[str, str]], finished: Finished) -> RefusedError:
    rank = min(refused)
    where = f"rank {rank}{_host_of(rank, finished)}"
    return RefusedError(refused[rank]["what"], where=where, hint=refused[rank]["hint"])


def _stuck_words(stuck: Mapping[int, Mapping[str, Any]], ranks: int, finished: Finished) -> str:
    """Return who was waited for, and in what, where ranks gave up; else nothing."""
    if not stuck:
        return ""
    furthest = max(stuck.values(), key=lambda one: int(one["step"]))
    behind = [rank for rank in range(ranks) if rank not in stuck or stuck[rank]["step"] < furthest["step"]]
    who = ", ".join(f"rank {rank}{_host_of(rank, finished)}" for rank in behind[:8])
    more = f" and {len(behind) - 8} more" if len(behind) > 8 else ""
    late = f"; not there: {who}{more}" if behind else ""
    return f"{furthest['what']}: not done after {furthest['seconds']:.0f} s{late}"

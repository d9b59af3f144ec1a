"""Measures latency and rates between pairs of ranks: ``ringleader bench p2p``.

    run = measure(asked, job=job, environ=os.environ, context=context, progress=line.show, keep=keep)

One job; its ranks run ``pair_program``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringleader.bench import measurement_job
from ringleader.bench.measurement_job import Finished, Launcher, measuring
from ringleader.bench.pair_answers import PairAnswers
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.pair_rounds import Round, rank_rounds
from ringleader.errors import Fault, RefusedError
from ringleader.job import Job
from ringleader.launch.launch_job import launch as launch_job
from ringleader.measurements.point_to_point import Place, PointToPointRun, names_of
from ringleader.measurements.run_context import with_facts
from ringleader.scaling import Context

PROGRAM = "ringleader.bench.pair_program"
MEASURED = 0.9
"""Part of the time that is shared out; the rest is for meeting and for steps that took longer."""


@dataclass(frozen=True, kw_only=True)
class PairRequest:
    """What was asked for."""

    name: str
    job: Job
    """Its hosts, number of ranks and MPI count; its command does not."""
    ranks: tuple[int, ...]
    """Those that measure, ascending; at least two."""
    hosts: tuple[str, ...]
    """Host of each of them, as far as that is known before the start; else empty."""
    sizes: tuple[int, ...]
    window: int
    both_ways: bool
    seconds: float
    """For all pairs together, the job's start aside."""
    memory: str = "host"


def plan_of(asked: PairRequest) -> PairPlan:
    """Return what the ranks are told."""
    numbers = {host: number for number, host in enumerate(dict.fromkeys(asked.hosts))}
    # Where nobody knows which ranks share a host, no two pairs measure at once.
    hosts = [numbers[host] for host in asked.hosts] or [0] * len(asked.ranks)
    rounds: tuple[Round, ...] = rank_rounds(hosts)
    return PairPlan(
        rounds=tuple(tuple((asked.ranks[a], asked.ranks[b]) for a, b in one) for one in rounds),
        sizes=asked.sizes,
        window=asked.window,
        both_ways=asked.both_ways,
        pair_seconds=MEASURED * asked.seconds / max(1, len(rounds)),
        one_at_a_time=len(set(hosts)) < len(hosts),
        memory=asked.memory,
    )


def job_of(asked: PairRequest) -> Job:
    """Return the job that measures."""
    plan = plan_of(asked)
    return measuring(asked.job, PROGRAM, plan, seconds=plan.most_seconds)


def measure(
    asked: PairRequest,
    *,
    environ: Mapping[str, str],
    context: Context,
    progress: Callable[[str], None],
    keep: Callable[[PointToPointRun], None],
    launch: Launcher = launch_job,
) -> PointToPointRun:
    """Measure, and return what came of it; a job that ended badly is told in ``failure``.

    ``keep`` is given what there is when a round begins, and in the end. Raises what ``launch`` raises where
    nothing was measured, StoppedError for a signal, and RefusedError where ranks cannot measure as asked.
    """
    answers = PairAnswers(asked.ranks)
    rounds = len(plan_of(asked).rounds)
    furthest = 0

    def answered(rank: int, name: str, value: Any) -> None:
        nonlocal furthest
        if name == "turn" and isinstance(value, int) and value > furthest:
            furthest = value
            progress(f"measuring pairs: round {value} of {rounds}")
            if answers.transfers:
                keep(_run(asked, context, answers, None))
        answers.take(rank, name, value)

    finished = measurement_job.run(
        job_of(asked),
        title="measuring pairs",
        environ=environ,
        progress=progress,
        answered=answered,
        heard=lambda: bool(answers.transfers or answers.silences),
        launch=launch,
    )
    if answers.refusals and not answers.transfers:
        raise RefusedError(_refusals(asked, answers, finished))
    run = _run(asked, context, answers, finished)
    keep(run)
    return run


def _refusals(asked: PairRequest, answers: PairAnswers, finished: Finished) -> list[Fault]:
    """Each reason once, with the ranks that gave it."""
    reasons: dict[str, list[int]] = {}
    for rank, why in sorted(answers.refusals.items()):
        reasons.setdefault(why, []).append(rank)
    places = _places(asked, answers, finished)
    names = {place.rank: name for place, name in zip(places, names_of(places), strict=True)}
    return [
        Fault(where=", ".join(names.get(rank, f"rank {rank}") for rank in ranks), what=why)
        for why, ranks in reasons.items()
    ]


def _run(
    asked: PairRequest, context: Context, answers: PairAnswers, finished: Finished | None
) -> PointToPointRun:
    places = _places(asked, answers, finished)
    outcome = finished.outcome if finished is not None else None
    if outcome is not None and finished is not None:
        told = {rank: own["context"] for rank, own in finished.answers.items() if "context" in own}
        context = with_facts(context, outcome, told)
    return PointToPointRun(
        name=asked.name,
        context=context,
        places=places,
        transfers=tuple(answers.transfers),
        memory=asked.memory,
        window=asked.window,
        silences=tuple(answers.silences),
        notes=answers.notes(names_of(places)),
        transport=outcome.proof if outcome is not None else None,
        failure=finished.failure if finished is not None else "",
    )


def _places(asked: PairRequest, answers: PairAnswers, finished: Finished | None) -> tuple[Place, ...]:
    hosts: Sequence[str] = asked.hosts
    if finished is not None and finished.outcome is not None:
        plan = finished.outcome.plan
        names = {place.rank: plan.hosts[place.host_index].host.name for place in plan.ranks}
        hosts = [names.get(rank, "") for rank in asked.ranks]
    hosts = hosts or [""] * len(asked.ranks)
    return tuple(
        Place(rank=rank, host=host or "?", device=answers.devices.get(rank, ""))
        for rank, host in zip(asked.ranks, hosts, strict=True)
    )

"""Measures latency and rates between pairs of ranks: ``ringleader bench p2p``, and ``doctor --active`` by it.

    run = measure(asked, environ=os.environ, context=context, progress=line.show, keep=keep)

One job, whose ranks run ``pair_program``; of OSU's programs one job for each pair.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ringleader.bench import measurement_job
from ringleader.bench.measurement_job import Finished, Launcher, pair_job, rank_program_job
from ringleader.bench.pair_answers import PairAnswers, ProgramError
from ringleader.bench.pair_plan import PairPlan, ProgramRun
from ringleader.bench.pair_rounds import Round, rank_rounds
from ringleader.bench.program_commands import OSU, osu_command, runs_of
from ringleader.errors import Fault, RefusedError, RequestError, StoppedError
from ringleader.launch.host_probe.probe import probe
from ringleader.launch.launch_job import launch as launch_job
from ringleader.measurements.point_to_point import Place, PointToPointRun, names_of
from ringleader.measurements.run_context import with_facts
from ringleader.plan.job import Job
from ringleader.plan.rank_placement import HostFacts
from ringleader.scaling import Context

PROGRAM = "ringleader.bench.pair_program"
LEAST_RUN_SECONDS = 10.0
"""That a program of others is given to measure."""
MEASURED = 0.9
"""Part of the time that is shared out; the rest is for meeting and for steps that took longer."""


Printed = Callable[[int, str, str], None]
"""Hears of a line: its rank, ``stdout`` or ``stderr``, the text."""
FindAddresses = Callable[[Job, Mapping[str, str], Callable[[str], None]], Mapping[str, str]]
"""Returns the address of each host by its name."""


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
    window: int = 64
    both_ways: bool = False
    seconds: float
    """For all pairs together, the job's start aside."""
    memory: str = "host"
    program: str = "mpi"
    """``mpi``: messages of our own; else one of ``program_commands.PROGRAMS``."""
    path: str = ""
    """Of that program, as it was given; empty: its name."""
    port: str = ""
    """RDMA port that perftest and ucx_perftest use; empty: the first usable one."""
    ports: tuple[tuple[str, ...], ...] = ()
    """Of each of the ranks the RDMA port of each rail, by name; empty: ranks count their own."""
    rounds: tuple[Round, ...] | None = None
    """Who measures with whom, by index in ``ranks``; ``None``: all pairs, of many ranks some."""
    runs: tuple[ProgramRun, ...] | None = None
    """Of perftest or ucx_perftest; ``None``: what the program, the sizes and ``both_ways`` say."""
    limit: float = math.inf
    """Seconds after which the job is stopped, its start included, whatever ``seconds`` and ``runs`` allow."""
    title: str = "measuring pairs"
    """What is shown while it lasts, and before a failure."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What came of it."""

    run: PointToPointRun
    errors: tuple[ProgramError, ...] = ()
    """Programs that measured nothing between two places; ``run.notes`` has them in words."""
    mpi: str = ""
    """``Open MPI 5.0.11``."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Of hosts by name, as other hosts reach them; empty: the job did not start."""
    failed_host: str = ""
    """Whose rank ``run.failure`` is about."""


def probed_addresses(job: Job, environ: Mapping[str, str], progress: Callable[[str], None]) -> dict[str, str]:
    """Return the address of each host as other hosts reach it, by name."""
    if not job.hosts:
        return {"localhost": "127.0.0.1"}
    found = probe(job, environ=environ, progress=progress)
    if found.ssh is not None:
        found.ssh.close()
    return _addresses(found.facts)


def _addresses(hosts: Iterable[HostFacts]) -> dict[str, str]:
    return {one.host.name: (*one.addresses, one.host.name)[0] for one in hosts}


def plan_of(asked: PairRequest, addresses: Mapping[str, str] | None = None) -> PairPlan:
    """Return what the ranks do; ``addresses``: of hosts by name, for programs of others."""
    numbers = {host: number for number, host in enumerate(dict.fromkeys(asked.hosts))}
    # Where nobody knows which ranks share a host, no two pairs measure at once.
    hosts = [numbers[host] for host in asked.hosts] or [0] * len(asked.ranks)
    rounds = rank_rounds(hosts) if asked.rounds is None else asked.rounds
    plan = PairPlan(
        rounds=tuple(tuple((asked.ranks[a], asked.ranks[b]) for a, b in one) for one in rounds),
        sizes=asked.sizes,
        window=asked.window,
        both_ways=asked.both_ways,
        pair_seconds=MEASURED * asked.seconds / max(1, len(rounds)),
        one_at_a_time=len(set(hosts)) < len(hosts),
        memory=asked.memory,
    )
    if asked.program in ("mpi", *OSU):
        return plan
    runs = (
        runs_of(asked.program, asked.sizes, both_ways=asked.both_ways) if asked.runs is None else asked.runs
    )
    names = asked.hosts or ("",) * len(asked.ranks)
    known = addresses or {}
    return replace(
        plan,
        one_at_a_time=False,
        runs=runs,
        path=asked.path,
        port=asked.port,
        ports=tuple((str(rank), *names) for rank, names in zip(asked.ranks, asked.ports, strict=False)),
        addresses=tuple(
            (str(rank), known.get(host, host)) for rank, host in zip(asked.ranks, names, strict=True)
        ),
        run_seconds=max(LEAST_RUN_SECONDS, asked.seconds),
        patience=asked.job.patience,
    )


def job_of(asked: PairRequest, addresses: Mapping[str, str] | None = None) -> Job:
    """Return the job that measures, of OSU's programs that of the first pair."""
    if asked.program in OSU:
        return _osu_job(asked, 0, 1)
    plan = plan_of(asked, addresses)
    job = rank_program_job(asked.job, PROGRAM, plan, seconds=plan.most_seconds)
    return replace(job, timeout=min(job.timeout or asked.limit, asked.limit))


def _osu_job(asked: PairRequest, first: int, second: int) -> Job:
    command = osu_command(asked.path, asked.sizes, asked.window, cuda=asked.memory == "cuda")
    return pair_job(asked.job, command, asked.hosts[first], asked.hosts[second], seconds=asked.seconds)


def measure(
    asked: PairRequest,
    *,
    environ: Mapping[str, str],
    context: Context,
    progress: Callable[[str], None],
    keep: Callable[[PointToPointRun], None] = lambda run: None,
    heard: bool = False,
    launch: Launcher = launch_job,
    find_addresses: FindAddresses = probed_addresses,
) -> Measured:
    """Measure, and return what came of it; a job that ended badly is described in ``run.failure``.

    ``keep`` is given what there is when a round begins, and in the end. ``heard``: something was measured
    before, that a failure of the launch must not lose. Raises what ``launch`` raises where nothing was
    measured, StoppedError for a signal, and RefusedError where ranks cannot measure as asked.
    """
    answers = PairAnswers(asked.ranks)
    furthest, rounds = 0, len(plan_of(asked).rounds)

    def answered(rank: int, name: str, value: Any) -> None:
        nonlocal furthest
        if name == "turn" and isinstance(value, int) and value > furthest:
            furthest = value
            progress(f"{asked.title}: round {value} of {rounds}")
            if answers.heard:
                keep(_run(asked, context, answers, None))
        answers.take(rank, name, value)

    def run(job: Job, printed: Printed = lambda rank, stream, line: None) -> Finished:
        try:
            return measurement_job.run(
                job,
                title=asked.title,
                environ=environ,
                progress=progress,
                answered=answered,
                heard=lambda: heard or answers.heard,
                printed=printed,
                launch=launch,
            )
        except StoppedError as error:
            if answers.heard:
                keep(replace(_run(asked, context, answers, None), failure=str(error)))
            raise
        except RequestError as error:  # COMMAND is not the user's word here
            where = {"COMMAND": "--program"}
            raise RequestError(
                replace(one, where=where.get(one.where, one.where)) for one in error.faults
            ) from None

    if asked.program in OSU:
        finished = _run_osu(asked, run, answered)
    elif asked.program == "mpi":
        finished = run(job_of(asked))
    else:
        finished = run(job_of(asked, find_addresses(asked.job, environ, progress)))
    if answers.refusals and not answers.heard:
        raise RefusedError(_refusals(asked, answers, finished))
    result = _run(asked, context, answers, finished)
    keep(result)
    found = Measured(run=result, errors=tuple(answers.errors), failed_host=finished.failed_host)
    if (outcome := finished.outcome) is None or outcome.mpi is None:
        return found
    return replace(found, mpi=outcome.mpi.name, addresses=_addresses(outcome.plan.hosts))


def _run_osu(
    asked: PairRequest,
    run: Callable[[Job, Printed], Finished],
    answered: Callable[[int, str, Any], None],
) -> Finished:
    """Run an OSU program between each pair, one after the other, rates in both directions."""
    finished = Finished(answers={})
    place = {rank: index for index, rank in enumerate(asked.ranks)}
    for number, pairs in enumerate(plan_of(asked).rounds, 1):
        for pair in pairs:
            answered(pair[0], "turn", number)
            ways = [pair] if asked.program != "osu_bw" else [pair, (pair[1], pair[0])]
            for source, target in ways:
                lines: list[str] = []
                finished = run(_osu_job(asked, place[source], place[target]), _collector(lines))
                told = {"source": source, "target": target, "size": asked.sizes[0], "test": asked.program}
                if finished.failure:
                    answered(source, "output", {**told, "error": finished.failure})
                else:
                    answered(source, "output", {**told, "text": "\n".join(lines)})
    return replace(finished, failure="")


def _collector(lines: list[str]) -> Printed:
    """Return what keeps the lines of standard output."""

    def printed(rank: int, stream: str, line: str) -> None:
        if stream == "stdout":
            lines.append(line)

    return printed


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
    # perftest measures all sizes; a request with runs has its sizes in them.
    outputs = answers.outputs.transfers if asked.runs else answers.outputs.between(asked.sizes)
    return PointToPointRun(
        name=asked.name,
        context=context,
        places=places,
        transfers=(*answers.transfers, *outputs),
        program=answers.way or asked.program,
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

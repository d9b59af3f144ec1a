"""Measures between and on the hosts of a job: ``ringleader doctor --active``.

    results = measure(job, environ=os.environ, seconds=30.0, progress=line.show)
    checks = judge(results)                         # ringleader.fabric.active.judge
    text = pair_matrix(results)                     # ringleader.fabric.active.pair_matrix
    value = document(results)                       # ringleader.fabric.facts: for JSON

Each pass is one job with one rank on each host (``active_program``), started like any other. The first pass
measures pairs in rounds; where it leaves suspects, a second one measures them again, with hosts that are
known to be good. Programs of others (perftest) run in a job of their own, where hosts have them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ringleader.bench.fabric_programs import UCX_BANDWIDTH, UCX_LATENCY
from ringleader.bench.measurement_job import Launcher, on_each_host, rank_program_job
from ringleader.bench.measurement_job import run as run_job
from ringleader.bench.pair_rounds import Round, first_rounds, packed, second_rounds
from ringleader.doctor.active_answers import Answers
from ringleader.doctor.active_plan import ActivePlan, ProgramRun, direction_seconds
from ringleader.fabric.active.link_isolation import suspects_of
from ringleader.fabric.active.measurements import ActiveResults, ProgramNote
from ringleader.launch.launch_job import launch as launch_job
from ringleader.plan.job import Job

FIRST_PART, SECOND_PART, SPEED_PART = 0.6, 0.25, 0.03
"""Parts of the time: the first pass, the second, each measurement of a rank's own speed."""
MOST_SPEED_SECONDS = 1.0
MOST_PROGRAM_PAIRS = 32
"""Pairs that programs of others measure: each host with its neighbour, of many hosts the first ones."""


def measure(
    job: Job,
    *,
    environ: Mapping[str, str],
    seconds: float,
    progress: Callable[[str], None],
    ranks_per_host: int = 1,
    launch: Launcher = launch_job,
) -> ActiveResults:
    """Measure between the job's hosts, and how fast ranks compute on them.

    ``job``: its hosts, ssh and MPI count; its command and number of ranks do not. ``seconds``: what all
    measurements may take together, starts of jobs aside. ``progress`` is given a line now and then.
    ``ranks_per_host``: how many ranks compute at once. Raises what ``launch`` raises where nothing can be
    started, and StoppedError for a signal; a job that ends badly later is told in ``ActiveResults.failure``.
    """
    began = time.monotonic()
    session = _Session(job, environ, progress, launch)
    count = max(1, len(job.hosts))
    speed = min(MOST_SPEED_SECONDS, SPEED_PART * seconds)
    rounds = first_rounds(count)
    first = ActivePlan(
        rounds=rounds,
        seconds=direction_seconds(rounds, FIRST_PART * seconds),
        speed_seconds=speed if ranks_per_host == 1 else 0.0,
    )
    if rounds or first.speed_seconds:
        session.run(first, "measuring pairs" if rounds else "measuring ranks")
    if not session.failure:
        session.second_pass(SECOND_PART * seconds)
    if ranks_per_host > 1 and not session.failure:
        plan = ActivePlan(speed_seconds=speed, ranks_per_host=ranks_per_host)
        session.run(plan, "measuring ranks", slots=ranks_per_host)
    if not session.failure:
        session.run_programs()
    return replace(session.results(), seconds=time.monotonic() - began)


class _Session:
    """The jobs of one measurement, and what they have answered so far."""

    def __init__(
        self, job: Job, environ: Mapping[str, str], progress: Callable[[str], None], launch: Launcher
    ) -> None:
        self._job, self._environ, self._progress, self._launch = job, environ, progress, launch
        self._hosts: tuple[str, ...] = tuple(host.name for host in job.hosts) or ("localhost",)
        self._answers = Answers()
        self._notes: list[ProgramNote] = []
        self._addresses: dict[str, str] = {}
        self._passes, self._mpi = 0, ""
        self.failure = ""

    def run(self, plan: ActivePlan, title: str, *, slots: int = 1) -> None:
        """Run one job; what it answered is kept, also where it ends badly."""
        total = len(plan.rounds) or len(plan.runs)
        self._passes += bool(plan.rounds)
        self._answers.begin(self._hosts, slots, self._passes)

        furthest = 0

        def answered(rank: int, name: str, value: Any) -> None:
            nonlocal furthest
            if name == "turn" and total and value > furthest:
                furthest = value
                self._progress(f"{title}: {value} of {total}")
            self._answers.take(rank, name, value)

        finished = run_job(
            rank_program_job(
                on_each_host(self._job, slots),
                "ringleader.doctor.active_program",
                plan,
                seconds=plan.most_seconds,
            ),
            title=title,
            environ=self._environ,
            progress=self._progress,
            answered=answered,
            heard=lambda: self._answers.heard,
            launch=self._launch,
        )
        self.failure = finished.failure
        if finished.outcome is not None:
            self._mpi = finished.outcome.mpi.name
            hosts = finished.outcome.plan.hosts
            self._addresses = {one.host.name: (*one.addresses, one.host.name)[0] for one in hosts}

    def second_pass(self, seconds: float) -> None:
        """Measure suspects again, where there are any."""
        number = {name: index for index, name in enumerate(self._hosts)}
        found = suspects_of(self.results().best_rates())
        rounds = second_rounds(
            [(number[a], number[b]) for a, b in found.pairs],
            [number[name] for name in found.hosts],
            [number[name] for name in found.good],
        )
        if rounds:
            plan = ActivePlan(rounds=rounds, seconds=direction_seconds(rounds, seconds))
            self.run(plan, "measuring suspects again")

    def run_programs(self) -> None:
        """Run perftest and ucx_perftest between neighbours that have them; else note why not."""
        programs, reasons = self._answers.programs(), self._answers.program_reasons()
        runs = program_runs(self._hosts, programs, self._addresses)
        self._notes += [ProgramNote(program="", reason=why, hosts=hosts) for why, hosts in reasons.items()]
        if runs:
            self.run(ActivePlan(runs=runs), "programs of others")

    def results(self) -> ActiveResults:
        """Return everything so far."""
        return self._answers.results(
            self._hosts, notes=tuple(self._notes), passes=self._passes, mpi=self._mpi, failure=self.failure
        )


def program_runs(
    hosts: Sequence[str], programs: Mapping[str, Iterable[str]], addresses: Mapping[str, str]
) -> tuple[ProgramRun, ...]:
    """Return which programs run between which neighbours: those that both have, in both directions.

    ucx_perftest is left to hosts without perftest: both would measure the same wire.
    """
    runs: list[ProgramRun] = []
    for pairs in neighbours(len(hosts)):
        for first, second in pairs:
            both = set(programs.get(hosts[first], ())) & set(programs.get(hosts[second], ()))
            if len(both) > len(both & {UCX_BANDWIDTH, UCX_LATENCY}):
                both -= {UCX_BANDWIDTH, UCX_LATENCY}
            for name in sorted(both):
                ways = [(first, second)] if name.endswith("lat") else [(first, second), (second, first)]
                runs += [
                    ProgramRun(
                        program=name, server=to, client=by, address=addresses.get(hosts[to], hosts[to])
                    )
                    for to, by in ways
                ]
    return tuple(runs)


def neighbours(hosts: int) -> tuple[Round, ...]:
    """Return the pairs of a ring, in rounds; of many hosts the first ones."""
    ring = {(number, (number + 1) % hosts) for number in range(hosts)} if hosts > 1 else set()
    pairs = sorted({(min(pair), max(pair)) for pair in ring})
    return packed(pairs[:MOST_PROGRAM_PAIRS])

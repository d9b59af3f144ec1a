"""Pairs of ranks: how their time is shared out, what is asked of the job, what becomes of the answers."""

import dataclasses
import json
from itertools import chain

import pytest
from tests.job_outcomes import outcome_of

from ringleader.bench.pair_measurement import PairRequest, measure, plan_of
from ringleader.bench.pair_plan import (
    PairPlan,
    fitting_window,
    half_of,
    least_seconds,
    repetitions,
    share_of,
    window_of,
)
from ringleader.bench.pair_rounds import rank_rounds
from ringleader.bench.pair_sweep import PairSweep
from ringleader.dataclass_json import from_document
from ringleader.errors import Fault, LaunchError, RefusedError, StoppedError
from ringleader.launch.rank_answer import parts_of
from ringleader.plan.job import Host, Job
from ringleader.scaling import Context

SIZES = (1, 1024, 1 << 20)


def request(hosts=("h1", "h2", "h3"), *, ranks=None, **options):
    job = Job(
        command=("ignored",), hosts=tuple(Host(name=name, slots=9) for name in dict.fromkeys(hosts)), np=9
    )
    fields = {"name": "x", "job": job, "sizes": SIZES, "window": 64, "both_ways": False, "seconds": 10.0}
    return PairRequest(**{**fields, "hosts": hosts, "ranks": ranks or tuple(range(len(hosts))), **options})


class Ranks:
    """A launcher whose ranks answer at once."""

    def __init__(self, *, silent=(), refuse="", code=0, raises=None, sizes=None):
        self.silent, self.refuse, self.code, self.raises, self.sizes = silent, refuse, code, raises, sizes
        self.jobs = []

    def __call__(self, job, *, environ, listener):
        self.jobs.append(job)
        plan = from_document(PairPlan, json.loads(job.command[-1]))

        def say(rank, name, value):
            for part in parts_of(name, value):
                listener.report(rank, part)

        for rank in sorted({*chain(*chain(*plan.rounds))}):
            say(rank, "context", {"hostname": f"n{rank}", "cpu": "Z80", "python": "3.11.7"})
            if self.refuse:
                say(rank, "refused", self.refuse)
        for turn, pairs in enumerate(plan.rounds if not self.refuse else ()):
            for a, b in pairs:
                self.pair(plan, turn, a, b, say)
        if self.raises is not None:
            raise self.raises
        hosts = tuple(Host(name=host.name, slots=1) for host in job.hosts)
        spread = dataclasses.replace(job, hosts=hosts, np=None)
        return outcome_of(spread, self.code, whose="rank 2", reason="rank 2 ended with 7")

    def pair(self, plan, turn, a, b, say):
        say(a, "turn", turn + 1)
        if {a, b} & {*self.silent}:
            say(a, "silence", {"partner": b, "during": "meeting", "seconds": 5.0})
            return
        for size in self.sizes or plan.sizes:
            told = {"target": b, "size": size, "window": window_of(plan.window, size)}
            told |= {"latency": 1e-6, "latency_low": 5e-7, "latency_p99": None}
            told |= {"rate": 1e9, "rate_low": 9e8, "rate_high": 2e9}
            told |= {"back_rate": 3e9, "back_rate_low": 2e9, "back_rate_high": 4e9}
            say(a, "size", told)
        if self.sizes:
            say(a, "left_out", {"target": b, "sizes": [one for one in plan.sizes if one not in self.sizes]})


def measured(launch, asked=None, kept=None):
    kept = [] if kept is None else kept
    context = Context(command=("ringleader", "bench", "p2p"))
    options = {"environ": {}, "context": context, "progress": lambda text: None}
    return measure(asked or request(), launch=launch, keep=kept.append, **options).run


def test_time_and_windows():
    assert [window_of(64, size) for size in (1, 1 << 20, 1 << 21, 1 << 26, 1 << 30)] == [64, 64, 32, 1, 1]
    assert (repetitions(1.0, 0.1, 1000), repetitions(1.0, 1e-9, 1000), repetitions(0, 5.0, 9)) == (
        10,
        1000,
        1,
    )
    assert least_seconds(4096, 1024, 1e-3, 3) == pytest.approx(12e-3)
    assert least_seconds(1, 65536, 1e-3, 3) == pytest.approx(3e-3), "never less than of the smaller"
    assert fitting_window(64, 1024, 1.0, 0.1) == 64
    assert fitting_window(64, 1 << 20, 8e-3, 0.3) == 12
    assert fitting_window(64, 1 << 20, 8e-3, 0.001) == 1
    assert fitting_window(16, 1 << 20, 1e-6, 1.0) == 16


class SimulatedSweep(PairSweep):
    """A link of this many seconds and bytes per second; each size takes the time that it is given."""

    def __init__(self, plan, latency, rate):
        self.now, self.latency, self.rate, self._plan = 0.0, latency, rate, plan
        self._clock = lambda: self.now

    def _bounces(self, order):
        once = 2 * (self.latency + order.size / self.rate)
        self.now += order.repeats * once
        return [once] * order.repeats

    def _one_size(self, size, seconds, *, warm_up):
        self.now += 3 * seconds
        return {"size": size, "latency": self.latency + size / self.rate}

    def _order(self, order):
        pass


@pytest.mark.parametrize(
    ("latency", "rate", "left_out"),
    [(2e-6, 1e10, ()), (2e-3, 1e8, ()), (2e-3, 1e5, (65536, 1 << 20)), (0.3, 1e9, (65536, 1 << 20))],
)
def test_a_far_larger_size_is_left_out_only_where_it_would_take_too_long(latency, rate, left_out):
    plan = PairPlan(rounds=(), sizes=(8, 65536, 1 << 20), pair_seconds=2.7)
    sweep = SimulatedSweep(plan, latency, rate)
    assert sweep.lead(lambda found: None) == left_out
    assert sweep.now < 2 * plan.pair_seconds


def test_half_of_round_trips_and_shares_of_the_time():
    for times, latency, low, p99 in (
        ([2.0, 4.0], 1.5, 1.0, None),
        ([float(n) for n in range(100)], 24.75, 0.0, 49.0),
    ):
        assert half_of(times) == {"latency": latency, "latency_low": low, "latency_p99": p99}
    sizes, left = (1, 1024, 1 << 20), 1.0
    assert share_of(1, sizes) == pytest.approx(1 / 6) and share_of(1 << 20, sizes[2:]) == 1.0
    for at, size in enumerate(sizes):
        left -= share_of(size, sizes[at:]) * left
    assert left == pytest.approx(0.0)


@pytest.mark.parametrize(
    ("hosts", "rounds"),
    [((0, 1), 1), ((0, 0), 1), ((0, 1, 2, 3), 3), ((0, 0, 0), 3), ((0, 0, 1, 1), 5), (tuple(range(40)), 2)],
)
def test_a_host_is_in_one_pair_of_a_round(hosts, rounds):
    found = rank_rounds(hosts)
    assert len(found) == rounds
    for one in found:
        used = [host for pair in one for host in {hosts[rank] for rank in pair}]
        assert len(used) == len(set(used))
    if len(hosts) <= 16:
        assert len({*chain(*found)}) == len(hosts) * (len(hosts) - 1) // 2


def test_the_plan_shares_the_time_out_and_names_the_jobs_ranks():
    plan = plan_of(request(hosts=("h1", "h1", "h2"), ranks=(0, 1, 4)))
    assert {*chain(*plan.rounds)} == {(0, 1), (0, 4), (1, 4)} and plan.one_at_a_time
    assert plan.pair_seconds * len(plan.rounds) <= 10
    assert not plan_of(request()).one_at_a_time
    unknown = plan_of(request(hosts=(), ranks=(2, 3, 5)))
    assert len(unknown.rounds) == 3 and unknown.one_at_a_time


def test_every_size_of_every_pair_becomes_a_transfer_in_each_direction():
    kept = []
    run = measured(Ranks(), kept=kept)
    assert len(run.transfers) == 3 * 2 * len(SIZES) and not run.failure and not run.notes
    there, back = run.transfers[:2]
    assert (there.source, there.target, there.rate, back.rate) == (back.target, back.source, 1e9, 3e9)
    assert there.latency == back.latency == 1e-6 and there.window == 64
    assert [place.host for place in run.places] == ["h1", "h2", "h3"]
    assert run.context.mpi == "openmpi5 5.0.11" and run.context.hosts[0].cpu == "Z80"
    assert kept[-1] == run and len(kept) == 3  # when rounds begin, and in the end


def test_a_silent_partner_is_named_and_the_others_are_measured():
    run = measured(Ranks(silent=(2,)))
    assert len(run.transfers) == 2 * len(SIZES)
    assert {(one.source, one.target) for one in run.silences} == {(0, 2), (1, 2)}


def test_a_job_that_ends_badly_keeps_what_was_measured():
    assert measured(Ranks(code=7)).failure == "measuring pairs: rank 2 ended with 7"
    lost = measured(Ranks(raises=LaunchError(Fault(where="h3", what="h3 is gone"))))
    assert lost.failure == "measuring pairs: h3 is gone" and lost.transfers
    (note,) = measured(Ranks(sizes=(1,))).notes
    assert note.startswith(
        "messages of 1 KiB to 1 MiB between h2 and h3, and 2 more pairs: there was no time"
    )
    with pytest.raises(RefusedError) as refused:
        measured(Ranks(refuse="PyTorch finds no GPU"))
    assert [(one.what, one.where) for one in refused.value.faults] == [("PyTorch finds no GPU", "h1, h2, h3")]
    kept = []
    with pytest.raises(StoppedError):
        measured(Ranks(raises=StoppedError(2, "the measurement had ended")), kept=kept)
    assert len(kept[-1].transfers) == 6 * len(SIZES) and kept[-1].failure, "a signal leaves what was measured"


def test_answers_that_nobody_understands_are_left_out():
    def odd(job, *, environ, listener):
        for value in (7, None, {}, {"target": 99, "size": 1, "window": 1}, {"target": 1, "size": "x"}):
            for name in ("size", "silence", "left_out", "turn"):
                for part in parts_of(name, value):
                    listener.report(0, part)
        return Ranks()(job, environ=environ, listener=listener)

    assert measured(odd).transfers == measured(Ranks()).transfers

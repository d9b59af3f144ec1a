"""The jobs of an active test: what each is asked to measure, and what becomes of the answers."""

from __future__ import annotations

import dataclasses
import json
from itertools import chain

import pytest

from ringleader.bench.measurement_job import last_words
from ringleader.bench.pair_rounds import first_rounds
from ringleader.doctor.active_job import measure, neighbours, program_runs
from ringleader.doctor.active_plan import ActivePlan, direction_seconds
from ringleader.errors import Fault, LaunchError, ProbeError, StoppedError
from ringleader.fabric.active.judge import judge
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.facts import from_document
from ringleader.launch.outcome import Outcome
from ringleader.launch.rank_answer import parts_of
from ringleader.plan.job import Family, Host, Job, Mpi
from ringleader.plan.rank_placement import HostFacts, Plan

HOSTS = ("h1", "h2", "h3", "h4")


class Cluster:
    """A launcher whose ranks answer at once, from a table of rates."""

    def __init__(self, *, slow_into=None, mend_in_pass=None, programs=(), silent=None, code=0):
        self.slow_into, self.mend_in_pass, self.programs = slow_into, mend_in_pass, programs
        self.silent, self.code = silent, code
        self.jobs: list[Job] = []
        self.plans: list[ActivePlan] = []

    def __call__(self, job, *, environ, listener):
        plan = from_document(ActivePlan, json.loads(job.command[-1]))
        self.jobs.append(job)
        self.plans.append(plan)

        def say(rank, name, value):
            for part in parts_of(name, value):
                listener.report(rank, part)

        for rank in range(job.np):
            say(rank, "host", {"machine": f"m{rank}", "programs": self.programs, "program_note": ""})
            if plan.speed_seconds:
                speed = {
                    "kernel_seconds": 1e-3,
                    "kernel_runs": 9,
                    "copy_rate": 1e10,
                    "gpus": [],
                    "gpu_note": "",
                }
                say(rank, "speed", speed)
        for turn, pairs in enumerate(plan.rounds):
            for a, b in pairs:
                say(a, "turn", turn + 1)
                if self.silent in (a, b):
                    say(a, "silence", {"partner": b, "during": "meeting", "seconds": 5.0})
                    continue
                for source, target in ((a, b), (b, a)):
                    mended = self.mend_in_pass == len(self.plans)
                    rate = 1e8 if target == self.slow_into and not mended else 4e8
                    told = {"target": target, "rate": rate, "lowest": rate, "highest": rate}
                    say(source, "rate", told | {"message_bytes": 65536})
                say(a, "latency", {"partner": b, "seconds": 2e-5, "round_trips": 200})
        for number, run in enumerate(plan.runs, 1):
            say(run.client, "turn", number)
            told = {"program": run.program, "server": run.server, "device": "mlx5_0"}
            number = {"seconds": 1e-6, "round_trips": 1000} if "lat" in run.program else {"rate": 3.9e11}
            say(run.client, "program", told | number | ({} if "lat" in run.program else {"message_bytes": 1}))
        return self.outcome(job)

    def outcome(self, job):
        facts = tuple(
            HostFacts(
                host=host,
                hostname=host.name,
                identity=host.name,
                is_local=False,
                cpus=(0,),
                addresses=(f"10.0.0.{n}",),
            )
            for n, host in enumerate(job.hosts, 1)
        )
        return Outcome(
            exit_code=self.code,
            whose="rank 2",
            reason="rank 2 ended" if self.code else "",
            first_failure=None,
            ends=(),
            plan=Plan(hosts=facts, ranks=()),
            mpi=Mpi(family=Family.OPENMPI5, version="5.0.11", mpirun="/m", library="/l"),
            seconds=1.0,
        )


def measured(cluster, hosts=HOSTS, **options):
    job = Job(command=("ignored",), hosts=tuple(Host(name=name, slots=8) for name in hosts), np=99)
    told = []
    options = {"seconds": 20.0, "progress": told.append, "environ": {}, "launch": cluster} | options
    return measure(job, **options), told


def test_a_healthy_cluster_takes_one_job_with_one_rank_on_each_host():
    cluster = Cluster()
    results, told = measured(cluster)
    (job,) = cluster.jobs
    assert job.np == 4 and [host.slots for host in job.hosts] == [1] * 4 and job.timeout
    assert len(results.best_rates()) == 12 and results.passes == 1 and results.mpi == "Open MPI 5.0.11"
    assert len(results.ranks) == 4 and len(results.latencies) == 6 and not results.one_machine
    assert told == [f"measuring pairs: {turn} of 3" for turn in (1, 2, 3)]
    assert not [one for one in judge(results) if one.verdict is Verdict.FAIL]


def test_suspects_are_measured_again_with_good_hosts_and_named_if_they_stay_slow():
    cluster = Cluster(slow_into=2)
    results, _ = measured(cluster)
    assert len(cluster.jobs) == 2 and results.passes == 2
    assert {2} == set.intersection(*(set(pair) for pair in chain(*cluster.plans[1].rounds)))
    assert [one.subject for one in judge(results) if one.verdict is Verdict.FAIL] == ["into h3"]


def test_what_is_fast_the_second_time_is_not_blamed():
    results, _ = measured(Cluster(slow_into=2, mend_in_pass=2))
    assert results.passes == 2 and not [one for one in judge(results) if one.verdict is Verdict.FAIL]


def test_ranks_of_full_hosts_compute_in_a_job_of_their_own():
    cluster = Cluster()
    results, _ = measured(cluster, ranks_per_host=3)
    assert [job.np for job in cluster.jobs] == [4, 12] and not cluster.plans[0].speed_seconds
    assert [one.host for one in results.ranks] == [host for host in HOSTS for _ in range(3)]


def test_programs_run_between_neighbours_that_have_them():
    cluster = Cluster(programs=("ib_write_bw", "ib_send_lat", "ucx_perftest tag_bw"))
    results, told = measured(cluster)
    runs = cluster.plans[-1].runs
    assert {run.program for run in runs} == {"ib_write_bw", "ib_send_lat"}
    assert {run.address for run in runs} == {"10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"}
    assert len(results.best_rates("ib_write_bw")) == 8 and told[-1] == "programs of others: 12 of 12"
    assert len([one for one in results.latencies if one.program == "ib_send_lat"]) == 4


def test_ucx_perftest_is_for_hosts_without_perftest():
    programs = {"h1": ("ucx_perftest tag_bw",), "h2": ("ib_write_bw", "ucx_perftest tag_bw"), "h3": ()}
    runs = program_runs(("h1", "h2", "h3"), programs, {})
    assert {(run.program, run.server, run.client) for run in runs} == {
        ("ucx_perftest tag_bw", 0, 1),
        ("ucx_perftest tag_bw", 1, 0),
    }
    assert neighbours(2) == (((0, 1),),) and neighbours(1) == ()


def test_a_silent_host_is_named_and_the_rest_is_kept():
    results, _ = measured(Cluster(silent=3))
    bad = [one for one in judge(results) if one.verdict is Verdict.FAIL]
    assert {one.id for one in bad} == {"active.answer"} and all("h4" in one.hosts for one in bad)
    assert len(results.best_rates()) == 6


def test_a_job_that_ends_badly_ends_the_measurement_with_its_reason():
    cluster = Cluster(slow_into=1, code=14)
    results, _ = measured(cluster)
    assert len(cluster.jobs) == 1 and results.failure == "measuring pairs: rank 2 ended"
    assert len(results.best_rates()) == 12


def test_what_cannot_start_is_the_callers_and_what_fails_later_is_told():
    def refuse(job, *, environ, listener):
        raise ProbeError(Fault(where="h2", what="no answer"))

    with pytest.raises(ProbeError):
        measured(refuse)

    cluster = Cluster(slow_into=1)

    def once(job, *, environ, listener):
        if cluster.jobs:
            raise LaunchError(Fault(where="h2", what="is gone"))
        return cluster(job, environ=environ, listener=listener)

    results, _ = measured(once)
    assert results.failure == "measuring suspects again: is gone" and len(results.best_rates()) == 12


def test_a_signal_ends_the_measurement():
    cluster = Cluster()

    def stopped(job, *, environ, listener):
        outcome = cluster(job, environ=environ, listener=listener)
        return dataclasses.replace(outcome, exit_code=130, whose="ringleader", reason="stopped by SIGINT")

    with pytest.raises(StoppedError) as raised:
        measured(stopped)
    assert raised.value.exit_code == 130


def test_answers_that_cannot_be_read_are_left_out():
    cluster = Cluster()

    def odd(job, *, environ, listener):
        for value in ({"target": 77}, {"target": 1, "rate": "fast"}, 7, None, {"target": 1}):
            for part in parts_of("rate", value):
                listener.report(0, part)
        return cluster(job, environ=environ, listener=listener)

    assert len(measured(odd)[0].best_rates()) == 12


@pytest.mark.parametrize("hosts", [2, 4, 16, 40])
def test_the_time_is_shared_out_among_the_rounds(hosts):
    rounds = first_rounds(hosts)
    each = direction_seconds(rounds, 30.0)
    assert 0.05 <= each <= 1.0
    plan = ActivePlan(rounds=rounds, seconds=each)
    assert len(rounds) * each * 2.8 <= 31 and plan.most_seconds < 31 + 6 * len(rounds) + 30


def test_the_last_words_of_a_rank_are_those_that_say_something():
    assert last_words(["----", " peer: h2 Unable to connect ", "", "* * *"]) == ["peer: h2 Unable to connect"]

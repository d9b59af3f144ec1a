"""The jobs of an active test: what each is to measure, and what becomes of the answers."""

import dataclasses
import json
from itertools import chain

import pytest
from tests.job_outcomes import outcome_of
from tests.unit.fabric import machines

from ringleader.bench.fabric_programs import LISTEN_SECONDS
from ringleader.bench.pair_plan import PairPlan
from ringleader.bench.program_commands import PERFTEST_RUNS
from ringleader.bench.rank_speed import SpeedPlan
from ringleader.dataclass_json import from_document
from ringleader.doctor.active_tests import PROGRAM_SIZE, measure_hosts
from ringleader.doctor.active_verdicts import judge
from ringleader.errors import Fault, LaunchError, ProbeError, RequestError
from ringleader.fabric.check_result import Verdict
from ringleader.fabric.facts import Gpu
from ringleader.launch.rank_answer import parts_of
from ringleader.plan.job import Host, Job

HOSTS = ("h1", "h2", "h3", "h4")
PERFTEST = """\
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
 1048576    1000           {rate:.2f}            {rate:.2f}              0.1
------------------------------
"""
LATENCY = """\
 #bytes #iterations    t_min[usec]    t_typical[usec]    t_avg[usec]
 8       1000          1.02           {latency:.2f}         {latency:.2f}
------------------------------
"""


def facts(*, ports=(400e9,), programs=("ib_write_bw",), gpus=0):
    """Return a host with an InfiniBand port of each rate."""
    cards = tuple(
        machines.rdma(f"mlx5_{at}", machines.port(gbits=rate / 1e9), pci=f"0000:{at + 16:x}:00.0")
        for at, rate in enumerate(ports)
    )
    found = machines.host(
        devices=cards, gpus=tuple(Gpu(index=number, pci_address="") for number in range(gpus))
    )
    software = dataclasses.replace(found.software, programs={name: f"/bin/{name}" for name in programs})
    return dataclasses.replace(found, software=software)


class Cluster:
    """A launcher whose ranks answer at once, from a table of rates."""

    def __init__(self, *, slow_into=None, mend_in_pass=None, silent=None, code=0, slow_port=None, cuda=True):
        self.slow_into, self.mend_in_pass, self.silent, self.code = slow_into, mend_in_pass, silent, code
        self.slow_port, self.cuda = slow_port, cuda
        self.jobs: list[Job] = []
        self.plans: list[PairPlan] = []
        """Of messages."""
        self.programs: list[PairPlan] = []

    def __call__(self, job, *, environ, listener):
        self.jobs.append(job)

        def say(rank, name, value):
            for part in parts_of(name, value):
                listener.report(rank, part)

        if "ringleader.bench.rank_speed" in job.command:
            assert from_document(SpeedPlan, json.loads(job.command[-1])).seconds > 0
            for rank in range(job.np):
                say(rank, "speed", {"kernel_seconds": 1e-3, "kernel_runs": 9, "copy_rate": 1e10})
            return outcome_of(job, self.code, whose="rank 2", reason="rank 2 ended")
        plan = from_document(PairPlan, json.loads(job.command[-1]))
        (self.programs if plan.runs else self.plans).append(plan)
        for rank in range(job.np):
            say(rank, "context", {"hostname": f"n{rank}", "machine": f"m{rank}"})
            if plan.memory == "cuda" and not self.cuda:
                say(rank, "refused", "ib_write_bw has no --use_cuda: it was built without CUDA")
        if plan.memory == "host" or self.cuda:
            for turn, pairs in enumerate(plan.rounds):
                for pair in pairs:
                    say(pair[0], "turn", turn + 1)
                    (self.runs if plan.runs else self.messages)(plan, *pair, say)
        return outcome_of(job, self.code, whose="rank 2", reason="rank 2 ended")

    def messages(self, plan, a, b, say):
        if self.silent in (a, b):
            say(a, "silence", {"partner": b, "during": "meeting", "seconds": 5.0})
            return
        repaired = self.mend_in_pass == len(self.plans)
        to, back = (5e7 if one != self.slow_into or repaired else 12.5e6 for one in (b, a))
        for size in plan.sizes:
            told = {"target": b, "size": size, "window": 16, "latency": 2e-5, "rate": to, "back_rate": back}
            say(a, "size", told)

    def runs(self, plan, a, b, say):
        for run in plan.runs:
            client, server = (b, a) if run.backwards else (a, b)
            device = plan.port or f"mlx5_{run.rail}:1"
            slow = self.slow_port in ((client, run.rail), (server, run.rail))
            text = LATENCY if "lat" in run.test else PERFTEST
            told = {"source": client, "target": server, "size": run.sizes[0], "test": run.test}
            text = text.format(rate=40.0 if slow else 390.0, latency=25.0 if slow else 2.0)
            say(client, "output", {**told, "device": device, "text": text})


def measured(cluster, hosts=HOSTS, known=None, **options):
    job = Job(command=("ignored",), hosts=tuple(Host(name=name, slots=8) for name in hosts), np=99)
    told = []
    options = {
        "seconds": 20.0,
        "program_seconds": 900.0,
        "progress": told.append,
        "environ": {},
        "launch": cluster,
    } | options
    return measure_hosts(job, facts=known or {}, **options), told


def failed(results):
    return [one for one in judge(results) if one.verdict is Verdict.FAIL]


def test_a_healthy_cluster_takes_one_job_of_pairs_and_one_of_ranks():
    cluster = Cluster()
    results, told = measured(cluster)
    assert len(cluster.jobs) == 2
    assert all(
        job.np == 4 and {host.slots for host in job.hosts} == {1} and job.timeout for job in cluster.jobs
    )
    assert len(results.best_rates()) == 12 and results.passes == 1 and results.mpi == "Open MPI 5.0.11"
    assert len(results.ranks) == 4 and not results.one_machine
    assert told == [f"measuring pairs: round {turn} of 3" for turn in (1, 2, 3)]
    assert not failed(results)


def test_suspects_are_measured_again_with_good_hosts_and_named_if_they_stay_slow():
    cluster = Cluster(slow_into=2)
    results, _ = measured(cluster)
    assert len(cluster.plans) == 2 and results.passes == 2
    assert {2} == set.intersection(*(set(pair) for pair in chain(*cluster.plans[1].rounds)))
    assert [one.subject for one in failed(results)] == ["into h3"]
    results, _ = measured(Cluster(slow_into=2, mend_in_pass=2))
    assert results.passes == 2 and not failed(results), "what is fast the second time is not blamed"
    results, _ = measured(Cluster(), ranks_per_host=3)
    assert [one.host for one in results.ranks] == [host for host in HOSTS for _ in range(3)]
    cluster = Cluster(slow_into=1, code=14)
    results, _ = measured(cluster)
    assert len(cluster.plans) == 1 and results.failure == "measuring pairs: rank 2 ended"
    assert len(results.best_rates()) == 12


def test_every_port_is_measured_with_the_same_port_of_a_neighbor_and_a_slow_one_is_named():
    cluster = Cluster(slow_port=(2, 1))
    known = {host: facts(ports=(400e9, 400e9, 400e9, 100e9)) for host in HOSTS}
    results, told = measured(cluster, known=known)
    fast, slower = cluster.programs
    assert {run.rail for run in fast.runs} == {0, 1, 2} and {run.rail for run in slower.runs} == {3}
    assert {(run.test, run.backwards) for run in slower.runs} == {
        ("ib_write_bw", False),
        ("ib_write_bw", True),
        ("ib_send_lat", False),
    }
    assert fast.ports == tuple((str(rank), *(f"mlx5_{rail}:1" for rail in range(4))) for rank in range(4))
    at_gigabit = 8 * PERFTEST_RUNS * PROGRAM_SIZE / 1e9
    assert fast.run_seconds > at_gigabit + LISTEN_SECONDS + 1, "soft RoCE at 1 Gbit/s is slow, not broken"
    assert dict(fast.addresses) == {str(rank): f"10.0.0.{rank + 1}" for rank in range(4)}
    assert told[-1] == "perftest: round 2 of 2"
    bad = failed(results)
    assert {(one.id, one.hosts) for one in bad} == {
        ("active.rdma_rate", ("h3",)),
        ("active.rdma_latency", ("h3",)),
    }
    assert all("h3 mlx5_1:1" in one.subject for one in bad), bad


@pytest.mark.parametrize(
    ("budget", "run", "late"),
    [
        (5.0, 0, {"mlx5_0:1", "mlx5_1:1", "mlx5_2:1"}),  # none is begun that can't end
        (30.0, 1, {"mlx5_2:1"}),  # ports of one rate take longer than there was time for
        (90.0, 2, set()),
    ],
)
def test_perftest_has_one_deadline_and_the_ports_that_missed_it_are_named(
    budget: float, run: int, late: set[str]
) -> None:
    time = [0.0]
    cluster = Cluster()

    def launch(job, *, environ, listener):
        before = len(cluster.programs)
        outcome = cluster(job, environ=environ, listener=listener)
        time[0] += 25.0 * (len(cluster.programs) - before)
        return outcome

    known = {host: facts(ports=(400e9, 400e9, 100e9)) for host in HOSTS}
    results, told = measured(cluster, known=known, launch=launch, now=lambda: time[0], program_seconds=budget)
    assert len(cluster.programs) == run and not results.failure
    assert all(
        job.timeout <= budget
        for job in cluster.jobs
        if "pair_program" in str(job.command[3]) and "perftest" in str(job.command)
    )
    found = [one for one in judge(results) if "no time left to measure" in one.seen]
    named = {name for name in ("mlx5_0:1", "mlx5_1:1", "mlx5_2:1") if any(name in one.seen for one in found)}
    assert named == late and all(one.hosts == HOSTS for one in found)
    assert bool(late) == any(line.startswith("no time left to measure") for line in told)


def test_a_run_that_the_deadline_ends_keeps_what_was_measured() -> None:
    """The launcher stops it; ports that were measured by then are judged, the others named."""
    time = [0.0]
    cluster = Cluster()

    def launch(job, *, environ, listener):
        known = len(cluster.programs)
        outcome = cluster(job, environ=environ, listener=listener)
        if len(cluster.programs) == known:
            return outcome
        time[0] += job.timeout
        return outcome_of(job, 124, whose="ringleader", reason="the time is over")

    known = {host: facts() for host in HOSTS}
    results, _ = measured(cluster, known=known, launch=launch, now=lambda: time[0], program_seconds=20.0)
    assert not results.failure and results.programs[0].run.transfers
    assert not [one for one in judge(results) if "no time left" in one.seen and "mlx5_0:1 of h1" in one.seen]


def test_the_port_that_was_asked_for_is_the_only_one():
    cluster = Cluster()
    known = {host: facts(ports=(400e9, 400e9)) for host in HOSTS}
    measured(cluster, known=known, port="mlx5_1")
    (plan,) = cluster.programs
    assert plan.port == "mlx5_1" and {run.rail for run in plan.runs} == {0}
    with pytest.raises(RequestError, match="no host has an RDMA port mlx4_0"):
        measured(Cluster(), known=known, port="mlx4_0")


@pytest.mark.parametrize(("cuda", "verdict"), [(True, Verdict.PASS), (False, Verdict.SKIP)])
def test_memory_of_gpus_is_measured_where_perftest_can(cuda, verdict):
    cluster = Cluster(cuda=cuda)
    results, _ = measured(cluster, known={host: facts(gpus=8) for host in HOSTS})
    assert [plan.memory for plan in cluster.programs] == ["host", "cuda"]
    assert {run.test for run in cluster.programs[1].runs} == {"ib_write_bw"}
    found = [one for one in judge(results) if one.id == "active.rdma_gpu"]
    assert {one.verdict for one in found} == {verdict}
    assert all("GPU memory" in one.seen or "without CUDA" in one.seen for one in found)
    assert not failed(results)


def test_ucx_perftest_is_for_pairs_without_perftest():
    cluster = Cluster()
    known = {
        "h1": facts(programs=("ucx_perftest",)),
        "h2": facts(programs=("ib_write_bw", "ucx_perftest")),
        "h3": facts(programs=()),
        "h4": facts(ports=()),
    }
    results, _ = measured(cluster, known=known)
    (plan,) = cluster.programs
    assert plan.rounds == (((0, 1),),) and {run.test for run in plan.runs} == {"tag_bw", "tag_lat"}
    notes = {note.reason: note.hosts for note in results.notes}
    assert notes == {
        "perftest and ucx_perftest are not installed": ("h3",),
        "no RDMA device with an active port": ("h4",),
    }


def test_a_silent_host_is_named_and_the_rest_is_kept():
    results, _ = measured(Cluster(silent=3))
    bad = failed(results)
    assert {one.id for one in bad} == {"active.answer"} and all("h4" in one.hosts for one in bad)
    assert len(results.best_rates()) == 6


def test_ranks_are_measured_where_the_job_of_pairs_ended_before_anything_was():
    cluster = Cluster()

    def aborted(job, *, environ, listener):
        if "ringleader.bench.rank_speed" in job.command:
            return cluster(job, environ=environ, listener=listener)
        return outcome_of(job, 14, whose="rank 2", reason="h2 cannot be reached")

    results, _ = measured(aborted, hosts=HOSTS[:2])
    assert results.failure == "measuring pairs: h2 cannot be reached" and len(results.ranks) == 2

    def gone(job, *, environ, listener):
        if "ringleader.bench.rank_speed" in job.command:
            raise LaunchError(Fault(where="h2", what="is gone"))
        return aborted(job, environ=environ, listener=listener)

    def refuse(job, *, environ, listener):
        raise ProbeError(Fault(where="h2", what="no answer"))

    with pytest.raises(ProbeError):
        measured(refuse)
    results, _ = measured(gone, hosts=HOSTS[:2])
    assert results.failure == "measuring pairs: h2 cannot be reached" and not results.ranks

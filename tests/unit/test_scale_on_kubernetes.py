"""The command line of ``ringleader scale --on kubernetes``: one job for each size, every fault at once."""

from pathlib import Path

import pytest
from tests.unit.test_scale_resume import session

from ringleader.bench.scale.measurement import job_of, runs_left
from ringleader.cli.scale.kubernetes_jobs import plan_of
from ringleader.errors import RequestError
from ringleader.plan.job import Host, Job

KUBERNETES = ("--on", "kubernetes", "--namespace", "team", "--image", "example.org/train:1")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_size_has_its_workers_slots_and_words() -> None:
    found = session(
        *KUBERNETES, "--grid", "1x1,2x4", "--cpu", "8", "-x", "A=1", "--", "python", "t.py", "{hosts}x{ranks}"
    )
    assert found.cluster is not None and not found.asked.run.uncoupled
    shapes = []
    for one in runs_left(found.asked.run)[:2]:
        job = found.cluster.mpijob(job_of(one, found.asked), {}, suffix="abcde")
        specs = job.spec.mpi_replica_specs
        assert specs.worker is not None
        (launcher,) = specs.launcher.template["spec"]["containers"]
        threads = {one["name"]: one["value"] for one in launcher["env"]}["OMP_NUM_THREADS"]
        shapes.append((specs.worker.replicas, job.spec.slots_per_worker, launcher["args"][-1], threads))
        assert {"name": "RINGLEADER_REPORT_LINES", "value": "1"} in launcher["env"]
        assert (job.metadata.name, job.metadata.namespace) == ("t-abcde", "team")
    assert shapes == [(1, 1, "1x1", "2"), (2, 4, "2x8", "2")], "the same threads at every size"


def test_every_fault_of_every_size() -> None:
    with pytest.raises(RequestError) as raised:
        session("--on", "kubernetes", "--gpus", "many", "--repeats", "0", "--start-timeout", "x")
    places = {fault.where for fault in raised.value.faults}
    assert places >= {"--grid", "--image", "--gpus", "--repeats", "COMMAND", "--start-timeout"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((*KUBERNETES, "--grid", "1x1", "--lab", "--oversubscribe"), "means nothing with --on kubernetes"),
        (("--image", "x", "--gpus", "1"), "is for jobs on Kubernetes"),
    ],
)
def test_options_of_another_place(words: tuple[str, ...], said: str) -> None:
    with pytest.raises(RequestError) as raised:
        session(*words, "--", "python", "t.py")
    assert [fault.what for fault in raised.value.faults] == [said, said]


def test_ranks_are_on_the_nodes_of_their_workers() -> None:
    job = Job(command=("a",), np=6, hosts=tuple(Host(name=f"worker-{n}", slots=2) for n in range(3)))
    plan = plan_of(["n1", "n2", "n1"], job, {0: 4, 2: 8, 4: "odd"})
    assert [(facts.host.name, facts.host.slots, len(facts.cpus)) for facts in plan.hosts] == [
        ("n1", 4, 4),
        ("n2", 2, 8),
    ]
    assert [place.rank for place in plan.on_host(0)] == [0, 1, 4, 5]
    assert plan_of(["n1", "", "n1"], job, {}) is None and plan_of([], job, {}) is None

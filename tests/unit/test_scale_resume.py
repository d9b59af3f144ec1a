"""The command line of ``scale``: runs that are resumed, allocations, a job on Kubernetes for each size."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests import transcripts
from tests.unit import test_scale
from tests.unit.conftest import Call
from tests.unit.test_scale import ASKED, Scripted, measure, measured, runs

from ringleader.bench import run_file
from ringleader.bench.scale.measurement import ScaleRequest, job_of, points_of, runs_left
from ringleader.bench.scale.sizes import host_words, parse_grid
from ringleader.cli.scale.command import command
from ringleader.cli.scale.kubernetes_jobs import plan_of
from ringleader.cli.scale.options import ScaleOptions, extended_grid
from ringleader.cli.scale.session import Session, changed_hosts, changed_request, read_session
from ringleader.cli.terminal_progress import ProgressLine
from ringleader.cli.typed_command import faults_of_words, options_of
from ringleader.errors import RequestError
from ringleader.plan.job import Host, Job
from ringleader.scaling import IN_STEP, HostContext, Request, Run

REQUEST = Request(workdir="/w", hosts=("h1:2", "h2:2"), script="train.py", script_digest="aa")


def asked(job: Job = ASKED.job, **changes: object) -> ScaleRequest:
    return test_scale.asked(job, **{"request": REQUEST, **changes})


def interrupted(at: int) -> Run:
    """A run that failed at its n-th job."""
    _, kept, _, error = measure(Scripted(at={at: lambda job, listener: 7}), asked())
    assert error is not None
    return kept[-1]


@pytest.mark.parametrize("at", [1, 6, 10])
def test_what_is_left_is_measured_and_nothing_twice(at: int) -> None:
    stored, launcher = interrupted(at), Scripted()
    assert runs_left(stored) == runs()[at - 1 :]
    run, kept, _, error = measure(launcher, asked(), stored=stored)
    assert error is None and run is not None and kept[-1] == run
    assert len(launcher.jobs) == len(runs()) - at + 1
    assert [(len(one.samples), len(one.uncoupled)) for one in run.points] == [(2, 0), (2, 2), (2, 2)]
    assert run.failure == "" and run.resumed == ("2026-01-02T03:04:05+00:00",)
    sittings = [sample.sitting for point in run.points for sample in (*point.samples, *point.uncoupled)]
    assert sittings.count(0) == at - 1


def test_sizes_and_repetitions_are_added() -> None:
    complete = measured(Scripted(), asked())
    more = asked(points=points_of(extended_grid(complete, parse_grid("2x1,1x2"))), repeats=3)
    assert [str(size) for size in more.sizes] == ["1x1", "1x2", "2x2", "2x1"]
    run = measured(Scripted(), more, stored=complete)
    assert [len(point.samples) for point in run.points] == [3, 3, 3, 3]
    assert run.points[0].samples[:2] == complete.points[0].samples


def test_other_software_ends_it_before_its_numbers_are_mixed() -> None:
    stored = interrupted(4)
    other = replace(stored, context=replace(stored.context, python="3.14.0"))
    _, kept, _, error = measure(Scripted(), asked(), stored=other)
    assert isinstance(error, RequestError) and "Python 3.14.0 then, 3.11.7 now" in str(error)
    assert [len(point.samples) for point in kept[-1].points] == [1, 1, 0]
    assert kept[-1].context.python == "3.14.0"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"repeats": 5, "baseline": "1x2"}, ""),
        ({"repeats": 1}, "1 repetitions; the run has 2 already"),
        ({"job": replace(ASKED.job, bind="none")}, "was auto, is none now"),
        ({"job": Job(command=("python", "other.py"), hosts=ASKED.job.hosts)}, "python other.py now"),
        ({"request": replace(REQUEST, script_digest="bb")}, "train.py has changed since"),
        ({"request": replace(REQUEST, script_digest="")}, "does not exist any more"),
        ({"request": replace(REQUEST, workdir="/x")}, "was /w, is /x now"),
        (
            {"job": replace(ASKED.job, hosts=(Host(name="h9", slots=2), Host(name="h2", slots=2)))},
            "ran on h1, would run on h9 now|ran on h1, would|ran on h1, h2, would run on h9, h2 now",
        ),
        # More hosts behind the known ones are no change.
        ({"job": replace(ASKED.job, hosts=(*ASKED.job.hosts, Host(name="h3", slots=2)))}, ""),
    ],
)
def test_what_must_not_have_changed(changes: dict[str, object], said: str) -> None:
    stored = measured(Scripted(), asked())
    found = changed_request(stored, asked(**changes), lab=False, same_hosts=True)  # type: ignore[arg-type]
    texts = said.split("|") if said else []
    assert len(found) == len(texts) and all(a in b.what for a, b in zip(texts, found, strict=True)), found


def test_hosts_of_a_batch_system_may_have_other_names() -> None:
    stored = measured(Scripted(), asked())
    others = asked(replace(ASKED.job, hosts=(Host(name="n7", slots=2), Host(name="n8", slots=2))))
    assert changed_request(stored, others, lab=False, same_hosts=False) == []
    (fault,) = changed_request(stored, others, lab=True, same_hosts=False)
    assert (fault.where, fault.what) == ("--lab", "was off, is on now")
    context = replace(stored.context, hosts=(HostContext(name="h1", cores=8), HostContext(name="h2")))
    (fault,) = changed_hosts(context, {"h1": 4, "h2": 4})
    assert (fault.where, fault.what) == ("h1", "had 8 cores for its ranks, has 4 now")


def test_a_file_of_an_older_version_is_read_and_cannot_be_resumed(tmp_path: Path) -> None:
    document = run_file.to_document(interrupted(4))
    for name in ("strong", "global_batch", "baseline", "uncoupled", "request", "resumed"):
        del document[name]
    for point in document["points"]:
        for sample in point["samples"]:
            del sample["sitting"]
    (tmp_path / "run.json").write_text(json.dumps(document))
    run = run_file.read(tmp_path)
    assert (run.baseline, run.strong, run.request) == ("1x1", False, None)
    (fault,) = changed_request(run, asked(), lab=False, same_hosts=True)
    assert "could not resume" in fault.what


# The command line


def session(*words: str) -> Session:
    with command.make_context("scale", list(words)) as context:
        options = options_of(ScaleOptions, context.params, faults=tuple(faults_of_words(context)))
        return read_session(options, ProgressLine(prefix=""))


def sizes(found: Session) -> list[str]:
    return [str(size) for size in found.asked.sizes]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run_here(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stored run of two sizes on two hosts, with a script beside it."""
    monkeypatch.setenv("MY_TOKEN", "secret")
    (here / "train.py").write_text("pass\n")
    begun = session(
        *("-H", "h1:2,h2:2", "--grid", "1x1,1x2", "--repeats", "2", "--warmup", "0.3", "--name", "r"),
        *("-x", "MY_TOKEN=secret", "-x", "A=1", "--bind", "none", "python", "train.py"),
    )
    run = measured(Scripted(), replace(begun.asked, run=replace(begun.asked.run, repeats=1)))
    run_file.write(replace(run, repeats=2), here / "runs" / "r")
    return here


def test_a_run_is_resumed_as_it_was_asked_for(run_here: Path) -> None:
    assert "secret" not in (run_here / "runs" / "r" / "run.json").read_text()
    for words in (("--resume", "runs/r"), ("--name", "r", "--resume"), ("--resume", "runs/r/run.json")):
        found = session(*words)
        job, run = found.asked.job, found.asked.run
        assert (run.name, str(found.directory), sizes(found)) == ("r", "runs/r", ["1x1", "1x2"])
        assert (run.repeats, run.warmup, job.bind) == (2, 0.3, "none")
        assert dict(job.env) == {"MY_TOKEN": "secret", "A": "1"}
        assert (job.command, host_words(job.hosts)) == (("python", "train.py"), ("h1:2", "h2:2"))
        left = ", ".join(f"{one.size} {one.kind} {one.repetition}" for one in runs_left(run))
        assert left == "1x2 in step 1, 1x2 uncoupled 1, 1x2 coupled 1, 1x1 coupled 1"


def test_ranks_in_step_and_hosts_may_be_added_or_left_out_later(run_here: Path) -> None:
    found = session("--resume", "runs/r", "--in-step", "none")
    assert [one.kind for one in runs_left(found.asked.run)] == ["uncoupled", "coupled", "coupled"]
    found = session("--resume", "runs/r", "--in-step", "all", "--grid", "2x2")
    steps = [str(one) for one in runs_left(found.asked.run) if one.kind == IN_STEP]
    assert "1x2 in step, repetition 2" in steps and "2x2 in step, repetition 1" in steps
    found = session("--resume", "runs/r", "-H", "h1:2,h2:2,h3:2", "--grid", "3x2", "--repeats", "3")
    request = found.asked.run.request
    assert sizes(found) == ["1x1", "1x2", "3x2"] and request.hosts == ("h1:2", "h2:2", "h3:2")
    assert [one for one in request.options if one.startswith("--hosts")] == ["--hosts=h1:2,h2:2,h3:2"]


@pytest.mark.usefixtures("run_here")
def test_what_is_refused(call: Call) -> None:
    transcripts.check("scale/refused.txt", call, "scale")


def test_a_script_that_has_changed_ends_it(run_here: Path) -> None:
    (run_here / "train.py").write_text("print()\n")
    with pytest.raises(RequestError, match=r"train\.py has changed since"):
        session("--resume", "runs/r")


# Allocations


def allocation(monkeypatch: pytest.MonkeyPatch, nodes: str, tasks: str) -> None:
    for name, value in {"JOB_NODELIST": nodes, "NTASKS_PER_NODE": tasks[0], "TASKS_PER_NODE": tasks}.items():
        monkeypatch.setenv(f"SLURM_{name}", value)


def test_sizes_of_a_slurm_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside an allocation no host is named: sizes and hosts come from it."""
    allocation(monkeypatch, "gpu[01-04]", "8(x4)")
    found = session("python", "train.py")
    assert sizes(found) == ["1x1", "1x2", "1x4", "1x8", "2x8", "4x8"] and found.in_allocation
    against_host = session("--baseline", "1x8", "python", "train.py")
    assert sizes(against_host) == ["1x8", "2x8", "4x8"]
    assert host_words(against_host.asked.job.hosts) == ("gpu01:8", "gpu02:8", "gpu03:8", "gpu04:8")
    assert sizes(session("--no-allocation", "--grid", "1x1", "true")) == ["1x1"]


def test_a_run_goes_on_in_the_next_allocation(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocation(monkeypatch, "n[1-2]", "2(x2)")
    words = ("--name", "r", "--repeats", "2", "python", "train.py")
    begun = session(*words)
    run = measured(Scripted(), replace(begun.asked, run=replace(begun.asked.run, repeats=1)))
    run_file.write(replace(run, repeats=2), here / "runs" / "r")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[7-8]")
    found = session("--resume", "runs/r")
    assert [host.name for host in found.asked.job.hosts] == ["n7", "n8"]
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")  # queued again, with the words of its first run
    assert session(*words).asked == found.asked
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    with pytest.raises(RequestError, match="needs 2 hosts"):
        session("--resume", "runs/r")


def test_jobs_of_more_and_more_nodes_add_their_sizes_to_one_run(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--job-per-size``: the same words in each allocation."""
    words = "--on slurm --job-per-size --name r --grid 1x2,2x2,4x2 --repeats 2 --no-uncoupled --budget 1e9"
    made = []
    for nodes, tasks in (("n1", "2"), ("n[3-4]", "2(x2)"), ("n[5-8]", "2(x4)")):
        allocation(monkeypatch, nodes, tasks)
        found = session(*words.split(), "python", "train.py")
        assert sizes(found) == ["1x1", "1x2", "2x2", "4x2"]
        made.append([str(one.size) for one in found.asked.here(runs_left(found.asked.run))])
        run = measured(Scripted(), found.asked)
        run_file.write(run, here / "runs" / "r")
    assert made == [["1x1", "1x2", "1x2", "1x1"], ["2x2", "2x2"], ["4x2", "4x2"]]
    sittings = [[sample.sitting for sample in point.samples] for point in run.points]
    assert sittings == [[0, 0], [0, 0], [1, 1], [2, 2]] and runs_left(run) == ()


# Kubernetes

KUBERNETES = ("--on", "kubernetes", "--namespace", "team", "--image", "example.org/train:1")


def test_each_size_has_its_workers_slots_and_words() -> None:
    words = ("--grid", "1x1,2x4", "--cpu", "8", "-x", "A=1", "--", "python", "t.py", "{hosts}x{ranks}")
    found = session(*KUBERNETES, *words)
    assert found.cluster is not None and not found.asked.run.uncoupled
    shapes = []
    for one in runs_left(found.asked.run)[:2]:
        job = found.cluster.mpijob(job_of(one, found.asked), {}, suffix="abcde")
        specs = job.spec.mpi_replica_specs
        assert specs.worker is not None
        (launcher,) = specs.launcher.template["spec"]["containers"]
        env = {one["name"]: one.get("value") for one in launcher["env"]}
        shape = (specs.worker.replicas, job.spec.slots_per_worker)
        shapes.append((*shape, launcher["args"][-1], env["OMP_NUM_THREADS"]))
        assert env["RINGLEADER_REPORT_LINES"] == "1"
        assert (job.metadata.name, job.metadata.namespace) == ("t-abcde", "team")
    assert shapes == [(1, 1, "1x1", "2"), (2, 4, "2x8", "2")], "the same threads at every size"


def test_ranks_are_on_the_nodes_of_their_workers() -> None:
    job = Job(command=("a",), np=6, hosts=tuple(Host(name=f"worker-{n}", slots=2) for n in range(3)))
    plan = plan_of(["n1", "n2", "n1"], job, {0: 4, 2: 8, 4: "odd"})
    assert [(facts.host.name, facts.host.slots, len(facts.cpus)) for facts in plan.hosts] == [
        ("n1", 4, 4),
        ("n2", 2, 8),
    ]
    assert [place.rank for place in plan.on_host(0)] == [0, 1, 4, 5]
    assert plan_of(["n1", "", "n1"], job, {}) is None and plan_of([], job, {}) is None

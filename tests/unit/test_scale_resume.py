"""Going on with a stored run: what is read from it, what may be added, what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.unit import test_scale
from tests.unit.test_scale import ASKED, Scripted, measure, measured, runs

from ringleader.bench import run_file
from ringleader.bench.scale.measurement import ScaleRequest, points_of, runs_left
from ringleader.bench.scale.sizes import host_words, parse_grid
from ringleader.cli.scale.command import command
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
    launcher = Scripted()
    launcher.at[at] = lambda job, listener: 7
    _, kept, _, error = measure(launcher, asked())
    assert error is not None
    return kept[-1]


@pytest.mark.parametrize("at", [1, 3, 6, 10])
def test_what_is_left_is_measured_and_nothing_twice(at: int) -> None:
    stored = interrupted(at)
    whole = runs()
    assert runs_left(stored) == whole[at - 1 :]
    launcher = Scripted()
    run, kept, _, error = measure(launcher, asked(), stored=stored)
    assert error is None and run is not None
    assert len(launcher.jobs) == len(whole) - at + 1
    assert [len(point.samples) for point in run.points] == [2, 2, 2]
    assert [len(point.uncoupled) for point in run.points] == [0, 2, 2]
    assert run.failure == "" and run.resumed == ("2026-01-02T03:04:05+00:00",)
    sittings = [sample.sitting for point in run.points for sample in (*point.samples, *point.uncoupled)]
    assert sittings.count(0) == at - 1
    assert kept[-1] == run


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
    assert isinstance(error, RequestError)
    assert "Python 3.14.0 then, 3.11.7 now" in str(error)
    assert [len(point.samples) for point in kept[-1].points] == [1, 1, 0]
    assert kept[-1].context.python == "3.14.0"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"repeats": 5, "baseline": "1x2"}, []),
        ({"repeats": 1}, ["1 repetitions; the run has 2 already"]),
        ({"job": replace(ASKED.job, bind="none")}, ["was auto, is none now"]),
        ({"job": Job(command=("python", "other.py"), hosts=ASKED.job.hosts)}, ["python other.py now"]),
        ({"request": replace(REQUEST, script_digest="bb")}, ["train.py has changed since"]),
        ({"request": replace(REQUEST, script_digest="")}, ["does not exist any more"]),
        ({"request": replace(REQUEST, workdir="/x")}, ["was /w, is /x now"]),
        (
            {"job": replace(ASKED.job, hosts=(Host(name="h9", slots=2), Host(name="h2", slots=2)))},
            ["ran on h1, would run on h9 now", "ran on h1, would", "ran on h1, h2, would run on h9, h2 now"],
        ),
        # More hosts behind the known ones are no change.
        ({"job": replace(ASKED.job, hosts=(*ASKED.job.hosts, Host(name="h3", slots=2)))}, []),
    ],
)
def test_what_must_not_have_changed(changes: dict[str, object], said: list[str]) -> None:
    stored = measured(Scripted(), asked())
    found = changed_request(stored, asked(**changes), lab=False, same_hosts=True)  # type: ignore[arg-type]
    assert len(found) == len(said), found
    for fault, text in zip(found, said, strict=True):
        assert text in fault.what


def test_hosts_of_a_batch_system_may_have_other_names() -> None:
    stored = measured(Scripted(), asked())
    others = asked(replace(ASKED.job, hosts=(Host(name="n7", slots=2), Host(name="n8", slots=2))))
    assert changed_request(stored, others, lab=False, same_hosts=False) == []
    (fault,) = changed_request(stored, others, lab=True, same_hosts=False)
    assert (fault.where, fault.what) == ("--lab", "was off, is on now")
    context = replace(stored.context, hosts=(HostContext(name="h1", cores=8), HostContext(name="h2")))
    (fault,) = changed_hosts(context, {"h1": 4, "h2": 4})
    assert (fault.where, fault.what) == ("h1", "had 8 cores for its ranks, has 4 now")


def test_a_run_of_an_older_version_cannot_be_resumed() -> None:
    stored = replace(interrupted(2), request=None)
    (fault,) = changed_request(stored, asked(), lab=False, same_hosts=True)
    assert "could not resume" in fault.what


def test_hosts_are_stored_as_words() -> None:
    assert host_words((Host(name="a", slots=2), Host(name="b"), Host(name="::1", slots=4))) == (
        "a:2",
        "b",
        "::1:4",
    )


def test_a_file_without_the_new_fields_is_read(tmp_path: Path) -> None:
    document = run_file.to_document(interrupted(4))
    for name in ("strong", "global_batch", "baseline", "uncoupled", "request", "resumed"):
        del document[name]
    for point in document["points"]:
        for sample in point["samples"]:
            del sample["sitting"]
    (tmp_path / "run.json").write_text(json.dumps(document))
    run = run_file.read(tmp_path)
    assert (run.baseline, run.strong, run.request) == ("1x1", False, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"baseline": "all"}, "'all' is not hosts x slots"),
        ({"global_batch": 0}, "0 samples cannot be"),
        ({"points": "twice"}, "the same size is there twice"),
        ({"points": "negative"}, "-1.0 is not a time"),
    ],
)
def test_values_that_cannot_be(change: dict[str, object], said: str) -> None:
    document = json.loads(json.dumps(run_file.to_document(interrupted(4))))
    if change.get("points") == "twice":
        document["points"] *= 2
    elif change.get("points") == "negative":
        document["points"][0]["samples"][0]["step_seconds"] = -1.0
    else:
        document |= change
    with pytest.raises(RequestError, match=said):
        run_file.from_document(document, "r")


# The command line


def session(*words: str) -> Session:
    with command.make_context("scale", list(words)) as context:
        options = options_of(ScaleOptions, context.params, faults=tuple(faults_of_words(context)))
        return read_session(options, ProgressLine(prefix=""))


@pytest.fixture
def run_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stored run of two sizes on two hosts, with a script beside it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("pass\n")
    begun = session(
        *("-H", "h1:2,h2:2", "--grid", "1x1,1x2", "--repeats", "2", "--warmup", "0.3", "--name", "r"),
        *("-x", "MY_TOKEN=secret", "-x", "A=1", "--bind", "none", "python", "train.py"),
    )
    run = measured(Scripted(), replace(begun.asked, run=replace(begun.asked.run, repeats=1)))
    run_file.write(replace(run, repeats=2), tmp_path / "runs" / "r")
    return tmp_path


def test_a_run_is_resumed_as_it_was_asked_for(run_here: Path) -> None:
    text = (run_here / "runs" / "r" / "run.json").read_text()
    assert "secret" not in text
    for words in (("--resume", "runs/r"), ("--name", "r", "--resume"), ("--resume", "runs/r/run.json")):
        found = session(*words, "-x", "MY_TOKEN=secret")
        assert found.asked.run.name == "r" and str(found.directory) == "runs/r"
        assert [str(size) for size in found.asked.sizes] == ["1x1", "1x2"]
        assert (found.asked.run.repeats, found.asked.run.warmup, found.asked.job.bind) == (2, 0.3, "none")
        assert dict(found.asked.job.env) == {"MY_TOKEN": "secret", "A": "1"}
        assert found.asked.job.command == ("python", "train.py")
        assert [host.name for host in found.asked.job.hosts] == ["h1", "h2"]
        assert [str(one) for one in runs_left(found.asked.run)] == [
            "1x2 in step, repetition 2",
            "1x2 uncoupled, repetition 2",
            "1x2 coupled, repetition 2",
            "1x1 coupled, repetition 2",
        ]


def test_ranks_in_step_may_be_added_or_left_out_later(
    run_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    found = session("--resume", "runs/r", "--in-step", "none")
    assert [one.kind for one in runs_left(found.asked.run)] == ["uncoupled", "coupled", "coupled"]
    found = session("--resume", "runs/r", "--in-step", "all", "--grid", "2x2")
    steps = [str(one) for one in runs_left(found.asked.run) if one.kind == IN_STEP]
    assert "1x2 in step, repetition 2" in steps and "2x2 in step, repetition 1" in steps


def test_hosts_that_are_added_are_kept_for_the_next_time(
    run_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    found = session("--resume", "runs/r", "-H", "h1:2,h2:2,h3:2", "--grid", "3x2", "--repeats", "3")
    assert [str(size) for size in found.asked.sizes] == ["1x1", "1x2", "3x2"]
    assert found.asked.run.request.hosts == ("h1:2", "h2:2", "h3:2")
    assert found.asked.run.request.options.count("--hosts=h1:2,h2:2,h3:2") == 1
    assert "--hosts=h1:2,h2:2" not in found.asked.run.request.options


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("--warmup", "0.2", "--threads", "4"),
            ["--warmup: the run was measured with 0.3", "--threads: the run"],
        ),
        (
            ("--threads", "abc", "--replace"),
            ["--threads: 'abc' is not an integer", "--resume and --replace"],
        ),
        (("--replace",), ["--resume and --replace"]),
        (("-x", "A=2"), ["-x: the run was measured with MY_TOKEN, A=1; it cannot continue with A=2"]),
        (("-H", "h2:2,h1:2"), ["1x1: ran on h1, would run on h2 now"]),
        (("--no-uncoupled",), ["--no-uncoupled: the run was measured with it off"]),
        (("--grid", "9x2"), ["9x2 needs 9 hosts"]),
        (("--name", "s"), ["--resume DIR and --name"]),
        (("--", "python", "other.py"), ["COMMAND: was python train.py, is python other.py now"]),
    ],
)
def test_what_a_resumed_run_refuses(
    run_here: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], said: list[str]
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    with pytest.raises(RequestError) as raised:
        session("--resume", "runs/r", *words)
    for text in said:
        assert text in str(raised.value)


def test_a_changed_script_and_directories_that_are_none(
    run_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_TOKEN", "secret")
    with pytest.raises(RequestError, match="there is no stored run here"):
        session("--resume", "runs/none")
    with pytest.raises(RequestError, match="it is not said which run is meant"):
        session("--resume", "--", "python", "train.py")
    file = run_here / "runs" / "r" / "run.json"
    whole = file.read_text()
    (run_here / "train.py").write_text("print()\n")
    with pytest.raises(RequestError, match=r"train\.py has changed since"):
        session("--resume", "runs/r")
    file.write_text(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match="is not JSON"):
        session("--resume", "runs/r")
    file.write_text(whole.replace('"schema": 1', '"schema": 99'))
    with pytest.raises(RequestError, match="has schema 99"):
        session("--resume", "runs/r")


# Allocations


def test_sizes_of_a_slurm_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Inside an allocation no host is named: sizes and hosts come from it."""
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "SLURM_JOB_NODELIST": "gpu[01-04]",
        "SLURM_NTASKS_PER_NODE": "8",
        "SLURM_TASKS_PER_NODE": "8(x4)",
    }.items():
        monkeypatch.setenv(name, value)
    found = session("python", "train.py")
    assert [str(size) for size in found.asked.sizes] == ["1x1", "1x2", "1x4", "1x8", "2x8", "4x8"]
    assert found.in_allocation
    against_host = session("--baseline", "1x8", "python", "train.py")
    assert [str(size) for size in against_host.asked.sizes] == ["1x8", "2x8", "4x8"]
    assert host_words(against_host.asked.job.hosts) == ("gpu01:8", "gpu02:8", "gpu03:8", "gpu04:8")
    assert str(session("--no-allocation", "--grid", "1x1", "true").asked.sizes[0]) == "1x1"


def test_a_run_goes_on_in_the_next_allocation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_TASKS_PER_NODE", "2(x2)")
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[1-2]")
    begun = session("--name", "r", "--repeats", "2", "python", "train.py")
    run = measured(Scripted(), replace(begun.asked, run=replace(begun.asked.run, repeats=1)))
    run_file.write(replace(run, repeats=2), tmp_path / "runs" / "r")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "n[7-8]")
    found = session("--resume", "runs/r")
    assert [host.name for host in found.asked.job.hosts] == ["n7", "n8"]
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")  # requeued, with the words of its first run
    assert session("--name", "r", "--repeats", "2", "python", "train.py").asked == found.asked
    monkeypatch.delenv("SLURM_RESTART_COUNT")
    monkeypatch.delenv("SLURM_JOB_NODELIST")
    with pytest.raises(RequestError, match="needs 2 hosts"):
        session("--resume", "runs/r")


def test_jobs_of_more_and_more_nodes_add_their_sizes_to_one_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ``--job-per-size``: the same words in each allocation."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "2")
    words = ("--on", "slurm", "--job-per-size", "--name", "r", "--grid", "1x2,2x2,4x2", "--repeats", "2")
    words += ("--no-uncoupled", "--budget", "1e9", "python", "train.py")
    made = []
    for nodes, tasks in (("n1", "2"), ("n[3-4]", "2(x2)"), ("n[5-8]", "2(x4)")):
        monkeypatch.setenv("SLURM_JOB_NODELIST", nodes)
        monkeypatch.setenv("SLURM_TASKS_PER_NODE", tasks)
        found = session(*words)
        assert [str(size) for size in found.asked.sizes] == ["1x1", "1x2", "2x2", "4x2"]
        made.append([str(one.size) for one in found.asked.here(runs_left(found.asked.run))])
        run = measured(Scripted(), found.asked)
        run_file.write(run, tmp_path / "runs" / "r")
    assert made == [["1x1", "1x2", "1x2", "1x1"], ["2x2", "2x2"], ["4x2", "4x2"]]
    assert [[sample.sitting for sample in point.samples] for point in run.points] == [[0, 0]] * 2 + [
        [1, 1],
        [2, 2],
    ]
    assert runs_left(run) == ()

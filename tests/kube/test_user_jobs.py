"""Jobs from the command line to their end: ``submit`` and ``run --on kubernetes`` against the fake server."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Command, Operator, Start, on_a_terminal, until
from tests.mpijobs import mpijob

RUN = ("run", "--on", "kubernetes", "--image", "example.org/train:1", "--job-name", "train", "-n", "2")
SUBMIT = ("submit", *RUN[3:])
TRAIN = ("--", "python", "train.py")
GOLDEN = Path(__file__).parent.parent / "golden"


@pytest.fixture
def operator(fake: FakeCluster) -> Operator:
    return Operator(fake, "train")


@pytest.fixture
def running(start: Start, operator: Operator) -> Callable[..., Command]:
    """Start a job that runs."""

    def begin(*words: str, **options: int) -> Command:
        command = start(*RUN, *words, *TRAIN, **options)
        operator.takes_up()
        operator.starts()
        return command

    return begin


def job_yaml(path: Path, name: str = "train", **spec: object) -> Path:
    path.write_text(json.dumps(mpijob(name, **spec)))
    return path


@pytest.mark.parametrize("words", [RUN, SUBMIT], ids=["run", "submit"])
def test_a_job_from_pending_to_its_end(start: Start, operator: Operator, words: tuple[str, ...]) -> None:
    kubelet = operator.fake.kubelet
    command = start(*words, *TRAIN)
    made = operator.arrived()
    assert made["spec"]["mpiReplicaSpecs"]["Worker"]["replicas"] == 2
    command.says("train: waiting: 0 of 2 workers ready; job train: waits for the operator")
    operator.takes_up()
    kubelet.unschedulable("train-worker-1", "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")
    command.says("train-worker-1: no node takes it: 0/3 nodes are available")
    kubelet.wait("train-worker-1", "ErrImagePull", "manifest unknown")
    command.says("train-worker-1: manifest unknown")
    operator.starts()
    command.says("train: running on 2 workers")
    operator.writes("epoch 1\n")
    command.prints("epoch 1\n")
    operator.writes("epoch 2\n")
    operator.finishes()
    assert command.ends() == 0
    assert command.out == "epoch 1\nepoch 2\n"
    assert "exit code" not in command.err


def test_the_jobs_exit_code_is_ours(
    running: Callable[..., Command], operator: Operator, tmp_path: Path
) -> None:
    command = running("--rm", "--json-file", str(tmp_path / "end.json"))
    operator.writes("boom\n")
    operator.finishes(7, message="train-launcher-abcde launcher: exit code 7")
    assert command.ends() == 7
    assert command.out == "boom\n"
    assert command.err.splitlines()[-2:] == [
        "ringleader: train-launcher-abcde launcher: exit code 7",
        "ringleader: exit code 7 (launcher)",
    ]
    written = json.loads((tmp_path / "end.json").read_text())
    assert (written["exit_code"], written["whose"], written["state"]) == (7, "launcher", "Failed")
    assert operator.fake.get("mpijobs", "train") is None


def test_several_jobs_are_sent_with_detach(start: Start, fake: FakeCluster, tmp_path: Path) -> None:
    files = [str(job_yaml(tmp_path / f"{name}.yaml", name)) for name in ("one", "two")]
    start("submit", *files).ended(2, "holds 2 jobs: one, two")
    command = start("submit", *files, "--detach")
    assert (command.ends(), command.out) == (0, "one\ntwo\n")
    assert fake.get("mpijobs", "one") and fake.get("mpijobs", "two")


def test_a_generated_name(start: Start, fake: FakeCluster, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(json.dumps({**mpijob(), "metadata": {"generateName": "train-"}}))
    command = start("submit", "--detach", str(tmp_path / "job.yaml")).ended()
    (job,) = fake.list("mpijobs")
    assert command.out == f"{job['metadata']['name']}\n"
    assert command.out.startswith("train-") and len(command.out) == len("train-12345\n")
    assert f"ringleader k8s logs -f {command.out}" in command.err


def test_ctrl_c_while_the_job_is_being_sent(start: Start, fake: FakeCluster) -> None:
    slow = fake.faults.slow(2.0, verb="create", resource="mpijobs")
    command = start(*RUN, *TRAIN)
    until("the request", lambda: slow.hits)
    command.press()
    command.ended(130, "the job train continues in namespace default")
    assert fake.get("mpijobs", "train") is not None


def test_quota_and_events_are_told(start: Start, operator: Operator) -> None:
    command = start(*RUN, *TRAIN)
    job = operator.arrived()
    operator.sets("Created")
    about = {"kind": "MPIJob", "name": "train", "namespace": "default", "uid": job["metadata"]["uid"]}
    said = 'pods "train-worker-1" is forbidden: exceeded quota: team'
    event = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "train.1"}, "involvedObject": about}
    operator.fake.create({**event, "type": "Warning", "reason": "MPIJobFailed", "message": said})
    command.says("exceeded quota: team")
    command.press(signal.SIGTERM)
    assert command.ends() == 143


def test_start_timeout_names_what_is_in_the_way(start: Start, operator: Operator) -> None:
    command = start(*RUN, "--start-timeout", "3", *TRAIN)
    operator.takes_up()
    operator.fake.kubelet.wait("train-worker-0", "ImagePullBackOff", 'Back-off pulling image "x": not found')
    command.ended(3, "did not run within 3 seconds")
    assert "check the image's name and tag" in command.err
    assert "ringleader k8s delete train" in command.err


def test_deleted_while_it_is_followed(running: Callable[..., Command], fake: FakeCluster) -> None:
    command = running()
    command.says("running on")
    fake.delete("mpijobs", "train")
    command.ended(3, "job train: was deleted while we followed it")


def test_without_a_terminal_ctrl_c_leaves_the_job(running: Callable[..., Command], fake: FakeCluster) -> None:
    command = running("--namespace", "default")
    command.says("running on")
    command.press()
    command.ended(
        130, "the job train continues in namespace default", "ringleader k8s delete train --namespace default"
    )
    assert fake.get("mpijobs", "train") is not None


@pytest.mark.parametrize(
    ("answer", "code", "is_left"),
    [(b"y\n", 130, False), (b"\n", 130, True), (b"c\n", 0, True), (b"", 130, True)],
)
def test_on_a_terminal_ctrl_c_asks(
    start: Start, operator: Operator, answer: bytes, code: int, is_left: bool
) -> None:
    """A second Ctrl-C instead of an answer leaves at once."""
    command, terminal = on_a_terminal(start, (*RUN, *TRAIN))
    with os.fdopen(terminal, "r+b", buffering=0) as person:
        command.reads(person)
        operator.takes_up()
        operator.starts()
        command.says("running on")
        command.press()
        command.says("Delete the job?")
        if answer:
            person.write(answer)
        else:
            command.press()
        if code == 0:
            operator.writes("and on\n")
            command.prints("and on\n")
            operator.finishes()
        assert command.ends() == code
    assert (operator.fake.get("mpijobs", "train") is not None) is is_left


def test_a_server_that_is_away_for_a_while(running: Callable[..., Command], operator: Operator) -> None:
    command, faults = running(), operator.fake.faults
    operator.writes("one\n")
    command.prints("one\n")
    faults.go_away()
    command.says("the API server does not answer")
    operator.writes("two\n")
    operator.finishes(5)
    faults.come_back()
    command.says("the API server answers again")
    assert command.ends() == 5
    assert command.out == "one\ntwo\n", "each line of the log once"


def test_nobody_reads_the_log_any_more(running: Callable[..., Command], operator: Operator) -> None:
    ours, theirs = os.pipe()
    command = running(stdout=theirs)
    os.close(theirs)
    operator.writes("one\n")
    assert os.read(ours, 100) == b"one\n"
    os.close(ours)
    operator.writes("two\n")
    assert command.ends() == 141
    assert operator.fake.get("mpijobs", "train") is not None, "| head is no wish for the job"


def test_a_log_that_may_not_be_read(running: Callable[..., Command], operator: Operator) -> None:
    operator.fake.faults.forbid("pods/log is forbidden", verb="get", resource="pods/log")
    command = running()
    command.says("the log of train-launcher-abcde cannot be read")
    operator.finishes(2)
    assert command.ends() == 2


# What cannot be sent


def test_every_fault_of_a_file_and_of_the_words(start: Start, tmp_path: Path) -> None:
    path = job_yaml(tmp_path / "job.yaml", slotsPerWorker=-1, replicaSpecs={})
    command = start("submit", "--gpus", "1", str(path), str(tmp_path / "none.yaml")).ended(2)
    for said in ("--gpus", "none.yaml", "spec.slotsPerWorker", "spec.replicaSpecs: unknown field"):
        assert said in command.err


def test_an_old_manifest(start: Start, fake: FakeCluster) -> None:
    path = str(GOLDEN / "mpijob/v1.old.yaml")
    start("submit", path).ended(2, "older version")
    command = start("submit", "--convert", "--detach", path).ended()
    assert fake.list("mpijobs")
    assert "spec.runPolicy.cleanPodPolicy: Running counts now" in command.err
    assert "the operator refuses it unless it was installed with" in command.err


def test_a_rehearsal_sends_nothing_and_needs_no_cluster(start: Start, fake: FakeCluster) -> None:
    command = start(*RUN, "--dry-run", *TRAIN).ended()
    golden = GOLDEN / "kubernetes_client/dry_run.yaml"
    if os.environ.get("RINGLEADER_RENEW_GOLDENS") == "1":
        golden.write_text(command.out)
    assert command.out == golden.read_text()
    assert fake.list("mpijobs") == []
    assert start(*RUN, "--dry-run", *TRAIN, kubeconfig=None).ends() == 0

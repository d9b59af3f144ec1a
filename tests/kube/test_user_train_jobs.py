"""TrainJobs from the command line to their end, against the fake server with Trainer's definitions.

What Trainer and JobSet do is played step by step by `tests.trainer`; nothing here was compared with a Trainer
that runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests import trainer
from tests.kube.fake import FakeCluster
from tests.kube.user_session import Operator, Start, kubeconfig_of, until
from tests.mpijobs import mpijob

SUBMIT = ("k8s", "submit", "--as", "trainjob", "--image", "example.org/train:1", "--job-name", "train")
TRAIN = ("-n", "2", "--", "python", "train.py")
UNKNOWN = (
    'admission webhook "validator.trainjob.trainer.kubeflow.org" denied the request: spec.runtimeRef: '
    'Invalid value: clustertrainingruntimes.trainer.kubeflow.org "ringleader" not found: specified '
    "clusterTrainingRuntime must be created before the TrainJob is created"
)


class Trainer(Operator):
    """Plays Trainer, JobSet and the kubelet for one TrainJob."""

    def arrived(self) -> dict[str, Any]:
        found = until(f"TrainJob {self.name}", lambda: self.fake.get("trainjobs", self.name, self.namespace))
        assert isinstance(found, dict)
        return found

    def reports(self, *conditions: dict[str, str], **ready: int) -> None:
        """Write the status: conditions, and how many Jobs of each kind are ready."""

        def edit(job: dict[str, Any]) -> None:
            job["status"] = {
                "conditions": list(conditions),
                "jobsStatus": [{"name": name, "ready": count} for name, count in ready.items()],
            }

        self.fake.change("trainjobs", self.name, edit, self.namespace)

    def makes(self, *kinds: str) -> list[str]:
        """Make the Pods of these replicated Jobs, as Trainer would of the job and its runtime."""
        job = self.arrived()
        runtime = self.fake.get("trainingruntimes", self.name, self.namespace)
        assert runtime is not None
        made = [
            (name, pod)
            for name, pod in trainer.pods_of(trainer.jobset_of(job, runtime)).items()
            if pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] in kinds
        ]
        for _, pod in made:
            self.fake.create(pod, self.namespace)
        return [name for name, _ in made]

    @property
    def launcher(self) -> str:
        return f"{self.name}-launcher-0-0-abcde"


@pytest.fixture
def kubeflow(fake: FakeCluster) -> Trainer:
    for one in trainer.definitions():
        fake.create(one)
    return Trainer(fake, "train")


def test_a_train_job_from_pending_to_its_end(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    command = start(*SUBMIT, *TRAIN)
    job = kubeflow.arrived()
    runtime = fake.get("trainingruntimes", "train")
    command.says("train: waiting: 0 of 2 workers ready")
    nodes = kubeflow.makes("node")
    kubeflow.reports(node=0, launcher=0)
    kubeflow.cannot_schedule(nodes[1], "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")
    command.says(f"{nodes[1]}: no node takes it: 0/3 nodes are available")
    for node in nodes:
        kubeflow.runs(node, "node")
    (launcher,) = kubeflow.makes("launcher")
    kubeflow.runs(launcher, "node")
    kubeflow.reports(node=1, launcher=1)
    command.says("train: running on 2 workers")
    kubeflow.writes("epoch 1\n")
    command.prints("epoch 1\n")
    listed = start("k8s", "status", "train")
    assert listed.ends() == 0
    assert listed.out.splitlines()[1].split()[:5] == ["train", "Running", "2", "1", "trainer"]
    assert launcher in listed.out and nodes[0] in listed.out
    logs = start("k8s", "logs", "--worker", "1", "train")
    assert logs.ends() == 0
    kubeflow.ends(launcher, "node", 0)
    kubeflow.reports({"type": "Complete", "status": "True", "reason": "AllJobsCompleted"})
    assert command.ends() == 0
    assert command.out == "epoch 1\n"
    runtime = fake.get("trainingruntimes", "train")
    assert runtime is not None
    (owner,) = runtime["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("TrainJob", job["metadata"]["uid"])
    deleted = start("k8s", "delete", "--no-wait", "train")
    assert (deleted.ends(), deleted.out) == (0, "train deleted\n")
    assert fake.get("trainjobs", "train") is None


def test_a_failed_train_job_is_explained(start: Start, kubeflow: Trainer) -> None:
    command = start(*SUBMIT, *TRAIN)
    nodes = kubeflow.makes("node")
    (launcher,) = kubeflow.makes("launcher")
    for pod in (*nodes, launcher):
        kubeflow.runs(pod, "node")
    kubeflow.reports(node=1, launcher=1)
    kubeflow.writes("boom\n")
    kubeflow.ends(launcher, "node", 7)
    kubeflow.reports({"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed"})
    assert command.ends() == 7
    assert command.out == "boom\n"
    assert f"{launcher}: node ended with exit code 7" in command.err
    explained = start("k8s", "explain", "train")
    assert explained.ends() == 0
    assert "train: Failed" in explained.out and "exit code 7" in explained.out and "boom" in explained.out


def test_a_suspended_one_says_how_to_resume_it(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    assert start(*SUBMIT, "--suspend", "--detach", *TRAIN).ends() == 0
    explained = start("k8s", "explain", "train")
    assert explained.ends() == 0
    assert """kubectl patch trainjob train -n default --type merge -p '{"spec":{"suspend":false}}'""" in (
        explained.out
    )


def test_what_trainer_could_not_make(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    assert start(*SUBMIT, "--detach", *TRAIN).ends() == 0
    job = kubeflow.arrived()
    about = {"kind": "TrainJob", "name": "train", "namespace": "default", "uid": job["metadata"]["uid"]}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "train.1"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "TrainJobResourcesCreationFailed",
        "message": 'TrainJob resources reconciliation failed: no matches for kind "JobSet" in version '
        '"jobset.x-k8s.io/v1alpha2"',
    }
    fake.create(event)
    explained = start("k8s", "explain", "train")
    assert explained.ends() == 0
    assert "JobSet is not installed" in explained.out


def test_a_runtime_of_torch_is_led_by_its_first_node(start: Start, kubeflow: Trainer, tmp_path: Path) -> None:
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": {"name": "train"},
        "spec": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(document))
    refused = start("k8s", "submit", "--as", "trainjob", "--runtime", "x", str(path))
    assert refused.ends() == 2 and "--runtime: is for what" in refused.err
    command = start("k8s", "submit", str(path))
    kubeflow.arrived()
    kubeflow.reports(node=0)
    runtime = {"spec": {"mlPolicy": {"torch": {}}, "template": {"spec": {"replicatedJobs": [
        {"name": "node", "template": {
            "metadata": {"labels": {trainer.ANCESTOR: "trainer"}},
            "spec": {"template": {"spec": {"containers": [{"name": "node", "image": "x"}]}}},
        }}
    ]}}}}  # fmt: skip
    for name, pod in trainer.pods_of(trainer.jobset_of(document, runtime)).items():
        kubeflow.fake.create(pod)
        kubeflow.runs(name, "node")
    kubeflow.reports(node=1)
    first = "train-node-0-0-abcde"
    kubeflow.fake.write_log(first, "epoch 1\n")
    command.prints("epoch 1\n")
    kubeflow.ends(first, "node", 3)
    kubeflow.reports({"type": "Failed", "status": "True", "reason": "FailedJobs"})
    assert command.ends() == 3


def test_an_unknown_runtime_is_named(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    fake.faults.forbid(UNKNOWN, resource="trainjobs")
    command = start(*SUBMIT, "--runtime", "ringleader", *TRAIN)
    assert command.ends() == 3
    assert "there is no runtime of this name" in command.err
    assert "kubectl get clustertrainingruntimes" in command.err


def test_nothing_stays_where_the_job_is_refused(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    fake.faults.forbid("exceeded quota: team", resource="trainjobs")
    assert start(*SUBMIT, *TRAIN).ends() == 3
    assert fake.list("trainingruntimes") == []


def test_a_cluster_without_trainer(start: Start, fake: FakeCluster) -> None:
    command = start(*SUBMIT, *TRAIN)
    assert command.ends() == 3
    assert "this cluster has no TrainingRuntime (trainer.kubeflow.org/v1alpha1)" in command.err
    assert "Kubeflow Trainer v2 is not installed" in command.err
    listed = start("k8s", "status")
    assert (listed.ends(), listed.out) == (0, "")


def test_a_namespace_without_rights(
    start: Start, fake: FakeCluster, kubeflow: Trainer, tmp_path: Path
) -> None:
    """Kubeflow's role for users lets them make TrainJobs, and only read runtimes."""
    rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["*"]}]
    own = kubeconfig_of(fake, tmp_path / "eve", rules)
    command = start(*SUBMIT, *TRAIN, kubeconfig=own)
    assert command.ends() == 3
    assert "ask for a Role with the verb create on trainingruntimes.trainer.kubeflow.org" in command.err
    assert "--runtime" in command.err
    command = start(*SUBMIT, "--detach", "--runtime", "ringleader", *TRAIN, kubeconfig=own)
    assert command.ends() == 0
    assert fake.get("trainjobs", "train") is not None
    listed = start("k8s", "status", kubeconfig=own)  # MPIJobs are forbidden, whether or not there are any
    assert listed.ends() == 0 and "train" in listed.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "pods"), "makes Pods without Kubeflow Trainer"),
        (("--min-np", "1"), "it cannot be elastic"),
        (("--mpi-implementation", "Intel"), "Open MPI alone"),
    ],
)
def test_what_cannot_be_is_refused(start: Start, words: tuple[str, ...], said: str) -> None:
    command = start(*SUBMIT, *words, *TRAIN)
    assert command.ends() == 2
    assert said in command.err


def test_nothing_is_sent_of_a_file_with_a_fault(
    start: Start, fake: FakeCluster, kubeflow: Trainer, tmp_path: Path
) -> None:
    elastic = mpijob("second", metadata={"annotations": {"ringleader/min-workers": "1"}})
    path = tmp_path / "jobs.yaml"
    path.write_text("\n---\n".join(map(json.dumps, (mpijob("train"), elastic))))
    command = start("k8s", "submit", "--as", "trainjob", "--detach", str(path))
    assert command.ends() == 2
    assert "jobs.yaml:3" in command.err and "it cannot be elastic" in command.err
    assert fake.list("trainjobs") == []


def test_a_runtime_whose_job_is_unknown_is_named(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    fake.faults.drop(verb="create", resource="trainjobs")
    command = start(*SUBMIT, *TRAIN)
    assert command.ends() == 3
    assert "kubectl delete trainingruntime train -n default" in command.err


def test_an_mpijob_of_a_file_is_sent_as_one(
    start: Start, fake: FakeCluster, kubeflow: Trainer, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(mpijob("train", metadata={"annotations": {"ringleader/spawn": "exec"}})))
    command = start("k8s", "submit", "--as", "trainjob", "--detach", str(path))
    assert command.ends() == 0
    assert "exec: Trainer has ssh alone" in command.err
    assert fake.get("trainjobs", "train") and fake.get("mpijobs", "train") is None

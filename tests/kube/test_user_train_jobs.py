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
    """Plays Trainer and JobSet for one TrainJob."""

    def __init__(self, fake: FakeCluster, name: str) -> None:
        super().__init__(fake, name)
        self.launcher = f"{name}-launcher-0-0-abcde"

    def arrived(self) -> dict[str, Any]:
        found = until(f"TrainJob {self.name}", lambda: self.fake.get("trainjobs", self.name, self.namespace))
        assert isinstance(found, dict)
        return found

    def reports(self, *conditions: dict[str, str], **ready: int) -> None:
        """Write the status: conditions, and how many Jobs of each kind are ready."""

        def edit(job: dict[str, Any]) -> None:
            counts = [{"name": name, "ready": count} for name, count in ready.items()]
            job["status"] = {"conditions": list(conditions), "jobsStatus": counts}

        self.fake.change("trainjobs", self.name, edit, self.namespace)

    def makes(self, *kinds: str) -> list[str]:
        """Make the Pods of these replicated Jobs, as Trainer would of the job and its runtime."""
        job = self.arrived()
        runtime = self.fake.get("trainingruntimes", self.name, self.namespace)
        assert runtime is not None
        made = []
        for name, pod in trainer.pods_of(trainer.jobset_of(job, runtime)).items():
            if pod["metadata"]["labels"]["jobset.sigs.k8s.io/replicatedjob-name"] in kinds:
                self.fake.create(pod, self.namespace)
                made.append(name)
        return made


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
    fake.kubelet.unschedulable(nodes[1], "0/3 nodes are available: 3 Insufficient nvidia.com/gpu")
    command.says(f"{nodes[1]}: no node takes it: 0/3 nodes are available")
    for node in nodes:
        kubeflow.fake.kubelet.run(node)
    (launcher,) = kubeflow.makes("launcher")
    kubeflow.fake.kubelet.run(launcher)
    kubeflow.reports(node=1, launcher=1)
    command.says("train: running on 2 workers")
    kubeflow.writes("epoch 1\n")
    command.prints("epoch 1\n")
    listed = start("k8s", "status", "train").ended()
    assert listed.out.splitlines()[1].split()[:5] == ["train", "Running", "2", "1", "trainer"]
    assert launcher in listed.out and nodes[0] in listed.out
    start("k8s", "logs", "--worker", "1", "train").ended()
    kubeflow.fake.kubelet.finish(launcher, 0)
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
        kubeflow.fake.kubelet.run(pod)
    kubeflow.reports(node=1, launcher=1)
    kubeflow.writes("boom\n")
    kubeflow.fake.kubelet.finish(launcher, 7)
    kubeflow.reports({"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "jobset failed"})
    assert command.ends() == 7
    assert command.out == "boom\n"
    assert f"{launcher}: node ended with exit code 7" in command.err
    explained = start("k8s", "explain", "train").ended()
    assert "train: Failed" in explained.out and "exit code 7" in explained.out and "boom" in explained.out


def test_what_does_not_start_is_explained(start: Start, fake: FakeCluster, kubeflow: Trainer) -> None:
    assert start(*SUBMIT, "--suspend", "--detach", *TRAIN).ends() == 0
    about = {"kind": "TrainJob", "name": "train", "namespace": "default"}
    about["uid"] = kubeflow.arrived()["metadata"]["uid"]
    why = 'no matches for kind "JobSet" in version "jobset.x-k8s.io/v1alpha2"'
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": "train.1"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "TrainJobResourcesCreationFailed",
        "message": f"TrainJob resources reconciliation failed: {why}",
    }
    explained = start("k8s", "explain", "train").ended()
    patch = """kubectl patch trainjob train -n default --type merge -p '{"spec":{"suspend":false}}'"""
    assert patch in explained.out
    fake.create(event)
    fake.change("trainjobs", "train", lambda job: job["spec"].update(suspend=False))
    explained = start("k8s", "explain", "train").ended()
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
        kubeflow.fake.kubelet.run(name)
    kubeflow.reports(node=1)
    first = "train-node-0-0-abcde"
    kubeflow.fake.write_log(first, "epoch 1\n")
    command.prints("epoch 1\n")
    kubeflow.fake.kubelet.finish(first, 3)
    kubeflow.reports({"type": "Failed", "status": "True", "reason": "FailedJobs"})
    assert command.ends() == 3


def test_what_is_not_made_is_named_and_nothing_of_it_stays(
    start: Start, fake: FakeCluster, kubeflow: Trainer
) -> None:
    fake.faults.forbid(UNKNOWN, resource="trainjobs")
    start(*SUBMIT, "--runtime", "ringleader", *TRAIN).ended(
        3, "there is no runtime of this name", "kubectl get clustertrainingruntimes"
    )
    fake.faults.clear()
    fake.faults.forbid("exceeded quota: team", resource="trainjobs")
    assert start(*SUBMIT, *TRAIN).ends() == 3
    assert fake.list("trainingruntimes") == []
    fake.faults.clear()
    fake.faults.drop(verb="create", resource="trainjobs")  # whether it was made is not known
    start(*SUBMIT, *TRAIN).ended(3, "kubectl delete trainingruntime train -n default")


def test_a_cluster_without_trainer(start: Start, fake: FakeCluster) -> None:
    start(*SUBMIT, *TRAIN).ended(
        3,
        "this cluster has no TrainingRuntime (trainer.kubeflow.org/v1alpha1)",
        "Kubeflow Trainer v2 is not installed",
    )
    listed = start("k8s", "status")
    assert (listed.ends(), listed.out) == (0, "")


def test_a_namespace_without_rights(
    start: Start, fake: FakeCluster, kubeflow: Trainer, tmp_path: Path
) -> None:
    """Kubeflow's role for users lets them make TrainJobs, and only read runtimes."""
    rules = [{"apiGroups": ["trainer.kubeflow.org"], "resources": ["trainjobs"], "verbs": ["*"]}]
    own = kubeconfig_of(fake, tmp_path / "eve", rules)
    start(*SUBMIT, *TRAIN, kubeconfig=own).ended(
        3, "ask for a Role with the verb create on trainingruntimes.trainer.kubeflow.org", "--runtime"
    )
    start(*SUBMIT, "--detach", "--runtime", "ringleader", *TRAIN, kubeconfig=own).ended()
    assert fake.get("trainjobs", "train") is not None
    listed = start("k8s", "status", kubeconfig=own)  # MPIJobs are forbidden, whether or not there are any
    assert listed.ends() == 0 and "train" in listed.out


def test_pods_without_an_operator_are_not_trainers(start: Start) -> None:
    start(*SUBMIT, "--on", "pods", *TRAIN).ended(2, "makes Pods without Kubeflow Trainer")


def test_nothing_is_sent_of_a_file_with_a_fault(
    start: Start, fake: FakeCluster, kubeflow: Trainer, tmp_path: Path
) -> None:
    elastic = mpijob("second", metadata={"annotations": {"ringleader/min-workers": "1"}})
    path = tmp_path / "jobs.yaml"
    path.write_text("\n---\n".join(map(json.dumps, (mpijob("train"), elastic))))
    start("k8s", "submit", "--as", "trainjob", "--detach", str(path)).ended(
        2, "jobs.yaml:3", "it cannot be elastic"
    )
    assert fake.list("trainjobs") == []


def test_an_mpijob_of_a_file_is_sent_as_one(
    start: Start, fake: FakeCluster, kubeflow: Trainer, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(mpijob("train", metadata={"annotations": {"ringleader/spawn": "exec"}})))
    start("k8s", "submit", "--as", "trainjob", "--detach", str(path)).ended(0, "exec: Trainer has ssh alone")
    assert fake.get("trainjobs", "train") and fake.get("mpijobs", "train") is None

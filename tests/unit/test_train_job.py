"""TrainJobs: what an MPIJob becomes, what Trainer makes of that, what is refused, what is read from files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
from tests import trainer
from tests.mpijobs import mpijob
from tests.unit.test_job_from_options import job as job_of_options

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.mpijob.train_job import TrainJob, read_train_job
from ringleader.kubernetes.mpijob.yaml_text import text_of
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.objects.training_runtime import train_job_of

IMAGE = OperatorSettings(image="ghcr.io/example/ringleader-operator:1")
ALONE = OperatorSettings()
TWICE = [{"name": "data", "mountPath": path} for path in ("/a", "/b")]
CLUSTER_RUNTIME = Path(__file__).parent.parent.parent / "deploy" / "trainer" / "runtime.yaml"
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"np": 4, "slots_per_worker": 2},
    "gpus": {"np": 16, "gpus": 8, "memory": "64Gi", "rdma": "shared"},
    "host-network": {"np": 4, "gpus": 2, "rdma": "host-network"},
    "claims": {"np": 4, "gpus": 2, "rdma": "dra", "rdma_claim_template": "team-pairs"},
    "one-node": {"np": 8, "gpus": 8, "run_launcher_as_worker": True},
    "launcher-as-node": {"np": 6, "slots_per_worker": 2, "run_launcher_as_worker": True},
    "kueue": {"np": 2, "queue": "team-queue", "priority_class": "high", "ttl": 3600, "timeout": 600.0},
}
FIELDS = {
    "volcano": (IMAGE, {"metadata": {"annotations": {"ringleader/gang": "volcano"}}}),
    "coscheduling": (IMAGE, {"metadata": {"annotations": {"ringleader/gang": "scheduler-plugins"}}}),
    "operator-image": (IMAGE, {"slotsPerWorker": 2}),
    "sidecar": (ALONE, {"worker_pod": {"dnsConfig": {"searches": ["x"]}}, "launcher": {"env": [
        {"name": "MASTER_ADDR", "value": "train-worker-0.train"},
        {"name": "PEERS", "value": "train-worker-10.train,my-train-worker-1,train-launcher"},
        {"name": "A", "value": "1"}, {"name": "A", "value": "2"},
    ], "args": ["--host", "train-launcher.train"], "image": "example.org/train-launcher:1",
       "volumeMounts": [{"name": "train-worker-1", "mountPath": "/etc/train-launcher"}]},
       "launcher_pod": {"volumes": [{"name": "train-worker-1", "configMap": {"name": "train-launcher"}}],
                        "tolerations": [{"key": "k", "value": "train-launcher"}]}}),
}  # fmt: skip


def converted(**fields: Any) -> tuple[TrainJob, dict[str, str]]:
    settings, document = fields.pop("settings", ALONE), mpijob(**fields)
    job, changes = train_job_of(read(document), settings)
    return job, {change.where: str(change) for change in changes}


def cases() -> dict[str, TrainJob]:
    made = {name: train_job_of(job_of_options(**words), ALONE)[0] for name, words in OPTIONS.items()}
    for name, (settings, fields) in FIELDS.items():
        made[name] = train_job_of(read(mpijob(**fields)), settings)[0]
    return made


CASES = cases()


@pytest.mark.parametrize("name", ["plain", "gpus", "one-node", "launcher-as-node", "kueue", "operator-image"])
def test_goldens(golden: Callable[[str, str], None], name: str) -> None:
    golden(f"../trainjob/{name}.yaml", text_of(CASES[name].documents()))


@pytest.mark.parametrize("name", list(CASES))
def test_trainer_makes_valid_pods_of_it(name: str) -> None:
    runtime, job = CASES[name].documents()
    read_train_job(job)
    for pod in trainer.pods_of(trainer.jobset_of(job, runtime)).values():
        kubernetes_validate.validate(pod, "1.33", strict=True)
        assert not any(label.startswith("training.kubeflow.org/") for label in pod["metadata"]["labels"])


@pytest.mark.parametrize(
    ("name", "hosts", "launchers"),
    [
        ("plain", ["job-node-0-0", "job-node-0-1"], 1),
        ("one-node", ["job-launcher-0-0"], 1),
        ("launcher-as-node", ["job-node-0-0", "job-node-0-1", "job-launcher-0-0"], 1),
    ],
)
def test_the_hostfile_has_every_host_once(name: str, hosts: list[str], launchers: int) -> None:
    runtime, job = CASES[name].documents()
    called = job["metadata"]["name"]
    lines = trainer.hostfile_of(job, runtime).splitlines()
    slots = job["spec"]["trainer"]["numProcPerNode"]
    assert lines == [f"{host.replace('job', called, 1)}.{called} slots={slots}" for host in hosts]
    pods = trainer.pods_of(trainer.jobset_of(job, runtime))
    assert sum("-launcher-" in pod for pod in pods) == launchers
    launcher = next(pod for pod_name, pod in pods.items() if "-launcher-" in pod_name)
    env = {one["name"]: one["value"] for one in launcher["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == lines[0].split()[0]
    # Open MPI 5 reads these alone.
    assert env["PRTE_MCA_prte_default_hostfile"] == "/etc/mpi/hostfile"


def test_the_key_is_for_its_user_alone() -> None:
    runtime, job = CASES["plain"].documents()
    for pod in trainer.pods_of(trainer.jobset_of(job, runtime)).values():
        volumes = {one["name"]: one for one in pod["spec"]["volumes"]}
        mounts = {one["mountPath"]: one["name"] for one in pod["spec"]["containers"][0]["volumeMounts"]}
        source = volumes[mounts["/root/.ssh"]]["secret"]
        assert source["defaultMode"] == 0o600
        assert source["secretName"] == f"{job['metadata']['name']}-mpi-ssh-auth"


def test_pods_with_the_hosts_network_stay_apart() -> None:
    runtime, job = CASES["host-network"].documents()
    for pod in trainer.pods_of(trainer.jobset_of(job, runtime)).values():
        (apart,) = (
            term["labelSelector"]["matchLabels"]
            for term in pod["spec"]
            .get("affinity", {})
            .get("podAntiAffinity", {})
            .get("requiredDuringSchedulingIgnoredDuringExecution", [{"labelSelector": {"matchLabels": {}}}])
        )
        assert apart.items() <= pod["metadata"]["labels"].items()
        if "-node-" in pod["metadata"]["name"]:
            assert apart == {
                "jobset.sigs.k8s.io/jobset-name": job["metadata"]["name"],
                "jobset.sigs.k8s.io/replicatedjob-name": "node",
            }
            (first,) = pod["spec"]["containers"]
            assert str(first["readinessProbe"]["tcpSocket"]["port"]) in first["args"]


def test_a_node_is_ready_when_its_sshd_listens() -> None:
    def probe(**worker: Any) -> Any:
        runtime, _ = converted(worker=worker)[0].documents()
        node = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]
        return node["template"]["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]

    assert probe()["exec"]["command"][0] == "grep"  # the image's sshd_config names the port
    assert probe(ports=[{"name": "ssh", "containerPort": 2222}])["tcpSocket"] == {"port": 2222}
    assert probe(command=["/usr/sbin/sshd", "-De", "-p", "77"])["tcpSocket"] == {"port": 77}
    assert probe(readinessProbe={"httpGet": {"port": 1}}) == {"httpGet": {"port": 1}}


def test_host_names_are_those_of_trainer() -> None:
    runtime, job = CASES["sidecar"].documents()
    launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"][-1]["template"]["spec"]["template"]
    env = {one["name"]: one["value"] for one in launcher["spec"]["containers"][0]["env"]}
    assert env["MASTER_ADDR"] == "train-node-0-0.train"
    assert env["PEERS"] == "train-node-0-10.train,my-train-worker-1,train-launcher-0-0"
    assert env["A"] == "2"
    assert job["spec"]["trainer"]["args"] == ["--host", "train-launcher-0-0.train"]
    # What is only called alike is not a host.
    spec = launcher["spec"]
    assert job["spec"]["trainer"]["image"] == spec["containers"][0]["image"] == "example.org/train-launcher:1"
    mount = {"name": "train-worker-1", "mountPath": "/etc/train-launcher"}
    assert mount in spec["containers"][0]["volumeMounts"]
    assert {"name": "train-worker-1", "configMap": {"name": "train-launcher"}} in spec["volumes"]
    assert spec["tolerations"] == [{"key": "k", "value": "train-launcher"}]


@pytest.mark.parametrize("name", ["volcano", "coscheduling", "operator-image"])
def test_what_waits_in_its_pod_is_made_with_the_others(name: str) -> None:
    runtime, _ = CASES[name].documents()
    node, launcher = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    assert "dependsOn" not in launcher
    waiting = launcher["template"]["spec"]["template"]["spec"]["initContainers"][-1]
    assert "--hostfile=/etc/mpi/hostfile" in waiting["args"]
    assert {"name": "mpi-hostfile", "mountPath": "/etc/mpi"} in waiting["volumeMounts"]
    scheduler = {"volcano": "volcano", "coscheduling": "scheduler-plugins"}.get(name)
    for one in (node, launcher):
        assert one["template"]["spec"]["template"]["spec"].get("schedulerName") == scheduler
    assert list(runtime["spec"].get("podGroupPolicy", {})) == ([name] if scheduler else [])


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"mpiImplementation": "Intel"}, "spec.mpiImplementation", "Open MPI alone"),
        ({"metadata": {"annotations": {"ringleader/min-workers": "1"}}}, "min-workers]", "elastic"),
        ({"metadata": {"annotations": {"ringleader/gang": "volcano"}}}, "gang]", "all Pods together"),
        ({"metadata": {"annotations": {"ringleader/gang": "kubernetes"}}}, "gang]", "of coscheduling alone"),
        ({"slotsPerWorker": 0}, "spec.slotsPerWorker", "at least 1"),
        ({"runPolicy": {"activeDeadlineSeconds": 0}}, "activeDeadlineSeconds", "at least 1"),
        ({"name": "a" * 45}, "metadata.name", "64 characters"),
        ({"metadata": {"name": "", "generateName": "x-"}}, "metadata.name", "missing"),
    ],
)
def test_what_trainer_cannot_do(fields: dict[str, Any], where: str, what: str) -> None:
    with pytest.raises(RequestError) as caught:
        converted(**fields)
    (fault,) = caught.value.faults
    assert fault.where.endswith(where) and what in fault.what


@pytest.mark.parametrize(
    ("fields", "where", "what"),
    [
        ({"metadata": {"annotations": {"ringleader/spawn": "exec"}}}, "spawn]", "needs sshd"),
        ({"metadata": {"annotations": {"ringleader/ssh-key-type": "rsa"}}}, "ssh-key-type]", "ECDSA"),
        (
            {"metadata": {"annotations": {"ringleader/restart-limit": "3"}}},
            "restart-limit]",
            "the job fails",
        ),
        ({"metadata": {"annotations": {"ringleader/wait-limit": "3"}}}, "wait-limit]", "dependsOn"),
        ({"runPolicy": {"cleanPodPolicy": "None"}}, "cleanPodPolicy", "removes the nodes' Pods"),
        ({"runPolicy": {"ttlSecondsAfterFinished": 5}}, "ttlSecondsAfterFinished", "are kept"),
        ({"runPolicy": {"schedulingPolicy": {"minAvailable": 1}}}, "minAvailable", "counts all Pods"),
    ],
)
def test_what_is_lost_is_said(fields: dict[str, Any], where: str, what: str) -> None:
    (said,) = (text for path, text in converted(**fields)[1].items() if path.endswith(where))
    assert "NOT CARRIED OVER" in said and what in said


def test_nothing_is_lost_of_a_plain_job() -> None:
    _, changes = converted(runPolicy={"cleanPodPolicy": "Running"})
    assert [one for one in changes.values() if "NOT CARRIED OVER" in one] == []


# In a runtime that exists


def cluster_runtime() -> Any:
    import yaml

    return yaml.safe_load(CLUSTER_RUNTIME.read_text())


def test_the_shipped_runtime_gives_valid_pods_and_the_jobs_words() -> None:
    words = {"np": 6, "slots_per_worker": 2, "run_launcher_as_worker": True, "memory": "4Gi", "x": ("A=1",)}
    words |= {"image": "ringleader-train:latest", "mount": ("claim:data:/data",), "node_selector": ("a=b",)}
    job = train_job_of(job_of_options(**words), ALONE, runtime="ringleader")[0]
    (document,) = job.documents()
    read_train_job(document)
    runtime = cluster_runtime()
    pods = trainer.pods_of(trainer.jobset_of(document, runtime))
    assert len(pods) == 3
    for pod in pods.values():
        kubernetes_validate.validate(pod, "1.33", strict=True)
        first = pod["spec"]["containers"][0]
        assert first["resources"]["limits"] == {"memory": "4Gi"}
        assert pod["spec"]["nodeSelector"] == {"a": "b"}
        assert "/data" in [mount["mountPath"] for mount in first["volumeMounts"]]
        assert first["image"] == "ringleader-train:latest"
    assert trainer.hostfile_of(document, runtime).count("slots=2") == 3
    env = {one["name"]: one["value"] for one in document["spec"]["trainer"]["env"]}
    assert env["MASTER_ADDR"].startswith(f"{job.metadata.name}-node-0-0.") and env["A"] == "1"


def test_selectors_in_a_patch_are_those_of_jobset() -> None:
    term = {
        "topologyKey": "host",
        "labelSelector": {"matchLabels": {"training.kubeflow.org/job-name": "train"}},
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    document = mpijob(runLauncherAsWorker=True, worker_pod={"affinity": affinity})
    job, _ = train_job_of(read(document), ALONE, runtime="ringleader")
    said = text_of(job.documents())
    assert "jobset.sigs.k8s.io/jobset-name: train" in said and "training.kubeflow.org" not in said


@pytest.mark.parametrize(
    ("fields", "where"),
    [
        ({"workers": 0}, "spec.mpiReplicaSpecs[Worker]"),
        ({"runLauncherAsWorker": False}, "spec.runLauncherAsWorker"),
        ({"worker": {"image": "y"}}, "containers[0].image"),
        ({"worker": {"command": ["x"]}}, "[Worker].template.spec.containers[0].command"),
        ({"worker_pod": {"hostNetwork": True}}, "[Worker].template.spec.hostNetwork"),
        ({"runPolicy": {"backoffLimit": 3}}, "--backoff-limit)"),
        ({"runPolicy": {"ttlSecondsAfterFinished": 3}}, "--ttl)"),
        ({"runPolicy": {"ttlSecondsAfterFinished": 0}}, "--ttl)"),
        ({"sshAuthMountPath": "/home/me/.ssh"}, "spec.sshAuthMountPath"),
        ({"settings": IMAGE}, "--operator-image"),
        ({"worker": {"volumeMounts": TWICE}}, "[Worker].template.spec.containers[0].volumeMounts"),
        ({"launcher": {"ports": []}}, "[Launcher].template.spec.containers[0].ports"),
        ({"metadata": {"annotations": {"ringleader/gang": "volcano"}}}, "gang]"),
        ({"metadata": {"annotations": {"ringleader/rdma-profile": "shared"}}}, "rdma-profile]"),
    ],
)
def test_what_the_runtime_decides_is_refused(fields: dict[str, Any], where: str) -> None:
    settings = fields.get("settings", ALONE)
    given = {name: value for name, value in fields.items() if name != "settings"}
    document = mpijob(**{"runLauncherAsWorker": True, **given})
    with pytest.raises(RequestError) as caught:
        train_job_of(read(document), settings, runtime="ringleader")
    (fault,) = caught.value.faults
    assert fault.where.endswith(where)


# Manifests


def test_every_fault_of_a_manifest_at_once() -> None:
    patch = {"name": "node", "template": {"spec": {"template": {"spec": {"hostNetwork": True}}}}}
    document = {
        "apiVersion": "trainer.kubeflow.org/v1",
        "kind": "TrainJob",
        "metadata": {"name": "A.b"},
        "spec": {
            "runtimeRef": {"nam": "x"},
            "trainer": {"numNode": 2, "env": [{"name": "A"}, {"name": "A"}]},
            "runtimePatches": [
                {"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [patch]}}}}
            ],
        },
    }
    with pytest.raises(RequestError) as caught:
        read_train_job(document)
    found = {fault.where.rpartition(".")[2]: fault.what for fault in caught.value.faults}
    assert found["apiVersion"] == "'trainer.kubeflow.org/v1' is unknown"
    assert found["numNode"] == "unknown field"
    assert found["env[1]"] == "a second A"
    assert found["manager"] == "'me' has no domain before a /"
    assert "hostNetwork" in found
    assert set(found) >= {"name", "nam"}


@pytest.mark.parametrize("words", [["--launch-with", "ringleader", "--"], ["--", "ringleader", "run"]])
def test_render_refuses_what_submit_refuses(
    words: list[str], call: Callable[..., tuple[int, str, str]]
) -> None:
    code, _, err = call("render", "trainjob", "-n", "2", "--image", "e/t:1", *words, "a")
    assert code == 2 and "has not been tried with the hostfile" in err


@pytest.mark.parametrize(
    ("metadata", "what"),
    [
        ({"name": "t-"}, "is not a DNS label"),
        ({"name": "t" * 64}, "has 64 characters"),
        ({"generateName": "t" * 60 + "-"}, "has 66 characters"),
        ({"generateName": "t-"}, ""),
        ({}, "missing"),
    ],
)
def test_names(metadata: dict[str, str], what: str) -> None:
    document = {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata,
        "spec": {"runtimeRef": {"name": "x"}},
    }
    found = ""
    try:
        read_train_job(document)
    except RequestError as error:
        (fault,) = error.faults
        found = fault.what
    assert found.endswith(what) and bool(found) == bool(what)

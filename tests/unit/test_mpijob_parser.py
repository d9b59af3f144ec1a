"""Manifests of v2beta1: defaults, every rule, every fault at once, each with its place."""

import copy

import pytest

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import MAX_WORKERS, MIN_WORKERS, ON_WORKER_FAILURE
from ringleader.kubernetes.mpijob.model import (
    CleanPodPolicy,
    LauncherCreationPolicy,
    LauncherSpec,
    Metadata,
    MpiImplementation,
    MPIJob,
    ReplicaSpecs,
    RestartPolicy,
    Spec,
    WorkerSpec,
)
from ringleader.kubernetes.mpijob.parser import check, read, request, write
from ringleader.kubernetes.mpijob.yaml_text import documents

TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "image"}]}}
GOOD = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "job", "namespace": "team"},
    "spec": {
        "slotsPerWorker": 2,
        "mpiReplicaSpecs": {
            "Launcher": {"template": TEMPLATE},
            "Worker": {"replicas": 3, "template": TEMPLATE},
        },
    },
}
GONE = object()
SPEC = ("spec",)
POLICY = ("spec", "runPolicy")
GANG = (*POLICY, "schedulingPolicy")
LAUNCHER = ("spec", "mpiReplicaSpecs", "Launcher")
WORKER = ("spec", "mpiReplicaSpecs", "Worker")
NOTES = ("metadata", "annotations")
MIN, MAX = f"metadata.annotations[{MIN_WORKERS}]", f"metadata.annotations[{MAX_WORKERS}]"


def changed(*edits):
    """The good manifest with values put at paths; GONE takes one away."""
    document = copy.deepcopy(GOOD)
    for path, value in edits:
        inner = document
        for key in path[:-1]:
            inner = inner.setdefault(key, {}) if isinstance(inner, dict) else inner[key]
        if value is GONE:
            del inner[path[-1]]
        else:
            inner[path[-1]] = value
    return document


def faults(document, **options):
    with pytest.raises(RequestError) as caught:
        read(document, **options)
    return {fault.where: f"{fault.what} | {fault.hint}" for fault in caught.value.faults}


def test_defaults_are_the_reference_controller_s():
    job = read(changed((("spec", "slotsPerWorker"), GONE)))
    assert job.spec.slots_per_worker == 1
    assert job.spec.run_launcher_as_worker is False
    assert job.spec.ssh_auth_mount_path == "/root/.ssh"
    assert job.spec.launcher_creation_policy is LauncherCreationPolicy.AT_STARTUP
    assert job.spec.mpi_implementation is MpiImplementation.OPENMPI
    policy = job.spec.run_policy
    assert policy.clean_pod_policy is CleanPodPolicy.NONE
    assert policy.suspend is False
    unset = (policy.ttl_seconds_after_finished, policy.active_deadline_seconds, policy.backoff_limit)
    assert (*unset, policy.scheduling_policy, policy.managed_by) == (None,) * 5
    launcher, worker = job.spec.mpi_replica_specs.launcher, job.spec.mpi_replica_specs.worker
    assert launcher.replicas == 1
    assert launcher.restart_policy is RestartPolicy.ON_FAILURE
    assert worker.restart_policy is RestartPolicy.NEVER
    assert launcher.template == TEMPLATE
    assert job.workers == 3


def test_a_launcher_alone_is_a_job():
    job = read(changed((WORKER, GONE)))
    assert job.spec.mpi_replica_specs.worker is None
    assert job.workers == 0


@pytest.mark.parametrize("field", ["sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"])
def test_an_empty_string_is_the_default(field):
    assert read(changed(((*SPEC, field), ""))) == read(GOOD)


def test_null_is_as_good_as_nothing():
    edits = [((*SPEC, "runPolicy"), None), ((*LAUNCHER, "restartPolicy"), None), (("status",), None)]
    assert read(changed(*edits)) == read(GOOD)


RULES = [
    # where, value, the path that is shown, words of the message
    (("metadata", "name"), GONE, "metadata.name", "missing"),
    (("metadata", "name"), "a.b", "metadata.name", "not a DNS label"),
    (("metadata", "name"), "1a", "metadata.name", "letter first"),
    (("metadata", "name"), "A", "metadata.name", "no capitals"),
    (("metadata", "name"), "a" * 55, "metadata.name", "shorten it by 1"),
    (("metadata", "namespace"), "a_b", "metadata.namespace", "not a namespace's name"),
    (("metadata", "labels"), {"a": 1}, "metadata.labels[a]", 'put it in quotes: "1"'),
    (("metadata", "annotations"), {"a": True}, "metadata.annotations[a]", 'put it in quotes: "true"'),
    (("metadata", "labels"), ["a"], "metadata.labels", "a list, a map is needed"),
    (("metadata", "lables"), {}, "metadata.lables", "did you mean labels?"),
    (("metadata", "annotations"), {"ringleader/spawn": "rsh"}, "metadata.annotations[ringleader/spawn]",
     "ssh"),
    (("metadata", "annotations"), {"ringleader/spwan": ""}, "metadata.annotations[ringleader/spwan]",
     "spawn?"),
    (("metadata", "labels"), {1: "a"}, "metadata.labels", "is the number 1, text is needed | put it in"),
    (NOTES, {MIN_WORKERS: "0"}, MIN, "'0' is not a number of workers"),
    (NOTES, {MIN_WORKERS: "two"}, MIN, "'two' is not a number of workers"),
    (NOTES, {MAX_WORKERS: "3"}, MAX, "needs ringleader/min-workers too"),
    (NOTES, {MIN_WORKERS: "3", MAX_WORKERS: "2"}, MIN, "3 is above ringleader/max-workers, 2"),
    (NOTES, {MIN_WORKERS: "4"}, MIN, "4 is above the job's 3 workers"),
    (NOTES, {MIN_WORKERS: "1", MAX_WORKERS: "2"}, MAX, "2 is below the job's 3 workers"),
    (NOTES, {MIN_WORKERS: "2", ON_WORKER_FAILURE: "restart"}, f"metadata.annotations[{ON_WORKER_FAILURE}]",
     "restart starts the whole job"),
    (("status", "conditions"), [{"type": "Created", "status": "True"}, {"type": 5, "status": "True"}],
     "status.conditions[1].type", "text is needed"),
    (("metadata",), GONE, "metadata", "missing"),
    (("apiVersion",), "kubeflow.org/v3", "apiVersion", "unknown"),
    (("apiVersion",), GONE, "apiVersion", "missing"),
    (("apiVersion",), "kubeflow.org/v1alpha2", "apiVersion", "--convert"),
    (("kind",), "Job", "kind", "an MPIJob is needed"),
    (("specs",), {}, "specs", "did you mean spec?"),
    (("spec",), "x", "spec", "the text 'x', fields are needed"),
    (("spec",), GONE, "spec", "missing"),
    ((*SPEC, "mpiReplicaSpecs"), GONE, "spec.mpiReplicaSpecs", "missing"),
    ((*SPEC, "slotsPerWorker"), -1, "spec.slotsPerWorker", "-1, must be at least 0"),
    ((*SPEC, "slotsPerWorker"), "2", "spec.slotsPerWorker", "an integer is needed"),
    ((*SPEC, "slotsPerWorker"), 1.5, "spec.slotsPerWorker", "the number 1.5, an integer"),
    ((*SPEC, "slotsPerWorker"), True, "spec.slotsPerWorker", "true, an integer"),
    ((*SPEC, "slotsPerWorker"), 2**31, "spec.slotsPerWorker", "32 bits"),
    ((*SPEC, "slotPerWorker"), 1, "spec.slotPerWorker", "did you mean slotsPerWorker?"),
    ((*SPEC, "runLauncherAsWorker"), "true", "spec.runLauncherAsWorker", "true or false is needed"),
    ((*SPEC, "launcherCreationPolicy"), "Later", "spec.launcherCreationPolicy", "WaitForWorkersReady"),
    ((*SPEC, "mpiImplementation"), "IntelMPI", "spec.mpiImplementation", "did you mean Intel?"),
    ((*SPEC, "mpiImplementation"), "MVAPICH2", "spec.mpiImplementation", "OpenMPI, Intel, MPICH"),
    ((*SPEC, "sshAuthMountPath"), 5, "spec.sshAuthMountPath", "text is needed"),
    ((*SPEC, "cleanPodPolicy"), "Running", "spec.cleanPodPolicy", "belongs to spec.runPolicy.cleanPodPolicy"),
    ((*SPEC, "suspend"), True, "spec.suspend", "belongs to spec.runPolicy.suspend"),
    ((*SPEC, "mpiDistribution"), "OpenMPI", "spec.mpiDistribution", "spec.mpiImplementation"),
    ((*SPEC, "mainContainer"), "main", "spec.mainContainer", "first container"),
    ((*SPEC, "gpus"), 8, "spec.gpus", "spec.mpiReplicaSpecs[Worker].replicas"),
    ((*SPEC, "template"), {}, "spec.template", "spec.mpiReplicaSpecs[Launcher].template or"),
    ((*POLICY, "cleanPodPolicy"), "Some", "spec.runPolicy.cleanPodPolicy", "None, Running, All"),
    ((*POLICY, "cleanPodPolicy"), "", "spec.runPolicy.cleanPodPolicy", "not supported"),
    ((*POLICY, "ttlSecondsAfterFinished"), -1, "spec.runPolicy.ttlSecondsAfterFinished", "at least 0"),
    ((*POLICY, "activeDeadlineSeconds"), -1, "spec.runPolicy.activeDeadlineSeconds", "at least 0"),
    ((*POLICY, "activeDeadlineSeconds"), 2**63, "spec.runPolicy.activeDeadlineSeconds", "64 bits"),
    ((*POLICY, "backoffLimit"), -1, "spec.runPolicy.backoffLimit", "at least 0"),
    ((*POLICY, "suspend"), "yes", "spec.runPolicy.suspend", "true or false"),
    ((*POLICY, "managedBy"), "me", "spec.runPolicy.managedBy", "kueue.x-k8s.io/multikueue"),
    ((*POLICY, "managedBy"), "", "spec.runPolicy.managedBy", "not supported"),
    ((*GANG, "minAvailable"), -1, "spec.runPolicy.schedulingPolicy.minAvailable", "at least 0"),
    ((*GANG, "scheduleTimeoutSeconds"), "1", "spec.runPolicy.schedulingPolicy.scheduleTimeoutSeconds",
     "an integer"),
    ((*GANG, "minResources"), {"cpu": "much"}, "spec.runPolicy.schedulingPolicy.minResources[cpu]", "500m"),
    ((*GANG, "minResources"), {"cpu": 0.5}, "spec.runPolicy.schedulingPolicy.minResources[cpu]", '"0.5"'),
    ((*GANG, "minResources"), {"cpu": []}, "spec.runPolicy.schedulingPolicy.minResources[cpu]", "such as 4"),
    (LAUNCHER, GONE, "spec.mpiReplicaSpecs[Launcher]", "missing"),
    ((*SPEC, "mpiReplicaSpecs", "worker"), {}, "spec.mpiReplicaSpecs[worker]", "did you mean Worker?"),
    ((*SPEC, "mpiReplicaSpecs", "Master"), {}, "spec.mpiReplicaSpecs[Master]",
     "known here: Launcher, Worker"),
    ((*LAUNCHER, "replicas"), 2, "spec.mpiReplicaSpecs[Launcher].replicas", "2, must be 1"),
    ((*LAUNCHER, "replicas"), 0, "spec.mpiReplicaSpecs[Launcher].replicas", "must be 1"),
    ((*WORKER, "replicas"), 0, "spec.mpiReplicaSpecs[Worker].replicas", "at least 1"),
    ((*WORKER, "replicas"), -3, "spec.mpiReplicaSpecs[Worker].replicas", "at least 1"),
    ((*WORKER, "replicas"), GONE, "spec.mpiReplicaSpecs[Worker].replicas", "missing"),
    ((*LAUNCHER, "restartPolicy"), "Always", "spec.mpiReplicaSpecs[Launcher].restartPolicy", "OnFailure"),
    ((*WORKER, "restartPolicy"), "ExitCode", "spec.mpiReplicaSpecs[Worker].restartPolicy", "Never"),
    ((*WORKER, "template"), GONE, "spec.mpiReplicaSpecs[Worker].template", "missing"),
    ((*WORKER, "template"), {}, "spec.mpiReplicaSpecs[Worker].template.spec.containers", "at least one"),
]  # fmt: skip
POD = "spec.mpiReplicaSpecs[Worker].template"
POD_RULES = [
    ({"spec": {"containers": []}}, f"{POD}.spec.containers", "empty"),
    ({"spec": {"containers": {}}}, f"{POD}.spec.containers", "a map, a list is needed"),
    ({"spec": {"containers": [{}]}}, f"{POD}.spec.containers[0].name", "needs a name"),
    ({"spec": {"containers": ["a"]}}, f"{POD}.spec.containers[0]", "fields are needed"),
    ({"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}, f"{POD}.spec.containers[1].name", "second"),
    ({"spec": {"container": [{"name": "a"}]}}, f"{POD}.spec.containers",
     "is container meant to be containers?"),
    ({"spec": []}, f"{POD}.spec", "a list, fields are needed"),
    ({**TEMPLATE, "metadata": []}, f"{POD}.metadata", "fields are needed"),
    ({**TEMPLATE, "metadata": {"labels": {"a": 1}}}, f"{POD}.metadata.labels[a]", "text is needed"),
    ({**TEMPLATE, "spce": {}}, f"{POD}.spce", "unknown field | did you mean spec?"),
    ({"spec": {**TEMPLATE["spec"], "volumes": [{"name": "data"}, {"name": "ssh-auth"}]}},
     f"{POD}.spec.volumes[1].name", "the controller adds"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("path", "value", "where", "words"),
    [*RULES, *(((*WORKER, "template"), value, where, words) for value, where, words in POD_RULES)],
)
def test_every_rule(path, value, where, words):
    found = faults(changed((path, value)))
    assert where in found, found
    assert words in found[where]
    assert len(found) == 1 or value is GONE or path == ("specs",), found


def test_all_faults_come_at_once():
    edits = [(path, value) for path, value, _, _ in RULES if len(path) > 1 and path != LAUNCHER]
    chosen = {path: value for path, value in edits if value is not GONE and path[:2] != GANG[:2]}
    found = faults(changed(*chosen.items()))
    expected = {where for path, value, where, _ in RULES if path in chosen and chosen[path] is value}
    assert expected <= set(found)
    assert len(expected) > 20


@pytest.mark.parametrize("document", [None, "x", 5, [], True])
def test_what_is_no_object_at_all(document):
    assert "an MPIJob is needed" in faults(document)["the document"]


def test_the_longest_name_that_fits():
    assert (
        object_names.worker("a" * 54, 2)
        == read(changed((("metadata", "name"), "a" * 54))).metadata.name + "-worker-2"
    )
    thousands = [(("metadata", "name"), "a" * 54), ((*WORKER, "replicas"), 11)]
    assert "shorten it by 1" in faults(changed(*thousands))["metadata.name"]
    assert read(changed((("metadata", "namespace"), "a" * 63))).metadata.namespace == "a" * 63


def test_a_generated_name_counts_with_what_the_server_adds():
    good = [(("metadata", "name"), GONE), (("metadata", "generateName"), "a" * 49)]
    assert read(changed(*good)).metadata.generate_name == "a" * 49
    long = [(("metadata", "name"), GONE), (("metadata", "generateName"), "a" * 50)]
    assert "shorten it by 1" in faults(changed(*long))["metadata.generateName"]


def test_what_a_cluster_stored_may_have_fields_we_do_not_know():
    document = changed(
        (("spec", "new"), 1), ((*SPEC, "mpiReplicaSpecs", "Master"), {}), ((*SPEC, "slotsPerWorker"), 2)
    )
    assert read(document, strict=False) == read(GOOD)
    assert len(faults(document)) == 2


FILE = """\
# a comment
---
apiVersion: kubeflow.org/v2beta1
kind: MPIJob
metadata:
  name: job
spec:
  slotsPerWorker: two
  mpiReplicaSpecs:
    Worker:
      replicas: 0
      template: {spec: {containers: [{name: a},
        {name: a}]}}
"""


def test_faults_in_a_file_name_its_lines_in_order():
    (document,) = documents(FILE, "job.yaml")
    with pytest.raises(RequestError) as caught:
        read(document.value, places=document.places)
    assert [fault.where for fault in caught.value.faults] == [
        "job.yaml:8 spec.slotsPerWorker",
        "job.yaml:9 spec.mpiReplicaSpecs[Launcher]",
        "job.yaml:11 spec.mpiReplicaSpecs[Worker].replicas",
        "job.yaml:13 spec.mpiReplicaSpecs[Worker].template.spec.containers[1].name",
    ]


def test_a_job_made_in_python_is_held_against_the_same_rules():
    specs = ReplicaSpecs(launcher=LauncherSpec(template=TEMPLATE), worker=WorkerSpec(replicas=0, template={}))
    job = MPIJob(metadata=Metadata(name="Job"), spec=Spec(mpi_replica_specs=specs, slots_per_worker=-1))
    with pytest.raises(RequestError) as caught:
        check(job)
    assert len(caught.value.faults) == 4
    assert check(read(GOOD)) == read(GOOD)


def test_a_request_has_nothing_of_the_server_s():
    stored = changed(
        (("metadata", "uid"), "u"),
        (("metadata", "resourceVersion"), "5"),
        (("metadata", "generation"), 2),
        (("metadata", "creationTimestamp"), "2026-01-01T00:00:00Z"),
        (("metadata", "managedFields"), [{"manager": "kubectl"}]),
        (("status",), {"conditions": [{"type": "Created", "status": "True"}]}),
    )
    assert read(stored) != read(GOOD)
    assert request(read(stored)) == read(GOOD)
    assert write(read(stored))["metadata"]["uid"] == "u"

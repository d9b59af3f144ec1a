"""Manifests of older versions: what they become (goldens), what changed, what is wrong with them."""

from pathlib import Path

import pytest

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.conversion import convert
from ringleader.kubernetes.mpijob.manifest_files import render
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.mpijob.yaml_text import documents, text_of

FILES = Path(__file__).parent.parent / "golden" / "mpijob"
TEMPLATE = {"spec": {"containers": [{"name": "main", "image": "image"}]}}


def old(version="v1alpha2", worker=None, launcher=None, metadata=None, **spec):
    if version != "v1alpha1":
        launcher = {"template": TEMPLATE, **(launcher or {})}
        worker = {"replicas": 2, "template": TEMPLATE, **(worker or {})}
        spec["mpiReplicaSpecs"] = {"Launcher": launcher, "Worker": worker}
    return {
        "apiVersion": f"kubeflow.org/{version}",
        "kind": "MPIJob",
        "metadata": {"name": "job", **(metadata or {})},
        "spec": spec,
    }


def faults(document, **options):
    with pytest.raises(RequestError) as caught:
        convert(document, **options)
    return {fault.where: f"{fault.what} | {fault.hint}" for fault in caught.value.faults}


@pytest.mark.parametrize("name", ["tensorflow-benchmarks", "v1alpha2", "v1", "v1alpha1"])
def test_goldens(golden, name):
    file = f"{name}.old.yaml"
    rendered = render(documents((FILES / file).read_text(), file), converting=True)
    golden(f"../mpijob/{name}.yaml", text_of([one.value for one in rendered]))
    lines = [line for one in rendered for line in (one.name, *(f"  {change}" for change in one.changes))]
    golden(f"../mpijob/{name}.changes.txt", "".join(f"{line}\n" for line in lines))
    for one in rendered:
        assert read(one.value).metadata.name == one.name
        assert convert(one.value)[1] == ()


def spec(document):
    return convert(document)[0].spec


def test_policies_where_both_places_have_them():
    policy = spec(
        old(backoffLimit=3, cleanPodPolicy="All", runPolicy={"backoffLimit": 1, "cleanPodPolicy": "None"})
    )
    assert (policy.run_policy.backoff_limit, policy.run_policy.clean_pod_policy) == (1, "All")
    assert spec(old(runPolicy={"cleanPodPolicy": "Running"})).run_policy.clean_pod_policy == "Running"


@pytest.mark.parametrize(
    ("version", "given", "launcher", "worker"),
    [
        ("v1alpha2", None, "OnFailure", "OnFailure"),
        ("v1alpha2", "Never", "Never", "Never"),
        ("v1alpha2", "Always", "OnFailure", "OnFailure"),
        ("v1alpha2", "ExitCode", "OnFailure", "OnFailure"),
        ("v1", None, "Never", "Never"),
        ("v1", "Always", "OnFailure", "OnFailure"),
        ("v1", "OnFailure", "OnFailure", "OnFailure"),
        ("v1", "ExitCode", "Never", "Never"),
    ],
)
def test_restart_policies(version, given, launcher, worker):
    one = {} if given is None else {"restartPolicy": given}
    replicas = spec(old(version, launcher=one, worker=one)).mpi_replica_specs
    assert replicas.launcher.restart_policy == launcher
    assert replicas.worker.restart_policy == worker
    lost = [change for change in convert(old(version, launcher=one))[1] if "exit codes" in change.what]
    assert [change.is_lost for change in lost] == ([True] if given == "ExitCode" else [])


@pytest.mark.parametrize(
    ("gpus", "per_node", "workers", "slots"), [(16, 8, 2, 8), (8, 8, 1, 8), (3, 8, 1, 3), (4, 1, 4, 1)]
)
def test_gpus_become_workers(gpus, per_node, workers, slots):
    found = spec(old("v1alpha1", gpus=gpus, gpusPerNode=per_node, template=TEMPLATE))
    assert (found.mpi_replica_specs.worker.replicas, found.slots_per_worker) == (workers, slots)
    first = found.mpi_replica_specs.worker.template["spec"]["containers"][0]
    assert first["resources"]["limits"] == {"nvidia.com/gpu": slots}
    assert "resources" not in found.mpi_replica_specs.launcher.template["spec"]["containers"][0]


def test_a_document_is_left_as_it_was():
    document = old(
        mainContainer="b", worker={"template": {"spec": {"containers": [{"name": "a"}, {"name": "b"}]}}}
    )
    before = repr(document)
    assert convert(document)[0].spec.mpi_replica_specs.worker.template["spec"]["containers"][0]["name"] == "b"
    assert repr(document) == before


def test_an_annotation_of_the_user_s_counts():
    document = old(metadata={"annotations": {"ringleader/spawn": "ssh"}})
    assert convert(document)[0].metadata.annotations == {"ringleader/spawn": "ssh"}


@pytest.mark.parametrize(
    ("document", "where", "words"),
    [
        (old(slotPerWorker=1), "spec.slotPerWorker", "did you mean slotsPerWorker?"),
        (old(cleanPodPolicy="Some"), "spec.cleanPodPolicy", "None, Running, All"),
        (old(mpiDistribution="Intel"), "spec.mpiDistribution", "did you mean IntelMPI?"),
        (old(mpiImplementation="Intel"), "spec.mpiImplementation", "unknown field"),
        (old("v1", mpiDistribution="OpenMPI"), "spec.mpiDistribution", "unknown field"),
        (old("v1", backoffLimit=1), "spec.backoffLimit", "it belongs to spec.runPolicy.backoffLimit"),
        (old(worker={"replicas": 0}), "spec.mpiReplicaSpecs[Worker].replicas", "at least 1"),
        (old(worker={"replicas": None}), "spec.mpiReplicaSpecs[Worker].replicas", "missing"),
        (old(launcher={"template": None}), "spec.mpiReplicaSpecs[Launcher].template", "missing"),
        (old(launcher={"replicas": 2}), "spec.mpiReplicaSpecs[Launcher].replicas", "must be 1"),
        (old(metadata={"name": "a.b"}), "metadata.name", "not a DNS label"),
        ({**old(), "spec": None}, "spec", "missing"),
        ({**old(), "specs": {}}, "specs", "unknown field"),
        ({**old(), "metadata": []}, "metadata", "fields are needed"),
        ({**old(), "kind": "Job"}, "kind", "an MPIJob is needed"),
        (old("v1alpha1", template=TEMPLATE), "spec", "says nowhere how many"),
        (old("v1alpha1", template=TEMPLATE, replicas=1, gpus=1), "spec",
         "replicas and gpus exclude each other"),
        (old("v1alpha1", template=TEMPLATE, gpus=16), "spec.gpusPerNode", "add gpusPerNode"),
        (old("v1alpha1", template=TEMPLATE, gpus=9, gpusPerNode=8), "spec.gpus",
         "9 is not a multiple of gpusPerNode: 8"),
        (old("v1alpha1", template=TEMPLATE, gpus="x", gpusPerNode=8), "spec.gpus",
         "an integer is needed"),
        (old("v1alpha1", replicas=1), "spec.template", "missing"),
        (old("v9"), "apiVersion", "unknown"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_old_manifests(document, where, words):
    found = faults(document)
    assert where in found, found
    assert words in found[where]


def test_faults_found_after_the_move_name_the_old_line():
    text = text_of([old("v1alpha1", template=TEMPLATE, replicas=2000, metadata={"name": "a" * 54})])
    (document,) = documents(text, "old.yaml")
    assert list(faults(document.value, places=document.places)) == ["old.yaml:4 metadata.name"]

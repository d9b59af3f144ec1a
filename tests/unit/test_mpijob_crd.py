"""The CRD: judged by schemas of Kubernetes, an OpenAPI validator and CEL, in agreement with ``read``."""

import copy
import json
import re

import kubernetes_validate
import pytest
from openapi_schema_validator import OAS30Validator
from tests.kube.fake import custom_resources

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.crd import COLUMNS, crd, schema
from ringleader.kubernetes.mpijob.parser import read, write
from ringleader.kubernetes.mpijob.yaml_text import text_of

ANNOTATION_LIMIT = 262_144
"""Bytes that all annotations of an object may have together; ``kubectl apply`` puts the manifest into one."""
STRUCTURAL = {"properties", "items", "additionalProperties"}

CONTAINERS = {"containers": [{"name": "main", "image": "image"}]}
GOOD = {
    "apiVersion": "kubeflow.org/v2beta1",
    "kind": "MPIJob",
    "metadata": {"name": "job"},
    "spec": {
        "mpiReplicaSpecs": {
            "Launcher": {"template": {"spec": CONTAINERS}},
            "Worker": {"replicas": 2, "template": {"spec": CONTAINERS}},
        }
    },
}
L, W = "spec.mpiReplicaSpecs.Launcher", "spec.mpiReplicaSpecs.Worker"
GONE = "(taken away)"


def nodes(node, path="", below=""):
    """Every schema inside a schema with its path, as the apiserver walks a structural schema."""
    yield path or "(root)", node
    for name, inner in node.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    if "items" in node:
        yield from nodes(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), dict):
        yield from nodes(node["additionalProperties"], f"{path}{{}}")


def changed(edits):
    document = copy.deepcopy(GOOD)
    for path, value in edits.items():
        *front, last = path.split(".")
        inner = document
        for key in front:
            inner = inner.setdefault(key, {})
        if value == GONE:
            del inner[last]
        else:
            inner[last] = value
    return document


(KIND,) = custom_resources.kinds_of(crd())
RULES = [rule for _, node in nodes(schema()) for rule in node.get("x-kubernetes-validations", ())]


def server_says(document, old=None):
    """What an API server with this CRD would find wrong: schema, then lists, then CEL."""
    return KIND.custom.faults(document, old)


def reader_says(document):
    try:
        read(document)
    except RequestError as error:
        return [str(fault) for fault in error.faults]
    return []


ACCEPTED = [
    {},
    {f"{W}": GONE},
    {f"{L}.replicas": 1, f"{L}.restartPolicy": "Never", f"{W}.restartPolicy": "OnFailure"},
    {f"{L}.restartPolicy": "", "spec.launcherCreationPolicy": "", "spec.mpiImplementation": ""},
    {"spec.slotsPerWorker": 0, "spec.runLauncherAsWorker": True, "spec.sshAuthMountPath": "/home/m/.ssh"},
    {"spec.launcherCreationPolicy": "WaitForWorkersReady", "spec.mpiImplementation": "MPICH"},
    {"spec.mpiImplementation": "Intel", "spec.runPolicy": {}},
    {"spec.runPolicy": {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0, "backoffLimit": 0}},
    {"spec.runPolicy": {"activeDeadlineSeconds": 0, "suspend": True,
     "managedBy": "kubeflow.org/mpi-operator"}},
    {"spec.runPolicy.schedulingPolicy": {"minAvailable": 3, "queue": "q", "priorityClass": "p"}},
    {"spec.runPolicy.schedulingPolicy": {"minResources": {"cpu": "500m", "memory": "2Gi",
     "nvidia.com/gpu": 4}}},
    {"metadata.name": "a" * 54},
    {"metadata.name": "a" * 54, f"{W}.replicas": 10},
    {"metadata.name": "a" * 51, f"{W}.replicas": 10_000},
    {f"{W}.template.metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}},
    {f"{W}.template.spec.hostNetwork": True, f"{W}.template.spec.tolerations": [{"key": "x"}]},
]  # fmt: skip
REFUSED = [
    {"metadata.name": "a" * 55},
    {"metadata.name": "a" * 54, f"{W}.replicas": 11},
    {"metadata.name": "a.b"},
    {"metadata.name": "9a"},
    {"metadata.name": "a" * 54 + "-"},
    {"spec": GONE},
    {"spec.mpiReplicaSpecs": GONE},
    {L: GONE},
    {f"{L}.template": GONE},
    {f"{L}.template": {}},
    {f"{L}.template.spec.containers": []},
    {f"{L}.template.spec.containers": [{"image": "no name"}]},
    {f"{L}.template.spec.containers": [{"name": ""}]},
    {f"{L}.template.spec.containers": [{"name": "a"}, {"name": "a"}]},
    {f"{L}.template.spec.containers": "x"},
    {f"{L}.template.metadata.labels": {"a": 1}},
    {f"{W}.replicas": GONE},
    {"spec.runPolicy.schedulingPolicy.minResources": {"cpu": "much"}},
    {"spec.runPolicy.schedulingPolicy.minResources": {"cpu": True}},
]


@pytest.mark.parametrize("edits", ACCEPTED, ids=str)
def test_server_and_reader_accept(edits):
    assert reader_says(changed(edits)) == []
    assert server_says(changed(edits)) == []


@pytest.mark.parametrize("edits", REFUSED, ids=str)
def test_server_and_reader_refuse(edits):
    assert reader_says(changed(edits)) != []
    assert server_says(changed(edits)) != []


def leaves():
    """Paths of the spec's fields that hold no fields themselves, Pod templates apart."""
    for path, node in nodes(schema()["properties"]["spec"], "spec"):
        if ".template" not in path and "properties" not in node and "{}" not in path:
            yield path


VALUES = ("", "x", "None", "Never", 0, 1, -1, 2, 1.5, 2**31, 2**63, True, [], {}, {"a": "1"}, {"a": {}})


@pytest.mark.parametrize("path", sorted(leaves()))
def test_server_and_reader_agree_on_any_value_of_any_field(path):
    for value in VALUES:
        document = changed({path: value})
        assert bool(reader_says(document)) is bool(server_says(document)), (value, reader_says(document))


def test_cel_s_messages():
    (message,) = server_says(changed({"metadata.name": "a" * 54, f"{W}.replicas": 11}))
    assert message.endswith("metadata.name is too long: <name>-worker-<replicas-1> has at most 63 characters")
    (message,) = server_says(changed({"metadata.name": "a.b"}))
    assert "metadata.name must be a DNS label" in message


@pytest.mark.parametrize("replicas", [1, 10, 11, 100, 101, 1_000_000_001, 2**31 - 1])
def test_the_longest_name_is_counted_as_the_reader_counts_it(replicas):
    room = 63 - len(f"-worker-{replicas - 1}")
    for length, fits in ((room, True), (room + 1, False)):
        document = changed({"metadata.name": "a" * length, f"{W}.replicas": replicas})
        assert (reader_says(document) == []) is fits
        assert (server_says(document) == []) is fits


def test_no_rule_costs_what_an_api_server_takes_for_unbounded():
    """It has no bound for the length of string(x), nor for lists without maxItems, and refuses such a CRD."""
    for rule in RULES:
        assert not re.search(r"string\(|\.(all|exists|exists_one|map|filter)\(", rule["rule"])
        assert "messageExpression" not in rule


MPI_OPERATOR, MULTIKUEUE = "kubeflow.org/mpi-operator", "kueue.x-k8s.io/multikueue"


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ({}, {}, True),
        ({}, {"spec.runPolicy": {}}, True),
        ({"spec.runPolicy": {"suspend": True}}, {}, True),
        ({"spec.runPolicy.managedBy": MULTIKUEUE}, {"spec.runPolicy.managedBy": MULTIKUEUE}, True),
        ({"spec.runPolicy.managedBy": MULTIKUEUE}, {"spec.runPolicy.managedBy": MPI_OPERATOR}, False),
        ({"spec.runPolicy.managedBy": MULTIKUEUE}, {}, False),
        ({}, {"spec.runPolicy.managedBy": MULTIKUEUE}, False),
    ],
)
def test_who_manages_a_job_cannot_change(before, after, allowed):
    found = "\n".join(server_says(changed(after), old=changed(before)))
    assert not found if allowed else found.endswith("runPolicy.managedBy cannot be changed")


@pytest.mark.parametrize("version", ["1.30", "1.37"])
def test_kubernetes_own_schema_accepts_the_crd(version):
    assert kubernetes_validate.validate(crd(), version, strict=True) == version


def test_small_enough_for_client_side_apply():
    assert len(json.dumps(crd()).encode()) < ANNOTATION_LIMIT / 10


def test_the_schema_is_structural():
    """The rules of the API's documentation ("Specifying a structural schema")."""
    for path, node in nodes(schema()):
        assert node.get("type") or node.get("x-kubernetes-int-or-string"), path
        assert not ("properties" in node and "additionalProperties" in node), path
        assert not {"$ref", "oneOf", "allOf", "anyOf", "not", "nullable"} & set(node), path
        if node.get("x-kubernetes-list-type") == "map":
            required = node["items"]["required"]
            assert set(node["x-kubernetes-list-map-keys"]) <= set(required), path
        if "default" in node:
            assert list(OAS30Validator(node).iter_errors(node["default"])) == [], path
    assert schema()["properties"]["metadata"] == {"type": "object"}


def test_what_the_server_fills_in_is_what_reading_fills_in():
    stored = {path: node["default"] for path, node in nodes(schema()) if "default" in node}
    assert stored == {
        ".spec.slotsPerWorker": 1,
        ".spec.runLauncherAsWorker": False,
        ".spec.runPolicy.suspend": False,
        ".spec.sshAuthMountPath": "/root/.ssh",
        ".spec.launcherCreationPolicy": "AtStartup",
        ".spec.mpiImplementation": "OpenMPI",
    }
    filled = write(read(GOOD))
    for path, default in stored.items():
        inner = filled
        for key in path.strip(".").split("."):
            inner = inner[key]
        assert inner == default


def test_every_path_that_the_crd_names_leads_to_a_field():
    known = {path for path, _ in nodes(schema())} | {".metadata.creationTimestamp"}
    version = crd()["spec"]["versions"][0]
    scale = version["subresources"]["scale"]
    for path in (*(column[2] for column in COLUMNS), *scale.values()):
        assert re.sub(r"\[[^]]*\]", "[]", path) in known, path


def test_every_field_of_a_job_is_in_the_schema():
    everything = {
        "spec.runPolicy": {
            **{"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 1, "activeDeadlineSeconds": 1},
            **{"backoffLimit": 1, "managedBy": MPI_OPERATOR},
            "schedulingPolicy": {
                **{"minAvailable": 1, "queue": "q", "minResources": {"cpu": 1}, "priorityClass": "p"},
                "scheduleTimeoutSeconds": 1,
            },
        },
        "status": {
            "conditions": [{"type": "Created", "status": "True", "reason": "r", "message": "m"}],
            "replicaStatuses": {"Launcher": {"active": 1}, "Worker": {}},
            "startTime": "2026-01-01T00:00:00Z",
        },
    }
    document = write(read(changed(everything)))
    assert server_says(document) == []
    strict = json.loads(json.dumps(custom_resources.for_openapi(schema())))
    for _, node in nodes(strict):
        if "properties" in node and "containers" not in node["properties"]:
            node.setdefault("additionalProperties", False)
    strict["properties"]["metadata"] = {"type": "object"}
    for kind in ("Launcher", "Worker"):
        template = strict["properties"]["spec"]["properties"]["mpiReplicaSpecs"]["properties"][kind]
        template["properties"]["template"] = {"type": "object"}
    assert [error.message for error in OAS30Validator(strict).iter_errors(document)] == []


def test_golden(golden):
    golden("../mpijob/crd.yaml", text_of([crd()]))

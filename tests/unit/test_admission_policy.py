"""The admission policies of the operator's account: what each request comes to, judged offline."""

from typing import Any

import celpy
import pytest
from tests.kube.fake import kinds
from tests.kube.fake.admission import Attempt, refusal
from tests.kube.fake.kinds import Kind, Kinds
from tests.mpijobs import mpijob

from ringleader.errors import RequestError, refuse
from ringleader.kubernetes.mpijob.annotations import KNOWN
from ringleader.kubernetes.mpijob.parser import read
from ringleader.kubernetes.objects import exec_spawn, rdma_annotations
from ringleader.kubernetes.objects.launcher_and_workers import worker_pod
from ringleader.kubernetes.objects.operator_manifests import Installation, manifests
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

POLICIES = [
    one
    for one in manifests(Installation(image="i:1", has_exec_spawn=True))
    if one["kind"] == "ValidatingAdmissionPolicy"
]
US = "system:serviceaccount:mpi-operator:ringleader-operator"
Document = dict[str, Any]
_KNOWN = Kinds()
LEASE, SERVICE_ACCOUNT = (
    _KNOWN.find("coordination.k8s.io", "v1", "leases"),
    _KNOWN.find("", "v1", "serviceaccounts"),
)
POD_GROUP = Kind(
    group="scheduling.volcano.sh", version="v1beta1", plural="podgroups", kind="PodGroup", custom=True
)


def owner(kind: str = "MPIJob", **more: Any) -> Document:
    api = {"MPIJob": "kubeflow.org/v2beta1", "Job": "batch/v1", "ReplicaSet": "apps/v1"}[kind]
    return {"apiVersion": api, "kind": kind, "name": "train", "uid": "u", "controller": True, **more}


def thing(*owners: Document, labels: Document | None = None, name: str = "train", **more: Any) -> Document:
    metadata: Document = {"name": name, "namespace": "team"}
    if owners:
        metadata["ownerReferences"] = list(owners)
    if labels:
        metadata["labels"] = labels
    return {"metadata": metadata, **more}


def launchers_pod(**labels: str) -> Document:
    words = {
        "training.kubeflow.org/operator-name": "mpi-operator",
        "training.kubeflow.org/job-name": "train",
        **labels,
    }
    return thing(owner("Job", name="train-launcher"), labels=words, name="train-launcher-x7k2p")


def with_image(image: str, *, note: str = "", job: str = "train") -> Document:
    found = launchers_pod(**{"training.kubeflow.org/job-name": job})
    found["metadata"]["annotations"] = {"ringleader/hosts": note} if note else {}
    return {**found, "spec": {"containers": [{"name": "main", "image": image}]}}


def role(*rules: Document) -> Document:
    return thing(owner(), name="train-launcher", rules=list(rules))


def binding(ref: Document | None = None, *subjects: Document) -> Document:
    reference = ref or {"kind": "Role", "name": "train-launcher"}
    return thing(owner(), name="train-launcher", roleRef=reference, subjects=list(subjects))


def rule(*pods: str, verbs: tuple[str, ...] = ("get",), resources: tuple[str, ...] = ("pods",)) -> Document:
    return {
        "apiGroups": [""],
        "resources": list(resources),
        "verbs": list(verbs),
        "resourceNames": list(pods),
    }


OURS, NOBODYS = thing(owner()), thing()
FOREIGN = thing(owner("ReplicaSet"))
PLAIN_OWNER = thing({key: value for key, value in owner().items() if key != "controller"})
OLDER = thing(owner(apiVersion="kubeflow.org/v1"))
EVENT = thing(involvedObject={"kind": "MPIJob", "apiVersion": "kubeflow.org/v2beta1", "name": "train"})
KEYS = thing(owner(), type="kubernetes.io/ssh-auth")
TOKEN = thing(owner(), type="kubernetes.io/service-account-token")
ACCOUNT = {"kind": "ServiceAccount", "name": "train-launcher", "namespace": "team"}
CASES = [
    # operation, kind, subresource, new, old, allowed
    ("CREATE", kinds.POD, "", OURS, None, True),
    ("CREATE", kinds.POD, "", NOBODYS, None, False),
    ("CREATE", kinds.POD, "", FOREIGN, None, False),
    ("CREATE", kinds.POD, "", PLAIN_OWNER, None, False),
    ("CREATE", kinds.POD, "", OLDER, None, False),
    ("UPDATE", kinds.POD, "", OURS, OURS, True),
    ("UPDATE", kinds.POD, "", OURS, FOREIGN, False),
    ("UPDATE", kinds.POD, "", NOBODYS, OURS, False),
    ("UPDATE", kinds.POD, "", with_image("a", note="1"), with_image("a"), True),
    ("UPDATE", kinds.POD, "", with_image("b", note="1"), with_image("a"), False),
    ("UPDATE", kinds.POD, "", with_image("a", job="other"), with_image("a"), False),
    ("UPDATE", kinds.POD, "", with_image("a"), with_image("a", job="other"), False),
    ("UPDATE", kinds.POD, "", {**with_image("a"), **thing(owner())}, with_image("a"), False),
    ("CREATE", kinds.POD, "", with_image("a"), None, False),
    ("DELETE", kinds.POD, "", None, OURS, True),
    ("DELETE", kinds.POD, "", None, NOBODYS, False),
    ("DELETE", kinds.POD, "", None, FOREIGN, False),
    ("DELETE", kinds.POD, "", None, launchers_pod(), True),
    ("DELETE", kinds.POD, "", None, launchers_pod(**{"training.kubeflow.org/operator-name": "other"}), False),
    ("DELETE", kinds.POD, "", None, launchers_pod(**{"training.kubeflow.org/job-name": "other"}), False),
    ("DELETE", kinds.POD, "", None, thing(owner("Job", name="train-launcher")), False),
    ("DELETE", kinds.JOB, "", None, launchers_pod(), False),
    ("CREATE", kinds.JOB, "", OURS, None, True),
    ("CREATE", kinds.JOB, "", NOBODYS, None, False),
    ("UPDATE", kinds.JOB, "status", OURS, OURS, True),
    ("UPDATE", kinds.JOB, "status", FOREIGN, FOREIGN, False),
    ("DELETE", kinds.JOB, "", None, OURS, True),
    ("DELETE", kinds.JOB, "", None, NOBODYS, False),
    ("CREATE", kinds.SECRET, "", KEYS, None, True),
    ("CREATE", kinds.SECRET, "", TOKEN, None, False),
    ("CREATE", kinds.SECRET, "", thing(type="kubernetes.io/ssh-auth"), None, False),
    ("UPDATE", kinds.SECRET, "", KEYS, thing(type="Opaque"), False),
    ("CREATE", kinds.CONFIG_MAP, "", OURS, None, True),
    ("UPDATE", kinds.CONFIG_MAP, "", OURS, NOBODYS, False),
    ("CREATE", kinds.SERVICE, "", NOBODYS, None, False),
    ("UPDATE", kinds.SERVICE, "", OURS, OURS, True),
    ("CREATE", SERVICE_ACCOUNT, "", OURS, None, True),
    ("CREATE", SERVICE_ACCOUNT, "", NOBODYS, None, False),
    ("DELETE", POD_GROUP, "", None, OURS, True),
    ("DELETE", POD_GROUP, "", None, NOBODYS, False),
    ("CREATE", kinds.EVENT, "", EVENT, None, True),
    ("CREATE", kinds.EVENT, "", thing(involvedObject={"kind": "Pod", "apiVersion": "v1"}), None, False),
    ("CREATE", kinds.ROLE, "", role(), None, True),
    ("CREATE", kinds.ROLE, "", role(rule("train-worker-0", "train-worker-12")), None, True),
    ("CREATE", kinds.ROLE, "",
     role(rule("train-worker-0", verbs=("get", "create"), resources=("pods/exec",))), None, True),
    ("CREATE", kinds.ROLE, "", role(rule()), None, False),
    ("CREATE", kinds.ROLE, "", role(rule("database-0")), None, False),
    ("CREATE", kinds.ROLE, "", role(rule("train-worker-0-other")), None, False),
    ("CREATE", kinds.ROLE, "", role(rule("train-worker-0", resources=("secrets",))), None, False),
    ("CREATE", kinds.ROLE, "", role(rule("train-worker-0", verbs=("delete",))), None, False),
    ("UPDATE", kinds.ROLE, "", role(rule("train-worker-0")), NOBODYS, False),
    ("CREATE", kinds.ROLE_BINDING, "", binding(None, ACCOUNT), None, True),
    ("CREATE", kinds.ROLE_BINDING, "", binding({"kind": "ClusterRole", "name": "train-launcher"}, ACCOUNT),
     None, False),
    ("CREATE", kinds.ROLE_BINDING, "", binding({"kind": "Role", "name": "other"}, ACCOUNT), None, False),
    ("CREATE", kinds.ROLE_BINDING, "", binding(None, {**ACCOUNT, "namespace": "other"}), None, False),
    ("CREATE", kinds.ROLE_BINDING, "", binding(None, {"kind": "User", "name": "eve"}), None, False),
    ("CONNECT", kinds.POD, "exec", {}, None, False),
    ("UPDATE", LEASE, "", NOBODYS, NOBODYS, True),
]  # fmt: skip


def why_not(case: tuple[Any, ...], user: str = US) -> str:
    operation, kind, subresource, new, old, _ = case
    attempt = Attempt(
        operation=operation,
        kind=kind,
        user=user,
        namespace="team",
        subresource=subresource,
        new=new,
        old=old,
    )
    return " ".join(filter(None, (refusal(policy, attempt) for policy in POLICIES)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[1].plural}-{case[5]}")
def test_what_the_operators_account_may_do(case: tuple[Any, ...]) -> None:
    why = why_not(case)
    assert (why == "") is case[5], why
    # A refusal is a rule's own, not one that could not be judged.
    assert not why or "expression" not in why, why


def with_spec(kind: Kind, **fields: Any) -> Document:
    pod: Document = {"containers": [{"name": "main", "image": "i"}], **fields}
    return thing(owner(), spec={"template": {"spec": pod}} if kind is kinds.JOB else pod)


@pytest.mark.parametrize("kind", [kinds.POD, kinds.JOB], ids=lambda kind: kind.plural)
@pytest.mark.parametrize(
    ("fields", "labels", "why"),
    [
        ({}, {}, ""),
        ({"hostPID": False, "hostIPC": False, "hostNetwork": False}, {}, ""),
        ({"hostPID": True}, {"ringleader/host-network": "allowed"}, "no Pod with hostPID or hostIPC"),
        ({"hostIPC": True}, {"ringleader/host-network": "allowed"}, "no Pod with hostPID or hostIPC"),
        ({"hostNetwork": True}, {}, "kubectl label namespace NAME ringleader/host-network=allowed"),
        ({"hostNetwork": True}, {"ringleader/host-network": "no"}, "hostNetwork needs the label"),
        ({"hostNetwork": True}, {"ringleader/host-network": "allowed"}, ""),
    ],
)
def test_what_pods_may_share_with_their_node(
    kind: Kind, fields: Document, labels: dict[str, str], why: str
) -> None:
    attempt = Attempt(operation="CREATE", kind=kind, user=US, namespace="team", new=with_spec(kind, **fields))
    said = " ".join(filter(None, (refusal(policy, attempt, labels) for policy in POLICIES)))
    assert why in said and bool(why) == bool(said), said


VALUES = ("ssh", "exec", "restart", "keep", "off", "quick", "active", "3", "03", "0", "9" * 12, "", "three")
ANNOTATIONS = [
    {},
    {"example.org/x": "y"},
    {"ringleader/spam": "1"},
    *({name: value} for name in KNOWN for value in VALUES),
    {"ringleader/min-workers": "2", "ringleader/max-workers": "1"},
    {"ringleader/min-workers": "1", "ringleader/max-workers": "2", "ringleader/restart-limit": "1"},
    {"ringleader/min-workers": "1", "ringleader/on-worker-failure": "restart"},
    {"ringleader/max-workers": "2"},
    {"ringleader/min-workers": "2", "ringleader/max-workers": "2"},
    {"ringleader/min-workers": "3"},
    {"ringleader/min-workers": "1", "ringleader/max-workers": "1"},
]
NICS = {
    "profile": ("shared", "dra", "Shared", "sharedd"),
    "resource": ("rdma/hca_a", "nvidia.com/rdma-vf", "hca", "Rdma/hca", "rdma/", "a b/c"),
    "count": ("1", "8", "0", "-1", "x", "1.5", "²"),
    "network": ("net", "fabric/roce", "a, b/c,d@net1", "Fabric/roce", "a/b/c", "a;b"),
    "node-labels": ("nfd", "nfd-0.12, rack=7", "example.org/rack=a_B.c", "rack", "=x", "r k=1", "rack=a/b"),
    "claim-template": ("pair", "a.b-c", "Pair", "-a"),
    "ssh-port": ("2222", "65535", "65536", "0", "99999", "ssh"),
    "spread": ("even", "apart", "none", "wide"),
}
"""Annotation for NICs → values, right and wrong."""


@pytest.mark.parametrize(
    "notes", ANNOTATIONS, ids=lambda notes: ",".join(f"{a}={b}" for a, b in notes.items())
)
def test_a_jobs_annotations_are_judged_as_the_parser_does(notes: dict[str, str]) -> None:
    job = mpijob(workers=2, metadata={"annotations": notes} if notes else {})
    said = [refusal(policy, written(job)) for policy in POLICIES]
    try:
        refuse(rdma_annotations.faults_of(read(job)))
    except RequestError as error:
        assert any(said), error
    else:
        assert not any(said), said
    assert not any("expression" in one for one in said), said


@pytest.mark.parametrize(("name", "value"), [(name, one) for name, some in NICS.items() for one in some])
def test_annotations_for_nics_are_judged_as_the_operator_reads_them(name: str, value: str) -> None:
    """What a profile needs beside a value is the operator's to say."""
    where = f"ringleader/rdma-{name}"
    notes = {"ringleader/rdma-profile": "sriov", where: value}
    job = mpijob(workers=2, metadata={"annotations": notes})
    said = [one for policy in POLICIES if (one := refusal(policy, written(job)))]
    words = ("cannot be read", "is unknown", "is not", "there is no RDMA", "must be at least", "no value")
    found = [one.what for one in rdma_annotations.faults_of(read(job)) if where in one.where]
    assert bool(said) == any(word in what for what in found for word in words), (said, found)
    assert all(one.startswith(f"{where} cannot be read") for one in said), said


@pytest.mark.parametrize(("workers", "allowed"), [(1, False), (2, True), (4, True), (5, False)])
def test_a_jobs_workers_stay_between_its_limits(workers: int, allowed: bool) -> None:
    notes = {"annotations": {"ringleader/min-workers": "2", "ringleader/max-workers": "4"}}
    before, after = mpijob(workers=3, metadata=notes), mpijob(workers=workers, metadata=notes)
    assert any(refusal(policy, written(after, before)) for policy in POLICIES) != allowed
    assert not any(refusal(policy, written(after, after)) for policy in POLICIES)


def written(job: Document, old: Document | None = None) -> Attempt:
    kind = Kind(group="kubeflow.org", version="v2beta1", plural="mpijobs", kind="MPIJob", custom=True)
    operation = "CREATE" if old is None else "UPDATE"
    return Attempt(operation=operation, kind=kind, user="eve", namespace="team", new=job, old=old)


def test_a_job_that_was_stored_with_a_wrong_annotation_can_end() -> None:
    wrong = mpijob(metadata={"annotations": {"ringleader/spam": "1"}})
    ending = mpijob(metadata={"annotations": {"ringleader/spam": "1"}, "finalizers": []})
    applied = mpijob(metadata={"annotations": {"ringleader/spam": "1", "kubectl.kubernetes.io/last": "x"}})
    for new in (ending, applied):
        assert not any(refusal(policy, written(new, wrong)) for policy in POLICIES)
    for name in ("max-workers", "min-workers"):  # what is left out counts too
        notes = {"ringleader/min-workers": "1", "ringleader/max-workers": "2"}
        left = mpijob(metadata={"annotations": {f"ringleader/{name}": "1"}})
        said = any(
            refusal(policy, written(left, mpijob(metadata={"annotations": notes}))) for policy in POLICIES
        )
        assert said == (name == "max-workers")
    assert any(refusal(policy, written(wrong, mpijob())) for policy in POLICIES)


@pytest.mark.parametrize(
    ("wish", "namespace", "allowed"),
    [
        (Installation(image="i:1"), "team", True),
        (Installation(image="i:1"), "kube-system", False),
        (Installation(image="i:1"), "mpi-operator", False),
        (Installation(image="i:1", scope="team"), "team", True),
        (Installation(image="i:1", scope="team"), "other", False),
        (Installation(image="i:1", scope="team"), "mpi-operator", False),
        (Installation(image="i:1", scope="mpi-operator"), "mpi-operator", True),
    ],
)
@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
def test_where_the_operator_may_change_anything(
    wish: Installation, namespace: str, allowed: bool, operation: str
) -> None:
    user = f"system:serviceaccount:{wish.namespace}:{wish.name}"
    attempt = Attempt(
        operation=operation,
        kind=kinds.POD,
        user=user,
        namespace=namespace,
        new=None if operation == "DELETE" else with_spec(kinds.POD),
        old=None if operation == "CREATE" else with_spec(kinds.POD),
    )
    found = [one for one in manifests(wish) if one["kind"] == "ValidatingAdmissionPolicy"]
    said = " ".join(filter(None, (refusal(policy, attempt) for policy in found)))
    assert (said == "") is allowed, said
    assert allowed or "kube-system, in its own namespace" in said


def test_nobody_else_is_judged() -> None:
    for user in (
        "eve",
        "system:serviceaccount:other:ringleader-operator",
        "system:serviceaccount:kube-system:job-controller",
    ):
        assert not [case for case in CASES if why_not(case, user)]


def test_what_the_operator_makes_is_allowed() -> None:
    job = read(mpijob(metadata={"namespace": "team", "uid": "u"}))
    made = [
        (kinds.ROLE, exec_spawn.role(job, ["train-worker-1"])),
        (kinds.ROLE_BINDING, exec_spawn.role_binding(job)),
        (SERVICE_ACCOUNT, exec_spawn.service_account(job)),
        (kinds.POD, worker_pod(job, 1, OperatorSettings())),
    ]
    for one, document in made:
        assert not why_not(("CREATE", one, "", document, None, True))


def test_every_expression_compiles() -> None:
    environment = celpy.Environment()
    for policy in POLICIES:
        for one in (*policy["spec"]["matchConditions"], *policy["spec"]["validations"]):
            environment.compile(one["expression"])

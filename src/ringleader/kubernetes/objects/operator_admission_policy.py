"""Admission policies that keep the operator's account to what belongs to MPIJobs, and MPIJobs to known words.

RBAC cannot say "only Pods that you made": whoever has the operator's token could change every Pod and make
Secrets for every account. These policies (ValidatingAdmissionPolicy, Kubernetes 1.30) say the rest. They hold
for the operator's account alone, and for the kinds of objects alone that its roles name. The last one holds
for everybody's MPIJobs: their annotations are judged when they are written, by the parser's rules. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ringleader.kubernetes.mpijob.annotations import (
    KNOWN,
    MAX_WORKERS,
    MIN_WORKERS,
    NUMBERS,
    ON_WORKER_FAILURE,
    PREFIX,
    RDMA,
    RDMA_PROFILE,
    RESTART,
)
from ringleader.kubernetes.mpijob.crd import PLURAL
from ringleader.kubernetes.mpijob.object_metadata import (
    API_VERSION,
    GROUP,
    JOB_NAME,
    KIND,
    OPERATOR,
    OPERATOR_NAME,
    Document,
    document,
)
from ringleader.kubernetes.objects import rdma_annotations

API = "admissionregistration.k8s.io/v1"
SINCE = "1.30"
"""The first Kubernetes with this API."""
HOST_NETWORK, ALLOWED = "ringleader/host-network", "allowed"
"""Label of namespaces whose jobs may use their nodes' network, as ``--rdma host-network`` does."""
_WRITE = ("CREATE", "UPDATE")
_CHANGE = (*_WRITE, "DELETE")
_RBAC = "rbac.authorization.k8s.io"

_OWNER = f"one.apiVersion == '{API_VERSION}' && one.kind == '{KIND}' && has(one.controller) && one.controller"
_OWNED = "has({0}.metadata.ownerReferences) && {0}.metadata.ownerReferences.exists(one, " + _OWNER + ")"
# Their controller is the launcher's Job, and CEL cannot ask whose that is: the names and the labels tell.
_LAUNCHERS_POD = (
    "request.resource.resource == 'pods'"
    " && has(oldObject.metadata.labels) && has(oldObject.metadata.ownerReferences)"
    f" && '{OPERATOR_NAME}' in oldObject.metadata.labels && '{JOB_NAME}' in oldObject.metadata.labels"
    f" && oldObject.metadata.labels['{OPERATOR_NAME}'] == '{OPERATOR}'"
    " && oldObject.metadata.ownerReferences.exists(one, one.apiVersion == 'batch/v1' && one.kind == 'Job'"
    " && has(one.controller) && one.controller"
    f" && one.name == oldObject.metadata.labels['{JOB_NAME}'] + '-launcher')"
)
# An annotation tells its kubelet that there are other hosts; nothing else of it is the operator's.
_ANNOTATED = (
    f"request.operation == 'UPDATE' && {_LAUNCHERS_POD} && object.spec == oldObject.spec"
    " && object.metadata.labels == oldObject.metadata.labels"
    " && object.metadata.ownerReferences == oldObject.metadata.ownerReferences"
)


class _Policy(NamedTuple):
    """One policy: on which requests of the operator's, and what must hold of them."""

    name: str
    operations: Sequence[str]
    resources: Mapping[str, Sequence[str]]
    """API groups, with blanks between them → resources."""
    rules: Mapping[str, str]
    """CEL expression → what a refusal says."""
    namespaces: Document | None = None
    """Selector of the namespaces that it judges; ``None``: all."""


_OWNERSHIP = _Policy(
    "owned",
    _CHANGE,
    {
        "": ("pods", "services", "configmaps", "secrets", "serviceaccounts"),
        "batch": ("jobs", "jobs/status"),
        _RBAC: ("roles", "rolebindings"),
        "scheduling.volcano.sh scheduling.x-k8s.io scheduling.k8s.io": ("podgroups",),
    },
    {
        f"request.operation == 'DELETE' || ({_OWNED.format('object')}) || ({_ANNOTATED})": (
            f"the operator makes and changes only what an {KIND} controls, and annotations of launchers"
        ),
        f"request.operation == 'CREATE' || ({_OWNED.format('oldObject')}) || ({_ANNOTATED})"
        f" || request.operation == 'DELETE' && {_LAUNCHERS_POD}": (
            f"the operator changes and deletes only what an {KIND} controls, and the Pods of launchers"
        ),
    },
)


def _pods(name: str, *fields: str, message: str, namespaces: Document | None = None) -> _Policy:
    """Return a policy on Pods and Jobs' templates: none sets these fields of a Pod's spec.

    It judges what is created: nobody can change the fields later, and what runs must be cleaned up.
    """
    places = [f"object.spec{part}.{field}" for field in fields for part in ("", ".template.spec")]
    rule = " && ".join(f"(!has({one}) || !{one})" for one in places[::2])
    jobs = " && ".join(f"(!has({one}) || !{one})" for one in places[1::2])
    rules = {f"{rule} && (!has(object.spec.template) || {jobs})": message}
    return _Policy(name, ("CREATE",), {"": ("pods",), "batch": ("jobs",)}, rules, namespaces)


_ALWAYS = (
    _OWNERSHIP,
    _pods("host", "hostPID", "hostIPC", message="the operator makes no Pod with hostPID or hostIPC"),
    _pods(
        "host-network",
        "hostNetwork",
        message=f"hostNetwork needs the label {HOST_NETWORK}={ALLOWED} on the namespace:"
        f" kubectl label namespace NAME {HOST_NETWORK}={ALLOWED}",
        namespaces={"matchExpressions": [{"key": HOST_NETWORK, "operator": "NotIn", "values": [ALLOWED]}]},
    ),
    _Policy(
        "secrets",
        _WRITE,
        {"": ("secrets",)},
        # A Secret of another type could be filled with the token of any account.
        {"object.type == 'kubernetes.io/ssh-auth'": "the operator makes Secrets of ssh keys only"},
    ),
    _Policy(
        "events",
        _WRITE,
        {"": ("events",)},
        {
            f"has(object.involvedObject.kind) && object.involvedObject.kind == '{KIND}'"
            " && has(object.involvedObject.apiVersion)"
            f" && object.involvedObject.apiVersion == '{API_VERSION}'": (
                f"the operator may only write events of {KIND}s"
            ),
        },
    ),
)
_EXEC = (
    _Policy(
        "roles",
        _WRITE,
        {_RBAC: ("roles",)},
        {
            "object.rules.all(rule, rule.apiGroups == [''] && has(rule.resourceNames)"
            " && size(rule.resourceNames) > 0 && has(rule.resources)"
            " && rule.resources.all(name, name in ['pods', 'pods/exec'])"
            " && rule.verbs.all(verb, verb in ['get', 'create'])"
            " && object.metadata.ownerReferences.exists(one,"
            f" {_OWNER} && rule.resourceNames.all(name,"
            " name.matches('^' + one.name + '-worker-[0-9]+$'))))": (
                "the operator's Roles let a launcher into workers of its own job only, by name"
            ),
        },
    ),
    _Policy(
        "rolebindings",
        _WRITE,
        {_RBAC: ("rolebindings",)},
        {
            "object.roleRef.kind == 'Role' && object.roleRef.name == object.metadata.name"
            " && has(object.subjects) && object.subjects.all(one, one.kind == 'ServiceAccount'"
            " && has(one.namespace) && one.namespace == request.namespace)": (
                "the operator binds its own Role to accounts of the same namespace only"
            ),
        },
    ),
    _Policy(
        "exec",
        ("CONNECT",),
        {"": ("pods/exec",)},
        {"false": "the operator lets launchers run commands in workers and runs none itself"},
    ),
)


_NOTES = "object.metadata.annotations"
_BEFORE = f"oldObject.{_NOTES.partition('.')[2]}"
_WORKERS = (
    "(has({0}.spec.mpiReplicaSpecs.Worker) && has({0}.spec.mpiReplicaSpecs.Worker.replicas)"
    " ? {0}.spec.mpiReplicaSpecs.Worker.replicas : 0)"
)
_CHANGED = (
    f"has({_NOTES}) && (request.operation == 'CREATE' || !has({_BEFORE})"
    f" || {_WORKERS.format('object')} != {_WORKERS.format('oldObject')}"
    f" || {_NOTES}.exists(name, name.startsWith('{PREFIX}')"
    f" && !(name in {_BEFORE} && {_BEFORE}[name] == {_NOTES}[name]))"
    f" || {_BEFORE}.exists(name, name.startsWith('{PREFIX}') && !(name in {_NOTES})))"
)
"""A job that was stored with a wrong annotation stays as it is: its end must not be refused."""


def _annotation_rules() -> Iterator[tuple[str, str]]:
    """Yield what must hold of a job's annotations, in CEL, and what a refusal says."""
    known = ", ".join(f"'{name}'" for name in KNOWN)
    rule = f"{_NOTES}.all(name, !name.startsWith('{PREFIX}') || name in [{known}])"
    yield rule, f"an annotation of {PREFIX} is unknown; known are: {', '.join(KNOWN)}"
    for name, allowed in KNOWN.items():
        given = f"!('{name}' in {_NOTES}) || {_NOTES}['{name}']"
        if allowed:
            values = ", ".join(f"'{one}'" for one in allowed)
            yield f"{given} in [{values}]", f"{name} is one of: {', '.join(allowed)}"
        elif name in NUMBERS:
            pattern, what, how = NUMBERS[name]
            yield f"{given}.matches('^{pattern}$')", f"{name} is {what}, {how}"
        elif name in rdma_annotations.FORMS:
            what = f"{name} cannot be read: see the guide on Pods that may use the NIC"
            yield f"{given}.matches(r'^({rdma_annotations.FORMS[name]})$')", what
    nics = f"!{_NOTES}.exists(name, name.startsWith('{RDMA}')) || '{RDMA_PROFILE}' in {_NOTES}"
    yield nics, f"annotations {RDMA}* need {RDMA_PROFILE} too"
    least, most = (f"{_NOTES}['{name}']" for name in (MIN_WORKERS, MAX_WORKERS))
    has_least, has_most = (f"'{name}' in {_NOTES}" for name in (MIN_WORKERS, MAX_WORKERS))
    yield f"!({has_most}) || {has_least}", f"{MAX_WORKERS} needs {MIN_WORKERS} too"
    both = f"!({has_least} && {has_most}) || int({least}) <= int({most})"
    yield both, f"{MIN_WORKERS} is above {MAX_WORKERS}"
    workers = _WORKERS.format("object")
    few = f"!({has_least}) || int({least}) <= {workers}"
    yield few, f"replicas of Worker are below {MIN_WORKERS}"
    yield f"!({has_most}) || int({most}) >= {workers}", f"replicas of Worker are above {MAX_WORKERS}"
    restarts = f"'{ON_WORKER_FAILURE}' in {_NOTES} && {_NOTES}['{ON_WORKER_FAILURE}'] == '{RESTART}'"
    yield f"!({has_least}) || !({restarts})", f"an elastic job ({MIN_WORKERS}) continues: not {RESTART}"


def policies(
    prefix: str,
    *,
    account: str,
    namespace: str,
    scope: str,
    labels: Mapping[str, str],
    has_exec_spawn: bool,
) -> Iterator[Document]:
    """Yield the policies for a service account of a namespace, and what puts each in force.

    ``scope``: the one namespace where it may change anything; empty: all but its own and kube-system.
    """
    user = f"system:serviceaccount:{namespace}:{account}"
    place = {
        f"request.namespace == '{scope}' || '{scope}' == ''"
        f" && !(request.namespace in ['kube-system', '{namespace}'])": (
            "the operator changes nothing in kube-system, in its own namespace, or where it has no jobs"
        )
    }
    by_the_operator = {"name": "by-the-operator", "expression": f"request.userInfo.username == '{user}'"}
    annotations = _Policy("annotations", _WRITE, {GROUP: (PLURAL,)}, dict(_annotation_rules()))
    for one in (*_ALWAYS, *(_EXEC if has_exec_spawn else ()), annotations):
        name, rules = f"{prefix}-{one.name}", {**one.rules, **(place if one is _OWNERSHIP else {})}
        meta: Document = {"name": name, "labels": dict(labels)}
        is_for_all = one is annotations
        selector = {"namespaceSelector": one.namespaces} if one.namespaces else {}
        here = f"('{scope}' == '' || request.namespace == '{scope}') && "
        changed = {"name": "annotations-changed", "expression": f"{here}{_CHANGED}"}
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {**selector, "resourceRules": list(_resource_rules(one))},
            "matchConditions": [changed if is_for_all else by_the_operator],
            "validations": [
                {
                    "expression": expression,
                    "message": message,
                    "reason": "Invalid" if is_for_all else "Forbidden",
                }
                for expression, message in rules.items()
            ],
        }
        yield document(API, "ValidatingAdmissionPolicy", meta, spec=spec)
        binding = {"policyName": name, "validationActions": ["Deny"]}
        yield document(API, "ValidatingAdmissionPolicyBinding", meta, spec=binding)


def _resource_rules(policy: _Policy) -> Iterator[Document]:
    for groups, resources in policy.resources.items():
        yield {
            "apiGroups": groups.split() or [""],
            "apiVersions": ["*"],
            "operations": list(policy.operations),
            "resources": list(resources),
            "scope": "Namespaced",
        }

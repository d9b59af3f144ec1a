"""The kinds of objects that the server knows from the start; definitions of custom ones add more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """One kind of object."""

    group: str
    version: str
    plural: str
    kind: str
    singular: str = ""
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ALL_VERBS
    has_generation: bool = False
    """The server counts changes of what is not metadata or status."""
    needs_version: bool = False
    """A PUT must name the resourceVersion that it replaces."""
    returns_deleted: bool = False
    """DELETE answers with the object, not with a Status."""
    fields: tuple[str, ...] = ()
    """Paths that a field selector may name besides metadata.name and metadata.namespace."""
    custom: Any = field(default=None, repr=False)
    """``definitions.Custom`` of a custom kind."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Name in messages: ``pods``, ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def list_kind(self) -> str:
        return f"{self.kind}List"

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


def _core(plural: str, kind: str, **more: Any) -> Kind:
    return Kind(group="", version="v1", plural=plural, kind=kind, **more)


def _rbac(plural: str, kind: str, *, namespaced: bool) -> Kind:
    return Kind(
        group="rbac.authorization.k8s.io", version="v1", plural=plural, kind=kind, namespaced=namespaced
    )


def _apps(plural: str, kind: str, *short: str) -> Kind:
    return Kind(
        group="apps",
        version="v1",
        plural=plural,
        kind=kind,
        short_names=short,
        categories=("all",),
        subresources=("status", "scale") if kind != "DaemonSet" else ("status",),
        has_generation=True,
    )


def _admission(plural: str, kind: str) -> Kind:
    return Kind(
        group="admissionregistration.k8s.io", version="v1", plural=plural, kind=kind, namespaced=False
    )


def _review(plural: str, kind: str) -> Kind:
    return Kind(
        group="authorization.k8s.io",
        version="v1",
        plural=plural,
        kind=kind,
        namespaced=False,
        verbs=("create",),
    )


POD = _core(
    "pods",
    "Pod",
    short_names=("po",),
    categories=("all",),
    subresources=("status", "log", "exec", "binding", "eviction"),
    has_generation=True,
    returns_deleted=True,
    fields=(
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.nominatedNodeName",
    ),
)
SERVICE = _core(
    "services",
    "Service",
    short_names=("svc",),
    categories=("all",),
    subresources=("status",),
    returns_deleted=True,
    fields=("spec.clusterIP", "spec.type"),
)
CONFIG_MAP = _core("configmaps", "ConfigMap", short_names=("cm",))
SECRET = _core("secrets", "Secret", fields=("type",))
SERVICE_ACCOUNT = _core("serviceaccounts", "ServiceAccount", short_names=("sa",), returns_deleted=True)
EVENT = _core(
    "events",
    "Event",
    short_names=("ev",),
    fields=(
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
)
NAMESPACE = _core(
    "namespaces",
    "Namespace",
    namespaced=False,
    short_names=("ns",),
    subresources=("status", "finalize"),
    verbs=tuple(verb for verb in ALL_VERBS if verb != "deletecollection"),
    fields=("status.phase",),
)
NODE = _core("nodes", "Node", namespaced=False, short_names=("no",), subresources=("status",))
JOB = Kind(
    group="batch",
    version="v1",
    plural="jobs",
    kind="Job",
    categories=("all",),
    subresources=("status",),
    has_generation=True,
    fields=("status.successful",),
)
CRD = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
    short_names=("crd", "crds"),
    categories=("api-extensions",),
    subresources=("status",),
    has_generation=True,
    needs_version=True,
)
ACCESS_REVIEW = _review("selfsubjectaccessreviews", "SelfSubjectAccessReview")
RULES_REVIEW = _review("selfsubjectrulesreviews", "SelfSubjectRulesReview")
ROLE = _rbac("roles", "Role", namespaced=True)
ROLE_BINDING = _rbac("rolebindings", "RoleBinding", namespaced=True)
CLUSTER_ROLE = _rbac("clusterroles", "ClusterRole", namespaced=False)
CLUSTER_ROLE_BINDING = _rbac("clusterrolebindings", "ClusterRoleBinding", namespaced=False)

ADMISSION_POLICY = _admission("validatingadmissionpolicies", "ValidatingAdmissionPolicy")
ADMISSION_BINDING = _admission("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding")

BUILT_IN: tuple[Kind, ...] = (
    POD,
    SERVICE,
    CONFIG_MAP,
    SECRET,
    SERVICE_ACCOUNT,
    EVENT,
    NAMESPACE,
    NODE,
    _core("persistentvolumeclaims", "PersistentVolumeClaim", short_names=("pvc",), subresources=("status",)),
    _core("resourcequotas", "ResourceQuota", short_names=("quota",), subresources=("status",)),
    _core("limitranges", "LimitRange", short_names=("limits",)),
    JOB,
    _apps("deployments", "Deployment", "deploy"),
    _apps("statefulsets", "StatefulSet", "sts"),
    _apps("daemonsets", "DaemonSet", "ds"),
    _apps("replicasets", "ReplicaSet", "rs"),
    ROLE,
    ROLE_BINDING,
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    Kind(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", needs_version=True),
    Kind(
        group="scheduling.k8s.io",
        version="v1",
        plural="priorityclasses",
        kind="PriorityClass",
        namespaced=False,
        short_names=("pc",),
    ),
    Kind(
        group="policy",
        version="v1",
        plural="poddisruptionbudgets",
        kind="PodDisruptionBudget",
        short_names=("pdb",),
        subresources=("status",),
        has_generation=True,
        needs_version=True,
    ),
    CRD,
    ACCESS_REVIEW,
    RULES_REVIEW,
    ADMISSION_POLICY,
    ADMISSION_BINDING,
    Kind(
        group="networking.k8s.io",
        version="v1",
        plural="networkpolicies",
        kind="NetworkPolicy",
        short_names=("netpol",),
        has_generation=True,
    ),
)


class Kinds:
    """Every kind served now, by group, version and plural."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Kind] = {}
        for kind in BUILT_IN:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._served[kind.group, kind.version, kind.plural] = kind

    def remove(self, group: str, plural: str) -> None:
        for key in [key for key in self._served if (key[0], key[2]) == (group, plural)]:
            del self._served[key]

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._served.get((group, version, plural))

    def of_document(self, document: Mapping[str, Any]) -> Kind | None:
        """The kind of a document by apiVersion and kind."""
        asked = (document.get("apiVersion"), document.get("kind"))
        return next((kind for kind in self if (kind.api_version, kind.kind) == asked), None)

    def group_versions(self) -> dict[str, list[str]]:
        """Group → its versions, in order of appearance; the core group is the empty text."""
        found: dict[str, list[str]] = {}
        for kind in self:
            versions = found.setdefault(kind.group, [])
            if kind.version not in versions:
                versions.append(kind.version)
        return found

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(tuple(self._served.values()))

"""The kinds of objects that the server knows from the start; definitions of custom ones add more."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True, eq=False)
class Kind:
    """One kind of object."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    subresources: tuple[str, ...] = ()
    has_generation: bool = False
    """The server counts changes of what is not metadata or status."""
    fields: tuple[str, ...] = ()
    """Paths that a field selector may name besides metadata.name and metadata.namespace."""
    custom: Any = field(default=None, repr=False)
    """``custom_resources.Custom`` of a custom kind."""

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """Name in messages: ``pods``, ``jobs.batch``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources


BUILT_IN: list[Kind] = []


def _kind(group: str, plural: str, kind: str, *subresources: str, cluster: bool = False, **more: Any) -> Kind:
    same = {"group": group, "version": "v1", "plural": plural, "kind": kind, "namespaced": not cluster}
    BUILT_IN.append(Kind(**same, subresources=subresources, **more))
    return BUILT_IN[-1]


_RBAC, _ADMISSION = "rbac.authorization.k8s.io", "admissionregistration.k8s.io"
_ABOUT = tuple(f"involvedObject.{word}" for word in ("kind", "namespace", "name", "uid"))
POD = _kind(
    "", "pods", "Pod", "status", "log", "exec", has_generation=True, fields=("spec.nodeName", "status.phase")
)
SERVICE = _kind("", "services", "Service", "status")
CONFIG_MAP = _kind("", "configmaps", "ConfigMap")
SECRET = _kind("", "secrets", "Secret")
SERVICE_ACCOUNT = _kind("", "serviceaccounts", "ServiceAccount")
EVENT = _kind("", "events", "Event", fields=_ABOUT)
NAMESPACE = _kind("", "namespaces", "Namespace", "status", cluster=True)
NODE = _kind("", "nodes", "Node", "status", cluster=True)
JOB = _kind("batch", "jobs", "Job", "status", has_generation=True)
DEPLOYMENT = _kind("apps", "deployments", "Deployment", "status", has_generation=True)
ROLE = _kind(_RBAC, "roles", "Role")
ROLE_BINDING = _kind(_RBAC, "rolebindings", "RoleBinding")
CLUSTER_ROLE = _kind(_RBAC, "clusterroles", "ClusterRole", cluster=True)
CLUSTER_ROLE_BINDING = _kind(_RBAC, "clusterrolebindings", "ClusterRoleBinding", cluster=True)
LEASE = _kind("coordination.k8s.io", "leases", "Lease")
PRIORITY_CLASS = _kind("scheduling.k8s.io", "priorityclasses", "PriorityClass", cluster=True)
BUDGET = _kind("policy", "poddisruptionbudgets", "PodDisruptionBudget", "status", has_generation=True)
NETWORK_POLICY = _kind("networking.k8s.io", "networkpolicies", "NetworkPolicy", has_generation=True)
CRD = _kind("apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", cluster=True)
ACCESS_REVIEW = _kind(
    "authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", cluster=True
)
ADMISSION_POLICY = _kind(_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", cluster=True)
ADMISSION_BINDING = _kind(
    _ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", cluster=True
)


class Kinds:
    """Every kind served now, by group, version and plural."""

    def __init__(self) -> None:
        self._served: dict[tuple[str, str, str], Kind] = {}
        for kind in BUILT_IN:
            self.add(kind)

    def add(self, kind: Kind) -> None:
        self._served[kind.group, kind.version, kind.plural] = kind

    def remove(self, kind: Kind) -> None:
        self._served.pop((kind.group, kind.version, kind.plural), None)

    def find(self, group: str, version: str, plural: str) -> Kind | None:
        return self._served.get((group, version, plural))

    def of_document(self, document: Mapping[str, Any]) -> Kind | None:
        """The kind of a document by apiVersion and kind."""
        asked = (document.get("apiVersion"), document.get("kind"))
        return next((kind for kind in self if (kind.api_version, kind.kind) == asked), None)

    def __iter__(self) -> Iterator[Kind]:
        return iter(tuple(self._served.values()))

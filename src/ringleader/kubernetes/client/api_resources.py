"""The kinds of objects that we read or write, and where an API server keeps them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from ringleader.errors import Fault, RequestError


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One kind of object."""

    group: str
    """Group of the API; empty for the core group."""
    version: str
    plural: str
    """Name in paths: ``pods``."""
    kind: str
    """Name in documents: ``Pod``."""
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apiVersion`` of a document: ``batch/v1``, or ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path on the server. Without a namespace: of the whole cluster."""
        words = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if self.namespaced and namespace:
            words += ["namespaces", namespace]
        words += [self.plural, *([name] if name else []), *([subresource] if subresource else [])]
        return "/" + "/".join(quote(word, safe="") for word in words)

    def object_path(self, namespace: str, name: str, subresource: str = "") -> str:
        """Return the path of one object.

        RequestError for what would be the path of something else: without a name that of all objects.
        """
        for what, word in (("name", name), *((("namespace", namespace),) if self.namespaced else ())):
            if word in ("", ".", ".."):
                fault = f"{word!r} is not the {what} of an object"
                raise RequestError(
                    Fault(where=self.kind, what=fault, hint="is a variable of the shell unset?")
                )
        return self.path(namespace, name, subresource)


PODS = Resource(group="", version="v1", plural="pods", kind="Pod")
SERVICES = Resource(group="", version="v1", plural="services", kind="Service")
CONFIG_MAPS = Resource(group="", version="v1", plural="configmaps", kind="ConfigMap")
SECRETS = Resource(group="", version="v1", plural="secrets", kind="Secret")
SERVICE_ACCOUNTS = Resource(group="", version="v1", plural="serviceaccounts", kind="ServiceAccount")
EVENTS = Resource(group="", version="v1", plural="events", kind="Event")
NAMESPACES = Resource(group="", version="v1", plural="namespaces", kind="Namespace", namespaced=False)
JOBS = Resource(group="batch", version="v1", plural="jobs", kind="Job")
ROLES = Resource(group="rbac.authorization.k8s.io", version="v1", plural="roles", kind="Role")
ROLE_BINDINGS = Resource(
    group="rbac.authorization.k8s.io", version="v1", plural="rolebindings", kind="RoleBinding"
)
LEASES = Resource(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease")
PRIORITY_CLASSES = Resource(
    group="scheduling.k8s.io",
    version="v1",
    plural="priorityclasses",
    kind="PriorityClass",
    namespaced=False,
)
CRDS = Resource(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    namespaced=False,
)
ACCESS_REVIEWS = Resource(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    namespaced=False,
)
MPIJOBS = Resource(group="kubeflow.org", version="v2beta1", plural="mpijobs", kind="MPIJob")
VOLCANO_POD_GROUPS = Resource(
    group="scheduling.volcano.sh", version="v1beta1", plural="podgroups", kind="PodGroup"
)
PLUGIN_POD_GROUPS = Resource(
    group="scheduling.x-k8s.io", version="v1alpha1", plural="podgroups", kind="PodGroup"
)

ALL = (
    PODS,
    SERVICES,
    CONFIG_MAPS,
    SECRETS,
    SERVICE_ACCOUNTS,
    EVENTS,
    NAMESPACES,
    JOBS,
    ROLES,
    ROLE_BINDINGS,
    LEASES,
    PRIORITY_CLASSES,
    CRDS,
    ACCESS_REVIEWS,
    MPIJOBS,
    VOLCANO_POD_GROUPS,
    PLUGIN_POD_GROUPS,
)

_BY_KIND = {f"{resource.api_version} {resource.kind}": resource for resource in ALL}


def of_document(document: dict[str, object]) -> Resource:
    """Return the resource of a document by ``apiVersion`` and ``kind``; KeyError for one not in ``ALL``."""
    return _BY_KIND[f"{document.get('apiVersion')} {document.get('kind')}"]

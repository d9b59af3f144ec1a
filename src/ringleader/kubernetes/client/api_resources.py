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


def _resource(api: str, plural: str, kind: str, *, namespaced: bool = True) -> Resource:
    group, _, version = api.rpartition("/")
    return Resource(group=group, version=version, plural=plural, kind=kind, namespaced=namespaced)


PODS = _resource("v1", "pods", "Pod")
SERVICES = _resource("v1", "services", "Service")
CONFIG_MAPS = _resource("v1", "configmaps", "ConfigMap")
SECRETS = _resource("v1", "secrets", "Secret")
SERVICE_ACCOUNTS = _resource("v1", "serviceaccounts", "ServiceAccount")
EVENTS = _resource("v1", "events", "Event")
NAMESPACES = _resource("v1", "namespaces", "Namespace", namespaced=False)
JOBS = _resource("batch/v1", "jobs", "Job")
ROLES = _resource("rbac.authorization.k8s.io/v1", "roles", "Role")
ROLE_BINDINGS = _resource("rbac.authorization.k8s.io/v1", "rolebindings", "RoleBinding")
LEASES = _resource("coordination.k8s.io/v1", "leases", "Lease")
PRIORITY_CLASSES = _resource("scheduling.k8s.io/v1", "priorityclasses", "PriorityClass", namespaced=False)
CRDS = _resource(
    "apiextensions.k8s.io/v1", "customresourcedefinitions", "CustomResourceDefinition", namespaced=False
)
ACCESS_REVIEWS = _resource(
    "authorization.k8s.io/v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False
)
MPIJOBS = _resource("kubeflow.org/v2beta1", "mpijobs", "MPIJob")
TRAIN_JOBS = _resource("trainer.kubeflow.org/v1alpha1", "trainjobs", "TrainJob")
TRAINING_RUNTIMES = _resource("trainer.kubeflow.org/v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_TRAINING_RUNTIMES = _resource(
    "trainer.kubeflow.org/v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
VOLCANO_POD_GROUPS = _resource("scheduling.volcano.sh/v1beta1", "podgroups", "PodGroup")
PLUGIN_POD_GROUPS = _resource("scheduling.x-k8s.io/v1alpha1", "podgroups", "PodGroup")
POD_GROUPS = _resource("scheduling.k8s.io/v1beta1", "podgroups", "PodGroup")
ALL = tuple(one for one in list(globals().values()) if isinstance(one, Resource))
"""All of these kinds."""

_BY_KIND = {f"{resource.api_version} {resource.kind}": resource for resource in ALL}


def of_document(document: dict[str, object]) -> Resource:
    """Return the resource of a document by ``apiVersion`` and ``kind``; KeyError for one not in ``ALL``."""
    return _BY_KIND[f"{document.get('apiVersion')} {document.get('kind')}"]

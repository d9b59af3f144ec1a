"""What a cluster needs to run the operator: account, rights, policies, Deployment, metrics. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.errors import Fault, refuse
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.crd import crd
from ringleader.kubernetes.mpijob.object_metadata import GROUP, Document, document
from ringleader.kubernetes.objects.gang_scheduling import NONE
from ringleader.kubernetes.objects.operator_admission_policy import policies
from ringleader.option_fields import flag, option

_RBAC = "rbac.authorization.k8s.io"


def _rule(groups: str, resources: str, verbs: str) -> Document:
    return {"apiGroups": groups.split() or [""], "resources": resources.split(), "verbs": verbs.split()}


JOB_RULES = (
    _rule(GROUP, "mpijobs", "get list watch delete"),
    _rule(GROUP, "mpijobs/status", "get patch"),
    # To own objects in a way that holds up the owner's deletion, where the cluster checks that right.
    _rule(GROUP, "mpijobs/finalizers", "update"),
    _rule("", "pods", "get list watch create patch delete"),
    _rule("", "services", "get list watch create patch"),
    _rule("", "configmaps secrets", "get create patch"),
    _rule("", "events", "create"),
    _rule("batch", "jobs", "get list watch create patch delete"),
    _rule("batch", "jobs/status", "patch"),
    _rule(
        "scheduling.volcano.sh scheduling.x-k8s.io scheduling.k8s.io", "podgroups", "get create patch delete"
    ),
)
"""What looking after jobs takes, in the namespaces where they are."""
LOG_RULES = (_rule("", "pods/log", "get"),)
"""What showing the end of a failed container's log takes besides."""
EXEC_RULES = (
    _rule("", "serviceaccounts", "get create"),
    _rule(_RBAC, "roles rolebindings", "get create patch"),
    # Nobody can give away a right that he has not.
    _rule("", "pods/exec", "get create"),
)
"""What jobs that spawn by exec take besides: a role each, that lets it into its own workers."""
PRIORITY_RULES = (_rule("scheduling.k8s.io", "priorityclasses", "get"),)
"""What reading the priorities of Pods takes: they belong to no namespace."""
LEASE_RULES = (_rule("coordination.k8s.io", "leases", "get create update"),)
"""What holding the Lease takes, in the operator's own namespace."""


def user_roles(labels: Mapping[str, str]) -> Iterator[Document]:
    """Yield cluster roles that add MPIJobs to what Kubernetes lets people view, edit and administer."""
    changes = "get list watch create update patch delete deletecollection"
    for levels, verbs, scale in (
        (("view",), "get list watch", "get"),
        (("edit", "admin"), changes, "get update patch"),
    ):
        into = {f"{_RBAC}/aggregate-to-{one}": "true" for one in levels}
        meta = {"name": f"ringleader-mpijobs-{levels[0]}", "labels": {**labels, **into}}
        rules = [
            _rule(GROUP, "mpijobs", verbs),
            _rule(GROUP, "mpijobs/status", "get"),
            _rule(GROUP, "mpijobs/scale", scale),
        ]
        yield document(f"{_RBAC}/v1", "ClusterRole", meta, rules=rules)


NAME = "ringleader-operator"
NAMESPACE = "mpi-operator"
"""The reference controller's namespace. Its Lease is there, and ours has the same name: of the two
controllers one at most is at work while the one replaces the other."""
METRICS_LABEL = {"metrics": "enabled"}
"""Label of namespaces whose Pods may read the metrics, as kubebuilder's projects have it."""
PORT = 8080
RESOURCES: Mapping[str, Any] = {
    # No limit of CPU: it would only make many jobs start late.
    "requests": {"cpu": "100m", "memory": "128Mi"},
    "limits": {"memory": "512Mi"},
}
_APP = "app.kubernetes.io/name"
_INSTANCE = "app.kubernetes.io/instance"
_LABELS = {_APP: NAME, "app.kubernetes.io/part-of": "ringleader"}
_LONGEST_SCOPE = object_names.LONGEST_LABEL - len(f"{NAME}--metrics")


@dataclass(frozen=True, kw_only=True)
class Installation:
    """How the operator is to be installed."""

    image: str = option(
        "The operator's image: deploy/operator/Dockerfile.",
        default="",
        envvar="RINGLEADER_OPERATOR_IMAGE",
    )
    namespace: str = NAMESPACE
    """Where the operator itself runs."""
    scope: str = ""
    """The one namespace whose jobs it looks after; empty: all namespaces."""
    gang: str = option("Gang scheduler for jobs that do not name one.", default="", metavar="NAME")
    """Empty or ``none``: none."""
    cluster_domain: str = option("Domain at the end of host names: cluster.local.", default="")
    replicas: int = option("Number of operators, one of which is active.", default=1)
    """The others take over when it is gone."""
    wait_timeout: float | None = option(
        "Time for which a launcher waits for workers that have an address but do not answer. [default: 900]",
        metavar="SECONDS",
    )
    has_exec_spawn: bool = flag(
        "Grant the rights that jobs with ringleader/spawn: exec need. [default: reject such jobs]",
        "--exec-spawn/--no-exec-spawn",
    )
    """Rights to make roles and to exec."""
    has_log_tails: bool = flag(
        "Show the end of a failed container's log in status and events; logs may contain secrets. "
        "[default: no]",
        "--log-tails/--no-log-tails",
    )
    """With the right to read logs."""
    has_admission_policy: bool = True
    """Policies that keep the operator's account to what belongs to MPIJobs. They are objects of the cluster,
    and Kubernetes knows them since 1.30."""
    has_network_policy: bool = flag(
        "Allow only Pods of its namespace and of namespaces labeled metrics=enabled to read the metrics.",
        "--network-policy/--no-network-policy",
        default=True,
    )
    has_crd: bool = True
    has_namespace: bool = True

    @property
    def name(self) -> str:
        """What the operator is called: several may lie side by side, each for another namespace."""
        return NAME if self.scope in ("", self.namespace) else f"{NAME}-{self.scope}"

    @property
    def labels(self) -> dict[str, str]:
        """Labels of all that is installed."""
        return {**_LABELS, **self._instance}

    @property
    def selected(self) -> dict[str, str]:
        """Labels that the operator's own Pods have and no others."""
        return {_APP: NAME, **self._instance}

    @property
    def _instance(self) -> dict[str, str]:
        # A Deployment's selector cannot be changed: the usual name goes without the label, as it always did.
        return {} if self.name == NAME else {_INSTANCE: self.name}


def check(installation: Installation) -> None:
    """Raise RequestError with all that is wrong with an installation."""
    scope, image, timeout = installation.scope, installation.image, installation.wait_timeout
    found = []
    for where, name in (("--install-in", installation.namespace), ("--namespace", scope)):
        if name and not object_names.is_namespace(name):
            found.append((where, f"{name!r} is not a namespace's name", "use a-z, 0-9 and -"))
    if installation.name != NAME and len(scope) > _LONGEST_SCOPE:
        what = f"{scope!r} is longer than {_LONGEST_SCOPE} characters: objects are named after it"
        found.append(("--namespace", what, "install it there: leave out --install-in"))
    if not image or any(letter.isspace() for letter in image):
        found.append(("--image", f"{image!r} is not an image", "REGISTRY/NAME:TAG"))
    if installation.replicas < 1:
        found.append(("--replicas", f"{installation.replicas}, must be at least 1", ""))
    if timeout is not None and not 0 < timeout < float("inf"):
        found.append(("--wait-timeout", f"{timeout:g}, must be above 0", ""))
    refuse(Fault(where=where, what=what, hint=hint) for where, what, hint in found)


def manifests(installation: Installation) -> list[Document]:
    """Return every object, in the order in which they are to be made."""
    found = [crd()] if installation.has_crd else []
    found += [_namespace(installation)] if installation.has_namespace else []
    found += [*_account(installation), *_policies(installation)]
    found += [_deployment(installation), _metrics_service(installation)]
    return [*found, *_network_policy(installation), *_budget(installation)]


def _namespace(installation: Installation) -> Document:
    labels = {**_LABELS, "pod-security.kubernetes.io/enforce": "restricted"}
    return document("v1", "Namespace", {"name": installation.namespace, "labels": labels})


def _account(installation: Installation) -> Iterator[Document]:
    """Yield the service account and what it may do."""
    name, scope = installation.name, installation.scope
    yield document("v1", "ServiceAccount", _metadata(installation))
    # Priority classes belong to no namespace: an operator of one namespace does without.
    yield from _granted(installation, name, JOB_RULES if scope else (*JOB_RULES, *PRIORITY_RULES), scope)
    if installation.has_exec_spawn:
        yield from _granted(installation, f"{name}-exec", EXEC_RULES, scope)
    if installation.has_log_tails:
        yield from _granted(installation, f"{name}-logs", LOG_RULES, scope)
    if not scope:
        yield from user_roles(installation.labels)
    yield from _granted(installation, f"{name}-lease", LEASE_RULES, installation.namespace)


def _granted(
    installation: Installation, name: str, rules: Iterable[Document], namespace: str
) -> Iterator[Document]:
    """Yield a role, of one namespace or of the cluster, and what gives it to the operator."""
    kind = "Role" if namespace else "ClusterRole"
    place = {"namespace": namespace} if namespace else {}
    meta: Document = {"name": name, **place, "labels": installation.labels}
    account = {"kind": "ServiceAccount", "name": installation.name, "namespace": installation.namespace}
    role = {"apiGroup": _RBAC, "kind": kind, "name": name}
    yield document(f"{_RBAC}/v1", kind, meta, rules=list(rules))
    yield document(f"{_RBAC}/v1", f"{kind}Binding", meta, roleRef=role, subjects=[account])


def _policies(installation: Installation) -> Iterator[Document]:
    if installation.has_admission_policy:
        # They have no namespace of their own: the name tells whose they are.
        yield from policies(
            f"{installation.name}.{installation.namespace}",
            account=installation.name,
            namespace=installation.namespace,
            scope=installation.scope,
            labels=installation.labels,
            has_exec_spawn=installation.has_exec_spawn,
        )


def _arguments(installation: Installation) -> Iterator[str]:
    yield from (f"--port={PORT}", "--log-format=json")
    if installation.scope:
        yield f"--namespace={installation.scope}"
    if installation.gang not in ("", NONE):
        yield f"--gang-scheduling={installation.gang}"
    if installation.cluster_domain:
        yield f"--cluster-domain={installation.cluster_domain}"
    if installation.wait_timeout is not None:
        yield f"--wait-timeout={installation.wait_timeout:g}"
    if installation.has_exec_spawn:
        yield "--exec-spawn"
    if installation.has_log_tails:
        yield "--log-tails"


def _deployment(installation: Installation) -> Document:
    pod = {
        "serviceAccountName": installation.name,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(installation)],
        "volumes": [{"name": "tmp", "emptyDir": {}}],
    }
    spec = {
        "replicas": installation.replicas,
        "selector": {"matchLabels": installation.selected},
        "template": {"metadata": {"labels": installation.labels}, "spec": pod},
    }
    return document("apps/v1", "Deployment", _metadata(installation), spec=spec)


def _container(installation: Installation) -> Document:
    return {
        "name": "operator",
        "image": installation.image,
        "command": ["ringleader", "operator", "run"],
        "args": list(_arguments(installation)),
        # Jobs' Pods run it, too: it waits there for their workers.
        "env": [{"name": "RINGLEADER_OPERATOR_IMAGE", "value": installation.image}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5},
        "resources": {name: dict(amounts) for name, amounts in RESOURCES.items()},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _metrics_service(installation: Installation) -> Document:
    scraped = {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)}
    meta = {**_metadata(installation, f"{installation.name}-metrics"), "annotations": scraped}
    ports = [{"name": "http", "port": PORT, "targetPort": "http"}]
    return document("v1", "Service", meta, spec={"selector": installation.selected, "ports": ports})


def _network_policy(installation: Installation) -> Iterator[Document]:
    """Yield who may connect to the operator: Pods beside it and of marked namespaces, to the metrics' port.

    The kubelet's probes come from the Pod's own node, which no policy keeps out.
    """
    if installation.has_network_policy:
        sources = [{"podSelector": {}}, {"namespaceSelector": {"matchLabels": dict(METRICS_LABEL)}}]
        spec = {
            "podSelector": {"matchLabels": installation.selected},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": sources, "ports": [{"protocol": "TCP", "port": "http"}]}],
        }
        meta = _metadata(installation, f"{installation.name}-metrics")
        yield document("networking.k8s.io/v1", "NetworkPolicy", meta, spec=spec)


def _budget(installation: Installation) -> Iterator[Document]:
    if installation.replicas > 1:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": installation.selected}}
        yield document("policy/v1", "PodDisruptionBudget", _metadata(installation), spec=spec)


def _metadata(installation: Installation, name: str = "") -> Document:
    return {
        "name": name or installation.name,
        "namespace": installation.namespace,
        "labels": installation.labels,
    }

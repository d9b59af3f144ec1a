"""What a cluster needs to run the operator: its account, rights, Deployment and metrics Service. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.mpijob import names
from ringleader.mpijob.crd import crd
from ringleader.render.kubernetes.gang import NONE
from ringleader.render.kubernetes.labels import Document
from ringleader.render.kubernetes.rights import exec_rules, job_rules, lease_rules, priority_rules, user_roles

NAME = "ringleader-operator"
NAMESPACE = "mpi-operator"
"""The reference controller's namespace. Its Lease is there, and ours has the same name: of the two
controllers one at most is at work while the one replaces the other."""
PORT = 8080
LABELS = {"app.kubernetes.io/name": NAME, "app.kubernetes.io/part-of": "ringleader"}
_SELECTED = {"app.kubernetes.io/name": NAME}
_RBAC = "rbac.authorization.k8s.io"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """How the operator is to be installed."""

    image: str
    namespace: str = NAMESPACE
    """Where the operator itself runs."""
    scope: str = ""
    """The one namespace whose jobs it looks after; empty: all namespaces."""
    gang: str = ""
    """Gang scheduler of jobs that name none; empty or ``none``: none."""
    cluster_domain: str = ""
    replicas: int = 1
    """More than one: one works, the others take over when it is gone."""
    has_exec_spawn: bool = True
    """False: the operator gets no right to make roles and to exec; jobs with ``ringleader/spawn: exec`` do
    not run."""
    has_crd: bool = True
    has_namespace: bool = True


def check(wish: Installation) -> None:
    """Raise RequestError with all that is wrong with an installation."""
    faults = []
    for option, name in (("--install-in", wish.namespace), ("--namespace", wish.scope)):
        if name and not names.is_namespace(name):
            faults.append(
                Fault(where=option, what=f"{name!r} is no namespace's name", hint="use a-z, 0-9 and -")
            )
    if not wish.image or any(letter.isspace() for letter in wish.image):
        faults.append(Fault(where="--image", what=f"{wish.image!r} is no image", hint="REGISTRY/NAME:TAG"))
    if wish.replicas < 1:
        faults.append(Fault(where="--replicas", what=f"{wish.replicas}, must be at least 1"))
    if faults:
        raise RequestError(faults)


def manifests(wish: Installation) -> list[Document]:
    """Return every object, in the order in which they are to be made."""
    found = [crd()] if wish.has_crd else []
    found += [_namespace(wish)] if wish.has_namespace else []
    return [*found, *_account(wish), _deployment(wish), _metrics_service(wish), *_budget(wish)]


def _namespace(wish: Installation) -> Document:
    level = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": wish.namespace, "labels": {**LABELS, **level}},
    }


def _account(wish: Installation) -> Iterator[Document]:
    """Yield the service account and what it may do."""
    yield {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(wish)}
    # Priority classes belong to no namespace: an operator of one namespace does without.
    rules = job_rules() if wish.scope else [*job_rules(), *priority_rules()]
    yield from _granted(wish, NAME, rules, wish.scope)
    if wish.has_exec_spawn:
        yield from _granted(wish, f"{NAME}-exec", exec_rules(), wish.scope)
    if not wish.scope:
        yield from user_roles(LABELS)
    yield from _granted(wish, f"{NAME}-lease", lease_rules(), wish.namespace)


def _granted(wish: Installation, name: str, rules: list[Document], namespace: str) -> Iterator[Document]:
    """Yield a role, of one namespace or of the cluster, and what gives it to the operator."""
    kind = "Role" if namespace else "ClusterRole"
    meta: Document = {"name": name, **({"namespace": namespace} if namespace else {}), "labels": dict(LABELS)}
    yield {"apiVersion": f"{_RBAC}/v1", "kind": kind, "metadata": meta, "rules": rules}
    yield {
        "apiVersion": f"{_RBAC}/v1",
        "kind": f"{kind}Binding",
        "metadata": {**meta, "labels": dict(LABELS)},
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": NAME, "namespace": wish.namespace}],
    }


def _deployment(wish: Installation) -> Document:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": _metadata(wish),
        "spec": {
            "replicas": wish.replicas,
            "selector": {"matchLabels": dict(_SELECTED)},
            "template": {
                "metadata": {"labels": dict(LABELS)},
                "spec": {
                    "serviceAccountName": NAME,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(wish)],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def _container(wish: Installation) -> Document:
    args = [f"--port={PORT}", "--log-format=json"]
    args += [f"--namespace={wish.scope}"] if wish.scope else []
    args += [f"--gang-scheduling={wish.gang}"] if wish.gang not in ("", NONE) else []
    args += [f"--cluster-domain={wish.cluster_domain}"] if wish.cluster_domain else []
    return {
        "name": "operator",
        "image": wish.image,
        "command": ["ringleader", "operator", "run"],
        "args": args,
        # Jobs' Pods run it, too: it waits there for their workers.
        "env": [{"name": "RINGLEADER_OPERATOR_IMAGE", "value": wish.image}],
        "ports": [{"name": "http", "containerPort": PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "http"}, "periodSeconds": 20},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http"}, "periodSeconds": 5},
        # No limit of CPU: it would only make many jobs start late.
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
    }


def _metrics_service(wish: Installation) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            **_metadata(wish, f"{NAME}-metrics"),
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": str(PORT)},
        },
        "spec": {
            "selector": dict(_SELECTED),
            "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
        },
    }


def _budget(wish: Installation) -> list[Document]:
    if wish.replicas < 2:
        return []
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": _metadata(wish),
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": dict(_SELECTED)}},
        }
    ]


def _metadata(wish: Installation, name: str = NAME) -> Document:
    return {"name": name, "namespace": wish.namespace, "labels": dict(LABELS)}

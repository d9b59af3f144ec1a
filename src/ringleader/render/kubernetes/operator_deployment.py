"""The Deployment that runs the operator. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.mpijob.object_metadata import Document

PORT = 8080
RESOURCES: Mapping[str, Any] = {
    # No limit of CPU: it would only make many jobs start late.
    "requests": {"cpu": "100m", "memory": "128Mi"},
    "limits": {"memory": "512Mi"},
}


@dataclass(frozen=True, kw_only=True)
class DeploymentTerms:
    """What of it depends on the installation."""

    image: str
    replicas: int
    account: str
    """Service account in the operator's own namespace."""
    arguments: tuple[str, ...]
    """Of ``ringleader operator run``."""
    labels: Mapping[str, str]
    selected: Mapping[str, str]
    """Those of the labels that only these Pods have."""


def deployment(metadata: Document, terms: DeploymentTerms) -> Document:
    """Return the Deployment with this metadata."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": terms.replicas,
            "selector": {"matchLabels": dict(terms.selected)},
            "template": {
                "metadata": {"labels": dict(terms.labels)},
                "spec": {
                    "serviceAccountName": terms.account,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(terms)],
                    "volumes": [{"name": "tmp", "emptyDir": {}}],
                },
            },
        },
    }


def _container(terms: DeploymentTerms) -> Document:
    return {
        "name": "operator",
        "image": terms.image,
        "command": ["ringleader", "operator", "run"],
        "args": list(terms.arguments),
        # Jobs' Pods run it, too: it waits there for their workers.
        "env": [{"name": "RINGLEADER_OPERATOR_IMAGE", "value": terms.image}],
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

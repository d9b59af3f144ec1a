"""Spawning by exec through the API: who may do it, and what a worker does until then. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import SPAWN, SPAWN_EXEC
from ringleader.kubernetes.mpijob.object_metadata import Document, document, metadata

if TYPE_CHECKING:
    from ringleader.kubernetes.mpijob.model import MPIJob

_RBAC = "rbac.authorization.k8s.io"

SLEEP = ("/bin/sh", "-c", 'trap "exit 0" TERM INT; while :; do sleep 86400 & wait $!; done')
"""What a worker that is spawned into by exec does unless told otherwise; it ends at once when asked to."""


def is_exec(job: MPIJob) -> bool:
    """Say whether mpirun starts its daemons by exec through the API instead of by ssh."""
    return job.metadata.annotations.get(SPAWN) == SPAWN_EXEC


def account_name(job: MPIJob) -> str:
    """Return the service account that the launcher runs as: the template's, else one of the job's own."""
    spec = job.spec.mpi_replica_specs.launcher.template["spec"]
    return (
        spec.get("serviceAccountName")
        or spec.get("serviceAccount")
        or object_names.launcher(job.metadata.name)
    )


def service_account(job: MPIJob) -> Document:
    """Return the launcher's service account."""
    return document("v1", "ServiceAccount", metadata(job, object_names.launcher(job.metadata.name)))


def role(job: MPIJob, pods: Sequence[str]) -> Document:
    """Return what the launcher may do: look at these Pods and run commands in them, nothing else.

    ``pods``: names of workers that are there and this job's own. An exec is a POST in older clients and the
    upgrade of a GET in newer ones: both verbs are needed.
    """
    # A rule without names would hold for every Pod of the namespace.
    verbs = {"pods": ["get"], "pods/exec": ["get", "create"]} if pods else {}
    rules = [
        {"apiGroups": [""], "resources": [name], "verbs": verbs[name], "resourceNames": list(pods)}
        for name in verbs
    ]
    place = metadata(job, object_names.launcher(job.metadata.name))
    return document(f"{_RBAC}/v1", "Role", place, rules=rules)


def role_binding(job: MPIJob) -> Document:
    """Return what gives the role to the launcher's service account."""
    name, namespace = object_names.launcher(job.metadata.name), job.metadata.namespace
    return document(
        f"{_RBAC}/v1",
        "RoleBinding",
        metadata(job, name),
        roleRef={"apiGroup": _RBAC, "kind": "Role", "name": name},
        subjects=[{"kind": "ServiceAccount", "name": account_name(job), "namespace": namespace}],
    )

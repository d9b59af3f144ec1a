"""What the operator may do on a cluster, and what people may do with MPIJobs: the rules of their roles. Pure.

Secrets and ConfigMaps are read by name only: no rule lets the operator list or watch them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ringleader.mpijob.model import GROUP
from ringleader.mpijob.object_metadata import Document

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
    _rule("scheduling.volcano.sh scheduling.x-k8s.io", "podgroups", "get create patch delete"),
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
    for level, levels, verbs, scale in (
        ("view", ("view",), "get list watch", "get"),
        (
            "edit",
            ("edit", "admin"),
            "get list watch create update patch delete deletecollection",
            "get update patch",
        ),
    ):
        into = {f"{_RBAC}/aggregate-to-{one}": "true" for one in levels}
        yield {
            "apiVersion": f"{_RBAC}/v1",
            "kind": "ClusterRole",
            "metadata": {"name": f"ringleader-mpijobs-{level}", "labels": {**labels, **into}},
            "rules": [
                _rule(GROUP, "mpijobs", verbs),
                _rule(GROUP, "mpijobs/status", "get"),
                _rule(GROUP, "mpijobs/scale", scale),
            ],
        }

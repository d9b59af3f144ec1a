"""The Pods that read facts: one for each node, with the NICs that a job's workers would get. Pure."""

from __future__ import annotations

import re
from typing import Any

from ringleader.fabric.cluster_facts import NodeFacts
from ringleader.kubernetes.mpijob.object_metadata import MANAGED_BY
from ringleader.kubernetes.rdma.pod_nics import add_environment, add_nics
from ringleader.kubernetes.rdma.request import NicAllocation

MANAGER = "ringleader-client"
RUN = "ringleader/doctor"
"""Label of the Pods of one call: its random word."""
CONTAINER = "facts"
COMMAND = ("python3", "-P", "-m", "ringleader", "doctor", "--facts")
END_GRACE = 5


def facts_pod(
    node: NodeFacts,
    *,
    index: int,
    run: str,
    namespace: str,
    image: str,
    allocation: NicAllocation,
    seconds: float,
) -> dict[str, Any]:
    """Return the Pod for a node.

    It has no account's token, is never started again, tolerates that node's own taints, and the cluster ends
    it after ``seconds`` whatever becomes of us.
    """
    own = re.sub(r"[^a-z0-9-]+", "-", node.name.lower())[:30].strip("-")
    container: dict[str, Any] = {"name": CONTAINER, "image": image, "command": list(COMMAND)}
    pod: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"ringleader-doctor-{run}-{index}-{own}".rstrip("-"),
            "namespace": namespace,
            "labels": {MANAGED_BY: MANAGER, RUN: run},
        },
        "spec": {
            "affinity": {"nodeAffinity": _only_on(node.name)},
            "tolerations": [
                {
                    "key": taint.key,
                    "operator": "Equal" if taint.value else "Exists",
                    **({"value": taint.value} if taint.value else {}),
                    "effect": taint.effect,
                }
                for taint in node.taints
            ],
            "restartPolicy": "Never",
            "activeDeadlineSeconds": max(1, int(seconds)),
            "terminationGracePeriodSeconds": END_GRACE,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "containers": [container],
        },
    }
    add_nics(pod, allocation, job=run, role="")
    pod["spec"].pop("topologySpreadConstraints", None)  # each Pod has its node
    pod["spec"]["affinity"].pop("podAntiAffinity", None)
    add_environment(container, allocation.env)
    if not allocation.profile.ipc_lock and not allocation.privileged:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return pod


def _only_on(name: str) -> dict[str, Any]:
    """Return an affinity to one node: the scheduler, and so the device plugin, still has its say."""
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
    return {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}

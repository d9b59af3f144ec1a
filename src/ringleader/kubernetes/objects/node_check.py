"""A Pod's check of its node, ``ringleader/check``: its init container, and nodes that it refused. Pure.

``doctor/pod_gate.py`` is what runs in it; `init_containers` are those of the operator's own image.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

from ringleader.kubernetes.mpijob.annotations import CHECK_CONTAINER
from ringleader.kubernetes.mpijob.object_metadata import Document

COMMAND = ("ringleader", "doctor", "--own-faults")
NODE = "RINGLEADER_NODE"
"""Variable that names the node; no right is needed for it."""
_KEPT = ("image", "imagePullPolicy", "envFrom", "resources", "securityContext", "volumeMounts")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def give(spec: Document) -> None:
    """Give a Pod in which ranks run the check of its node, before all other init containers.

    It has what the Pod's first container has, so that it sees the same devices: kubelets give an init
    container's devices to the containers after it, and the Pod needs no more than before.
    """
    first = spec["containers"][0]
    node = {"name": NODE, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    container = {
        "name": CHECK_CONTAINER,
        **{name: deepcopy(first[name]) for name in _KEPT if first.get(name)},
        "command": list(COMMAND),
        "env": [*deepcopy(first.get("env") or []), node],
        # The Pod's status has what it prints: whoever may read the Pod can read why.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    spec["initContainers"] = [container, *(spec.get("initContainers") or ())]


def keep_off(spec: Document, nodes: Sequence[str]) -> None:
    """Keep a Pod off nodes by their names; each alternative of its own node affinity says so, too."""
    if not nodes:
        return
    off = [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]
    affinity = spec.get("affinity") or {}
    of_nodes = affinity.get("nodeAffinity") or {}
    terms = (of_nodes.get(_REQUIRED) or {}).get("nodeSelectorTerms") or [{}]
    terms = [{**term, "matchFields": [*(term.get("matchFields") or ()), *off]} for term in terms]
    spec["affinity"] = {
        **affinity,
        "nodeAffinity": {**of_nodes, _REQUIRED: {"nodeSelectorTerms": terms}},
    }

"""The spec of a v1alpha1 job becomes a v2beta1 spec: one template becomes two, GPUs become workers."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ringleader.mpijob.conversion.conversion_notes import Changes
from ringleader.mpijob.document_faults import ROOT

_SPEC = ROOT.field("spec")
_REPLICAS = _SPEC.field("mpiReplicaSpecs")
_LAUNCHER, _WORKER = _REPLICAS.key("Launcher"), _REPLICAS.key("Worker")
_MASTER = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
"""Labels and taints of a cluster's first nodes: the old word, and the one since Kubernetes 1.24."""
_GPU = "nvidia.com/gpu"


def spec_of_v1alpha1(old: Mapping[str, Any], version: str, changes: Changes) -> dict[str, Any]:
    """Return the spec for v2beta1 of a spec that is right as one of v1alpha1."""
    resource = old.get("processingResourceType") or _GPU
    workers, units, field = _size(old, resource)
    slots = old.get("slotsPerWorker")
    if slots is None:
        slots = units or 1
        changes.add(_SPEC.field("slotsPerWorker"), f"{slots}: as many as a worker has of {resource}, or 1")
    worker = _worker_template(old, resource, units, changes)
    changes.move(_SPEC.field(field), _WORKER.field("replicas"), f": {workers}")
    for name in ("gpusPerNode", "processingUnitsPerNode", "processingResourceType"):
        if old.get(name) is not None:
            changes.add(_SPEC.field(name), f"is now in the workers' limits and in slotsPerWorker: {units}")
    restart = (old["template"].get("spec") or {}).get("restartPolicy")
    return {
        "slotsPerWorker": slots,
        "runPolicy": _run_policy(old, changes),
        "mpiReplicaSpecs": {
            "Launcher": {
                "replicas": 1,
                "restartPolicy": "Never" if restart == "Never" else "OnFailure",
                "template": _launcher_template(old, changes),
            },
            "Worker": {"replicas": workers, "restartPolicy": "OnFailure", "template": worker},
        },
    }


def _size(old: Mapping[str, Any], resource: str) -> tuple[int, int, str]:
    """Return how many workers, each one's processing units (0: unknown), and the field that says so."""
    for field, per_node in (("gpus", "gpusPerNode"), ("processingUnits", "processingUnitsPerNode")):
        if old.get(field) is not None:
            total, most = old[field], old[per_node]
            return (1, total, field) if total < most else (total // most, most, field)
    limits = (_first(old["template"]).get("resources") or {}).get("limits") or {}
    amount = str(limits.get(resource, 0))
    return old["replicas"], int(amount) if amount.isdecimal() else 0, "replicas"


def _run_policy(old: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    here = _SPEC.field("runPolicy")
    policy: dict[str, Any] = {"cleanPodPolicy": "All"}
    changes.add(here.field("cleanPodPolicy"), "All: v1alpha1 always removed the workers at the end")
    for name in ("backoffLimit", "activeDeadlineSeconds"):
        if old.get(name) is not None:
            policy[name] = old[name]
            changes.move(_SPEC.field(name), here.field(name))
    return policy


def _worker_template(old: Mapping[str, Any], resource: str, units: int, changes: Changes) -> dict[str, Any]:
    """Return the workers' template: the job's, without its command, with the processing units as limits."""
    template = _template(old)
    first = _first(template)
    changes.move(_SPEC.field("template"), _WORKER.field("template"), " and the launcher's")
    command = _WORKER.fields("template", "spec", "containers").item(0).field("command")
    dropped = [name for name in ("command", "args") if first.pop(name, None)]
    what = f"{' and '.join(dropped)} dropped: the launcher's; " if dropped else "none: "
    changes.add(command, f"{what}the controller chooses it; it was `sleep 365d`, with ssh it is sshd")
    if units and old.get("replicas") is None:
        resources = first.setdefault("resources", {})
        resources["limits"] = {**(resources.get("limits") or {}), resource: units}
        first["resources"] = resources
    what = "is OnFailure: a StatefulSet always restarts; v2beta1 knows Never and OnFailure"
    changes.add(_WORKER.field("restartPolicy"), what)
    return template


def _launcher_template(old: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the launcher's template: the job's, without resources, on a master where that was asked for."""
    template = _template(old)
    first = _first(template)
    if first.pop("resources", None):
        here = _LAUNCHER.fields("template", "spec", "containers").item(0).field("resources")
        changes.add(here, "dropped: v1alpha1 gave the launcher none")
    if old.get("launcherOnMaster"):
        terms = [{"matchExpressions": [{"key": label, "operator": "Exists"}]} for label in _MASTER]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        template["spec"]["affinity"] = {"nodeAffinity": required}
        template["spec"]["tolerations"] = [{"key": label, "effect": "NoSchedule"} for label in _MASTER]
        changes.move(_SPEC.field("launcherOnMaster"), _LAUNCHER.fields("template", "spec", "affinity"))
    return template


def _template(old: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the template without the restart policy, which v2beta1 has beside it."""
    template = deepcopy(dict(old["template"]))
    template["spec"].pop("restartPolicy", None)
    return template


def _first(template: Mapping[str, Any]) -> dict[str, Any]:
    first = template["spec"]["containers"][0]
    assert isinstance(first, dict)
    return first

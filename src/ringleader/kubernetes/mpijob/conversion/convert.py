"""A manifest of an older version becomes a v2beta1 job, with a list of what changed on the way.

What the old controllers did by themselves is spelt out where v2beta1 does otherwise, so that a job of 2019
runs as it did. The order of the old versions is v1alpha1, v1alpha2, v1; each is read by its own rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.annotations import SPAWN, SPAWN_EXEC
from ringleader.kubernetes.mpijob.conversion.conversion_notes import Change, Changes
from ringleader.kubernetes.mpijob.conversion.from_v1 import spec_of_v1
from ringleader.kubernetes.mpijob.conversion.old_specs import SPECS, V1ALPHA1
from ringleader.kubernetes.mpijob.document_faults import NOWHERE, ROOT, Faults, SourceLines
from ringleader.kubernetes.mpijob.field_schema import FieldFlag, field_schemas
from ringleader.kubernetes.mpijob.model import API_VERSION, GROUP, KIND, Metadata, MPIJob
from ringleader.kubernetes.mpijob.parser import OLD_VERSIONS, read, struct

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


LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the old manifest; with the new one it would lead ``kubectl apply`` astray."""


def convert(document: object, *, places: SourceLines = NOWHERE) -> tuple[MPIJob, tuple[Change, ...]]:
    """Return the job of a manifest of any version as v2beta1 has it, and what became of the old one's words.

    Changes are in the order of the manifest; there are none where it was v2beta1 already. Raises RequestError
    with every fault in it.
    """
    version = _old_version(document)
    if version is None or not isinstance(document, Mapping):
        return read(document, places=places), ()
    _check(document, version, places)
    changes = Changes()
    changes.add(ROOT.field("apiVersion"), f"{document['apiVersion']} is now {API_VERSION}")
    metadata = _metadata(document["metadata"], changes)
    convert_spec = spec_of_v1alpha1 if version == V1ALPHA1 else spec_of_v1
    spec = convert_spec(document["spec"], version, changes)
    _note_spawn(metadata, changes)
    if document.get("status"):
        changes.add(ROOT.field("status"), "dropped: the controller writes it anew")
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    job = read(
        manifest, places=SourceLines(source=places.source, lines={**places.lines, **changes.moved(places)})
    )
    return job, changes.found


def _old_version(document: object) -> str | None:
    """Return the old version that a document says it is of, or ``None``."""
    group, _, version = str(document.get("apiVersion") if isinstance(document, Mapping) else "").partition(
        "/"
    )
    return version if group == GROUP and version in OLD_VERSIONS else None


def _check(document: Mapping[str, Any], version: str, places: SourceLines) -> None:
    """Raise RequestError with what is wrong with a manifest as one of its own version."""
    faults = Faults(places=places)
    if document.get("kind") != KIND:
        faults.add(ROOT.field("kind"), f"{document.get('kind')!r}, an MPIJob is needed", f"kind: {KIND}")
    for name in document:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            faults.add(ROOT.field(str(name)), "unknown field")
    for name, model in (("metadata", Metadata), ("spec", SPECS[version])):
        if document.get(name) is None:
            faults.add(ROOT.field(name), "missing")
        else:
            struct(model, document[name], ROOT.field(name), faults)
    if version == V1ALPHA1 and isinstance(document.get("spec"), Mapping):
        _check_size(document["spec"], faults)
    if faults.found:
        raise RequestError(faults.in_order())


def _check_size(spec: Mapping[str, Any], faults: Faults) -> None:
    """Check that a v1alpha1 job's size is said once, and can be worked out."""
    here = ROOT.field("spec")
    given = [name for name in ("replicas", "gpus", "processingUnits") if spec.get(name) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} exclude each other" if given else "says nowhere how many workers"
        faults.add(here, what, "give one of replicas, gpus, processingUnits")
        return
    per_node = {"gpus": "gpusPerNode", "processingUnits": "processingUnitsPerNode"}.get(given[0])
    if per_node is None:
        return
    total, units = spec[given[0]], spec.get(per_node)
    if units is None:
        hint = f"add {per_node}: what the old operator's flag for it was, often 8"
        faults.add(here.field(per_node), f"missing: {given[0]} alone does not say how many workers", hint)
    elif type(total) is int and type(units) is int and units > 0 and total > units and total % units:
        faults.add(here.field(given[0]), f"{total} is not a multiple of {per_node}: {units}")


def _metadata(metadata: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the metadata without what a server or kubectl added, with the spawn the old version used."""
    here = ROOT.field("metadata")
    ours = {shape.name for shape in field_schemas(Metadata) if not shape.has(FieldFlag.SET_BY_SERVER)}
    kept = {name: value for name, value in metadata.items() if name in ours and value is not None}
    dropped = [name for name in metadata if name not in ours]
    if dropped:
        changes.add(here, f"dropped what the server had set: {', '.join(dropped)}")
    notes = {name: text for name, text in kept.get("annotations", {}).items() if name != LAST_APPLIED}
    if len(notes) < len(kept.get("annotations", {})):
        changes.add(here.field("annotations").key(LAST_APPLIED), "dropped: it holds the old manifest")
    return {**kept, "annotations": {SPAWN: SPAWN_EXEC, **notes}}


def _note_spawn(metadata: Mapping[str, Any], changes: Changes) -> None:
    here = ROOT.fields("metadata", "annotations").key(SPAWN)
    how = metadata["annotations"][SPAWN]
    changes.add(
        here,
        f"{how}: mpirun reaches the workers through the Kubernetes API, as it did; the operator refuses it "
        "unless it was installed with `ringleader operator manifests --exec-spawn` (Helm: execSpawn=true); "
        "remove the annotation for ssh, the way of v2beta1, once the image has sshd",
    )
    changes.add(
        ROOT.fields("metadata", "labels"),
        "Pods have other labels than before: training.kubeflow.org/job-name, job-role and replica-index "
        "in place of mpi_job_name, mpi_role_type (mpi-job-name, mpi-job-role in v1)",
        is_lost=True,
    )

"""A manifest of an older version becomes a v2beta1 job, with a list of what changed on the way. Pure.

What the old controllers did by themselves is spelt out where v2beta1 does otherwise, so that a job of 2019
runs as it did. The order of the old versions is v1alpha1, v1alpha2, v1; each is read by its own rules, which
the specs at the top say.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob.annotations import SPAWN, SPAWN_EXEC
from ringleader.kubernetes.mpijob.document_faults import NOWHERE, ROOT, Faults, FieldPath, SourceLines
from ringleader.kubernetes.mpijob.field_schema import (
    Count,
    FieldFlag,
    IntegerRange,
    MapKey,
    Template,
    field_schemas,
)
from ringleader.kubernetes.mpijob.model import CleanPodPolicy, Metadata, MPIJob, RunPolicy
from ringleader.kubernetes.mpijob.object_metadata import API_VERSION, GROUP, KIND
from ringleader.kubernetes.mpijob.parser import OLD_VERSIONS, read, struct

V1, V1ALPHA2, V1ALPHA1 = OLD_VERSIONS
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""kubectl's copy of the old manifest; with the new one it would lead ``kubectl apply`` astray."""

_SPEC = ROOT.field("spec")
_POLICY = _SPEC.field("runPolicy")
_REPLICAS = _SPEC.field("mpiReplicaSpecs")
_LAUNCHER, _WORKER = _REPLICAS.key("Launcher"), _REPLICAS.key("Worker")
_COMMAND = _WORKER.fields("template", "spec", "containers").item(0).field("command")
_CHOSEN = "none: the controller chooses it; it was `sleep 365d`, with ssh it is sshd"
_MASTER = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")
"""Labels and taints of a cluster's first nodes: the old word, and the one since Kubernetes 1.24."""
_GPU = "nvidia.com/gpu"

# What the controllers of older versions read


class AnyRestartPolicy(StrEnum):
    """Restart policies that the types of older versions named."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class MpiDistribution(StrEnum):
    """MPI libraries as v1alpha2 called them."""

    OPENMPI = "OpenMPI"
    INTEL_MPI = "IntelMPI"
    MPICH = "MPICH"


Positive = Annotated[int, IntegerRange(minimum=1)]
Seconds = Annotated[int, IntegerRange(bits=64, minimum=0)]


@dataclass(frozen=True, kw_only=True)
class OldReplicaSpec:
    """Pods of one kind."""

    replicas: Positive | None = None
    restart_policy: Annotated[AnyRestartPolicy | None, FieldFlag.EMPTY_IS_DEFAULT] = None
    template: Template


@dataclass(frozen=True, kw_only=True)
class OldReplicaSpecs:
    """The two kinds of Pods."""

    launcher: Annotated[OldReplicaSpec, MapKey("Launcher")]
    worker: Annotated[OldReplicaSpec | None, MapKey("Worker")] = None


@dataclass(frozen=True, kw_only=True)
class V1Spec:
    """kubeflow.org/v1: bare Pods, exec through kubectl."""

    mpi_replica_specs: OldReplicaSpecs
    slots_per_worker: Count | None = None
    clean_pod_policy: CleanPodPolicy | None = None
    main_container: str = ""
    run_policy: RunPolicy | None = None
    """``suspend`` and ``managedBy`` are of the training operator's v1 only."""


@dataclass(frozen=True, kw_only=True)
class V1alpha2Spec(V1Spec):
    """kubeflow.org/v1alpha2: a Job and a StatefulSet, exec through kubectl."""

    backoff_limit: Count | None = None
    active_deadline_seconds: Seconds | None = None
    mpi_distribution: MpiDistribution | None = None


@dataclass(frozen=True, kw_only=True)
class V1alpha1Spec:
    """kubeflow.org/v1alpha1: one template for launcher and workers."""

    template: Template
    replicas: Positive | None = None
    gpus: Positive | None = None
    gpus_per_node: Positive | None = None
    processing_units: Positive | None = None
    processing_units_per_node: Positive | None = None
    processing_resource_type: str = ""
    slots_per_worker: Count | None = None
    launcher_on_master: bool = False
    backoff_limit: Count | None = None
    active_deadline_seconds: Seconds | None = None


SPECS = {V1: V1Spec, V1ALPHA2: V1alpha2Spec, V1ALPHA1: V1alpha1Spec}
"""Version → its spec."""

# What a conversion did


@dataclass(frozen=True, kw_only=True)
class Change:
    """One thing that is different now."""

    where: str
    """Field path, in the old manifest's words where it had the field."""
    what: str
    """What became of it."""
    is_lost: bool = False
    """It could not be carried over: somebody should look at it."""

    def __str__(self) -> str:
        lost = "NOT CARRIED OVER: " if self.is_lost else ""
        return f"{self.where}: {lost}{self.what}"


@dataclass(kw_only=True)
class Changes:
    """Collects changes, and which field went where."""

    found: tuple[Change, ...] = ()
    moved: list[tuple[FieldPath, FieldPath]] = field(default_factory=list)
    """Old and new place of each field that has another one now."""

    def add(self, path: FieldPath, what: str, *, is_lost: bool = False) -> None:
        """Note what became of a field; ``is_lost``: v2beta1 cannot say or do it."""
        self.found = (*self.found, Change(where=path.text, what=what, is_lost=is_lost))

    def move(self, old: FieldPath, new: FieldPath, what: str = "") -> None:
        """Note that a field has another place now."""
        self.moved.append((old, new))
        self.add(old, f"is now {new.text}{what}")


def convert(document: object, *, places: SourceLines = NOWHERE) -> tuple[MPIJob, tuple[Change, ...]]:
    """Return the job of a manifest of any version as v2beta1 has it, and what became of the old one's fields.

    Changes are in the order of the manifest; there are none where it was v2beta1 already. Raises RequestError
    with every fault in it.
    """
    given = document.get("apiVersion") if isinstance(document, Mapping) else ""
    group, _, version = str(given).partition("/")
    if not isinstance(document, Mapping) or group != GROUP or version not in OLD_VERSIONS:
        return read(document, places=places), ()
    _check(document, version, places)
    changes = Changes()
    changes.add(ROOT.field("apiVersion"), f"{given} is now {API_VERSION}")
    metadata = _metadata(document["metadata"], changes)
    old = document["spec"]
    spec = _from_v1alpha1(old, changes) if version == V1ALPHA1 else _from_v1(old, version, changes)
    changes.add(
        ROOT.fields("metadata", "annotations").key(SPAWN),
        f"{metadata['annotations'][SPAWN]}: mpirun reaches the workers through the Kubernetes API, as it "
        "did; "
        "the operator refuses it unless it was installed with `ringleader operator manifests --exec-spawn` "
        "(Helm: execSpawn=true); remove the annotation for ssh, the way of v2beta1, once the image has sshd",
    )
    changes.add(
        ROOT.fields("metadata", "labels"),
        "Pods have other labels than before: training.kubeflow.org/job-name, job-role and replica-index "
        "in place of mpi_job_name, mpi_role_type (mpi-job-name, mpi-job-role in v1)",
        is_lost=True,
    )
    if document.get("status"):
        changes.add(ROOT.field("status"), "dropped: the controller writes it anew")
    manifest = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
    # Faults that are found at a field's new place name the line of the old one.
    lines = {new.keys: places.lines[old.keys] for old, new in changes.moved if old.keys in places.lines}
    new_places = SourceLines(source=places.source, lines={**places.lines, **lines})
    return read(manifest, places=new_places), changes.found


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


def _metadata(metadata: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the metadata without what a server or kubectl added, with the spawn the old version used."""
    here = ROOT.field("metadata")
    ours = {one.name for one in field_schemas(Metadata) if not one.has(FieldFlag.SET_BY_SERVER)}
    kept = {name: value for name, value in metadata.items() if name in ours and value is not None}
    dropped = [name for name in metadata if name not in ours]
    if dropped:
        changes.add(here, f"dropped what the server had set: {', '.join(dropped)}")
    notes = dict(kept.get("annotations", {}))
    if notes.pop(LAST_APPLIED, None) is not None:
        changes.add(here.field("annotations").key(LAST_APPLIED), "dropped: it holds the old manifest")
    return {**kept, "annotations": {SPAWN: SPAWN_EXEC, **notes}}


# v1alpha1: one template for both kinds of Pods


def _check_size(spec: Mapping[str, Any], faults: Faults) -> None:
    """Check that a v1alpha1 job's size is said once, and can be worked out."""
    given = [name for name in ("replicas", "gpus", "processingUnits") if spec.get(name) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} exclude each other" if given else "says nowhere how many workers"
        faults.add(_SPEC, what, "give one of replicas, gpus, processingUnits")
        return
    per_node = {"gpus": "gpusPerNode", "processingUnits": "processingUnitsPerNode"}.get(given[0])
    if per_node is None:
        return
    total, units = spec[given[0]], spec.get(per_node)
    if units is None:
        hint = f"add {per_node}: what the old operator's flag for it was, often 8"
        faults.add(_SPEC.field(per_node), f"missing: {given[0]} alone does not say how many workers", hint)
    elif type(total) is int and type(units) is int and units > 0 and total > units and total % units:
        faults.add(_SPEC.field(given[0]), f"{total} is not a multiple of {per_node}: {units}")


def _from_v1alpha1(old: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the spec for v2beta1 of a spec that is right as one of v1alpha1."""
    resource = old.get("processingResourceType") or _GPU
    workers, units, size_field = _size(old, resource)
    slots = old.get("slotsPerWorker")
    if slots is None:
        slots = units or 1
        changes.add(_SPEC.field("slotsPerWorker"), f"{slots}: as many as a worker has of {resource}, or 1")
    worker = _worker_template(old, resource, units, changes)
    changes.move(_SPEC.field(size_field), _WORKER.field("replicas"), f": {workers}")
    for name in ("gpusPerNode", "processingUnitsPerNode", "processingResourceType"):
        if old.get(name) is not None:
            changes.add(_SPEC.field(name), f"is now in the workers' limits and in slotsPerWorker: {units}")
    policy: dict[str, Any] = {"cleanPodPolicy": "All"}
    changes.add(_POLICY.field("cleanPodPolicy"), "All: v1alpha1 always removed the workers at the end")
    for name in ("backoffLimit", "activeDeadlineSeconds"):
        if old.get(name) is not None:
            policy[name] = old[name]
            changes.move(_SPEC.field(name), _POLICY.field(name))
    restart = (old["template"].get("spec") or {}).get("restartPolicy")
    launcher = {
        "replicas": 1,
        "restartPolicy": "Never" if restart == "Never" else "OnFailure",
        "template": _launcher_template(old, changes),
    }
    workers_spec = {"replicas": workers, "restartPolicy": "OnFailure", "template": worker}
    replicas = {"Launcher": launcher, "Worker": workers_spec}
    return {"slotsPerWorker": slots, "runPolicy": policy, "mpiReplicaSpecs": replicas}


def _size(old: Mapping[str, Any], resource: str) -> tuple[int, int, str]:
    """Return how many workers, each one's processing units (0: unknown), and the field that says so."""
    for name, per_node in (("gpus", "gpusPerNode"), ("processingUnits", "processingUnitsPerNode")):
        if old.get(name) is not None:
            total, most = old[name], old[per_node]
            return (1, total, name) if total < most else (total // most, most, name)
    limits = (old["template"]["spec"]["containers"][0].get("resources") or {}).get("limits") or {}
    amount = str(limits.get(resource, 0))
    return old["replicas"], int(amount) if amount.isdecimal() else 0, "replicas"


def _template(old: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a copy of the template without the restart policy, which v2beta1 has beside it, and its first
    container."""
    template = deepcopy(dict(old["template"]))
    template["spec"].pop("restartPolicy", None)
    return template, template["spec"]["containers"][0]


def _worker_template(old: Mapping[str, Any], resource: str, units: int, changes: Changes) -> dict[str, Any]:
    """Return the workers' template: the job's, without its command, with the processing units as limits."""
    template, first = _template(old)
    changes.move(_SPEC.field("template"), _WORKER.field("template"), " and the launcher's")
    dropped = [name for name in ("command", "args") if first.pop(name, None)]
    if dropped:
        what = f"{' and '.join(dropped)} dropped: the launcher's; {_CHOSEN.removeprefix('none: ')}"
    changes.add(_COMMAND, what if dropped else _CHOSEN)
    if units and old.get("replicas") is None:
        resources = first.get("resources") or {}
        limits = {**(resources.get("limits") or {}), resource: units}
        first["resources"] = {**resources, "limits": limits}
    what = "is OnFailure: a StatefulSet always restarts; v2beta1 knows Never and OnFailure"
    changes.add(_WORKER.field("restartPolicy"), what)
    return template


def _launcher_template(old: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Return the launcher's template: the job's, without resources, on a master where that was asked for."""
    template, first = _template(old)
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


# v1alpha2 and v1: the same two kinds of Pods as v2beta1, other policies


def _from_v1(old: Mapping[str, Any], version: str, changes: Changes) -> dict[str, Any]:
    """Return the spec for v2beta1 of a spec that is right as one of its own version."""
    replicas = deepcopy(dict(old["mpiReplicaSpecs"]))
    spec: dict[str, Any] = {}
    if old.get("slotsPerWorker") is not None:
        spec["slotsPerWorker"] = old["slotsPerWorker"]
    policy = _run_policy(old, changes)
    if policy:
        spec["runPolicy"] = policy
    distribution = old.get("mpiDistribution")
    if distribution is not None:
        new = "Intel" if distribution == MpiDistribution.INTEL_MPI else distribution
        spec["mpiImplementation"] = new
        changes.move(_SPEC.field("mpiDistribution"), _SPEC.field("mpiImplementation"), f": {new}")
    spec["mpiReplicaSpecs"] = replicas
    _main_container(old.get("mainContainer"), replicas, changes)
    _launcher(replicas["Launcher"], version, spec, changes)
    if replicas.get("Worker") is not None:
        _worker(replicas["Worker"], version, changes)
    return spec


def _run_policy(old: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """Join the top-level policies and ``runPolicy``, each as the old controllers took them."""
    given = old.get("runPolicy") or {}
    policy = {name: deepcopy(value) for name, value in given.items() if value is not None}
    for name in ("backoffLimit", "activeDeadlineSeconds"):
        if old.get(name) is None:
            continue
        if name in policy:
            changes.add(_SPEC.field(name), f"dropped: runPolicy.{name} counted, and still does")
        else:
            policy[name] = old[name]
            changes.move(_SPEC.field(name), _POLICY.field(name))
    top, inner = old.get("cleanPodPolicy"), policy.get("cleanPodPolicy")
    if top is not None:
        if inner not in (None, top):
            changes.add(_POLICY.field("cleanPodPolicy"), f"{inner} is dropped: the top-level {top} counted")
        policy["cleanPodPolicy"] = top
        changes.move(_SPEC.field("cleanPodPolicy"), _POLICY.field("cleanPodPolicy"))
    elif inner is not None:
        changes.add(_POLICY.field("cleanPodPolicy"), f"{inner} counts now; old controllers passed it over")
    return policy


def _main_container(name: str | None, replicas: dict[str, Any], changes: Changes) -> None:
    """Put the container that ``mainContainer`` named first: v2beta1 takes the first one."""
    if not name:
        return
    here = _SPEC.field("mainContainer")
    for kind, one in replicas.items():
        containers = one["template"]["spec"]["containers"] if one else []
        names = [container["name"] for container in containers]
        if name not in names:
            if one:
                what = f"the {kind}'s template has no container {name}; its first one is taken"
                changes.add(here, what, is_lost=True)
        elif names[0] != name:
            containers.insert(0, containers.pop(names.index(name)))
            changes.add(here, f"{name} is now the first container of the {kind}'s template")
    changes.add(here, "dropped: v2beta1 always takes the first container")


def _launcher(launcher: dict[str, Any], version: str, spec: dict[str, Any], changes: Changes) -> None:
    policy = launcher.get("restartPolicy")
    if version == V1:
        new = _restart_of_pod(policy)
        changes.add(
            _LAUNCHER, "was a bare Pod, is now a Job: tried again up to runPolicy.backoffLimit (6) times"
        )
        if _asks_for_gpu(launcher):
            spec["runLauncherAsWorker"] = True
            what = "true: the launcher asks for GPUs, which made v1 run ranks in it"
            changes.add(_SPEC.field("runLauncherAsWorker"), what)
    else:
        new = "Never" if policy == "Never" else "OnFailure"
    launcher["restartPolicy"] = new
    _note_restart(_LAUNCHER.field("restartPolicy"), policy, new, changes)


def _worker(worker: dict[str, Any], version: str, changes: Changes) -> None:
    policy, here = worker.get("restartPolicy"), _WORKER.field("restartPolicy")
    if version == V1:
        new = _restart_of_pod(policy)
        _note_restart(here, policy, new, changes)
    else:
        new = policy if policy in ("Never", "OnFailure") else "OnFailure"
        said = f"{policy} was passed over" if policy else "was not given"
        what = f"is {new}: {said}, a StatefulSet always restarts; v2beta1 knows Never and OnFailure"
        changes.add(here, what)
    worker["restartPolicy"] = new
    first = worker["template"]["spec"]["containers"][0]
    is_given = first.get("command") or first.get("args")
    given = "runs as given; before v0.2.3 the controller put `sleep 365d` in its place"
    changes.add(_COMMAND, given if is_given else _CHOSEN)


def _note_restart(here: FieldPath, policy: str | None, new: str, changes: Changes) -> None:
    if policy == "ExitCode":
        changes.add(here, f"ExitCode is now {new}: exit codes above 127 are not distinguished", is_lost=True)
    elif policy and policy != new:
        changes.add(here, f"{policy} is now {new}")


def _restart_of_pod(policy: str | None) -> str:
    """Return what a bare Pod of v1 had: Never by default, and for ExitCode."""
    return "OnFailure" if policy in ("OnFailure", "Always") else "Never"


def _asks_for_gpu(launcher: Mapping[str, Any]) -> bool:
    """Say whether any container's limits name a GPU, by the names that v1's controller looked for."""
    limits = (
        (container.get("resources") or {}).get("limits") or {}
        for container in launcher["template"]["spec"]["containers"]
    )
    return any("gpu" in str(name) for one in limits for name in one)

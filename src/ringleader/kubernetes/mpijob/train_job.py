"""A TrainJob of Kubeflow Trainer v2 (``trainer.kubeflow.org/v1alpha1``): its fields, read from a file. Pure.

The fields are those of ``pkg/apis/trainer/v1alpha1/trainjob_types.go`` of kubeflow/trainer 2.3 (8c0f505).
What an MPIJob becomes there is made by `kubernetes.objects.training_runtime`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, make_dataclass, replace
from enum import StrEnum
from types import GenericAlias
from typing import Annotated, Any

from ringleader.errors import RequestError
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.document_faults import NOWHERE, ROOT, Faults, FieldPath, SourceLines
from ringleader.kubernetes.mpijob.field_schema import AnyObject, IntegerRange, Texts, Time, fields_of
from ringleader.kubernetes.mpijob.model import Metadata
from ringleader.kubernetes.mpijob.object_metadata import Document, document
from ringleader.kubernetes.mpijob.parser import request_metadata, struct

GROUP = "trainer.kubeflow.org"
API_VERSION = f"{GROUP}/v1alpha1"
KIND, RUNTIME, CLUSTER_RUNTIME = "TrainJob", "TrainingRuntime", "ClusterTrainingRuntime"
NODE, LAUNCHER = "node", "launcher"
"""Replicated Jobs of a runtime of MPI; the container that trains is called ``node`` in both."""
_TRAINER_SETS = (NODE, "dataset-initializer", "model-initializer")
"""Containers whose variables the API has elsewhere; Trainer's webhook refuses them in a patch."""
_MANAGER = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[-A-Za-z0-9_.~/]+")
_SUFFIX = "abcde"
"""As long as what the Job controller adds to a Pod's name."""


MANAGED = "trainer.kubeflow.org/trainjob-controller"
"""Trainer's own controller, by which a job is managed that names none."""


class _Manager(StrEnum):
    """Controllers that may look after a TrainJob."""

    TRAINER = MANAGED
    MULTIKUEUE = "kueue.x-k8s.io/multikueue"


def _model(*required: str, **hints: Any) -> Any:
    """Return a dataclass of these fields, of which all but the required ones may be missing."""
    ordered = sorted(hints, key=lambda name: name not in required)
    return make_dataclass(
        "Part", [(name, hints[name], *([] if name in required else [None])) for name in ordered]
    )


def _many(kind: Any) -> Any:
    """Return the type of a list of such parts."""
    return GenericAlias(tuple, (kind, ...))


_Objects = tuple[AnyObject, ...]
_Words = tuple[str, ...]
_Least1 = Annotated[int, IntegerRange(minimum=1)]
_Seconds = Annotated[int, IntegerRange(bits=64, minimum=0)]
_Source = _model(storage_uri=str, env=_Objects, secret_ref=AnyObject)
_Trainer = _model(
    image=str,
    command=_Words,
    args=_Words,
    env=_Objects,
    num_nodes=Annotated[int, IntegerRange(minimum=0)],
    resources_per_node=AnyObject,
    num_proc_per_node=_Least1,
)
_About = _model(labels=Texts, annotations=Texts)
_Container = _model("name", name=str, env=_Objects, volume_mounts=_Objects, security_context=AnyObject)
_PodSpec = _model(
    service_account_name=str,
    volumes=_Objects,
    init_containers=_many(_Container),
    containers=_many(_Container),
    image_pull_secrets=_Objects,
    security_context=AnyObject,
    node_selector=Texts,
    affinity=AnyObject,
    tolerations=_Objects,
    scheduling_gates=_Objects,
    termination_grace_period_seconds=_Seconds,
)
_Job = _model(metadata=_About, spec=_model(template=_model(metadata=_About, spec=_PodSpec)))
_JobSet = _model(replicated_jobs=_many(_model("name", name=str, template=_Job)))
_Patch = _model(
    "manager",
    manager=str,
    time=Time,
    training_runtime_spec=_model(template=_model(metadata=_About, spec=_JobSet)),
)
SPEC = _model(
    "runtime_ref",
    runtime_ref=_model("name", name=str, api_group=str, kind=str),
    initializer=_model(dataset=_Source, model=_Source),
    trainer=_Trainer,
    runtime_patches=_many(_Patch),
    suspend=bool,
    active_deadline_seconds=Annotated[int, IntegerRange(bits=64, minimum=1)],
    managed_by=_Manager,
)
"""Fields of a TrainJob's spec."""


@dataclass(frozen=True, kw_only=True)
class TrainJob:
    """A TrainJob, with the runtime that belongs to it alone."""

    metadata: Metadata
    spec: Document
    """As JSON; `SPEC` has its fields."""
    runtime: Document | None = None
    """Spec of a TrainingRuntime of the job's name; ``None``: one that exists is used."""

    def documents(self) -> list[Document]:
        """Return the objects in the order in which they are sent: Trainer wants the runtime first."""
        job = document(API_VERSION, KIND, fields_of(request_metadata(self.metadata)), spec=self.spec)
        if self.runtime is None:
            return [job]
        own = replace(self.metadata, annotations={}, labels={})
        return [document(API_VERSION, RUNTIME, fields_of(request_metadata(own)), spec=self.runtime), job]


def read_train_job(manifest: Mapping[str, Any], *, places: SourceLines = NOWHERE) -> TrainJob:
    """Return the job of a manifest. Raises RequestError with every fault in it."""
    faults = Faults(places=places, model=SPEC)
    if manifest.get("apiVersion") != API_VERSION:
        given = manifest.get("apiVersion")
        what = f"{given!r} is unknown" if given else "missing"
        faults.add(ROOT.field("apiVersion"), what, f"apiVersion: {API_VERSION}")
    for name in manifest:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            faults.add(ROOT.field(str(name)), "unknown field")
    found = {}
    for name, model in (("metadata", Metadata), ("spec", SPEC)):
        if manifest.get(name) is None:
            faults.add(ROOT.field(name), "missing")
        else:
            found[name] = struct(model, manifest[name], ROOT.field(name), faults)
    spec = manifest.get("spec")
    if isinstance(spec, Mapping):
        _check_spec(spec, faults)
    metadata = manifest.get("metadata")
    if isinstance(metadata, Mapping):
        where, called = ROOT.fields("metadata", "name"), metadata.get("name")
        begins = metadata.get("generateName")
        label = f"{begins.rstrip('-')}-{_SUFFIX}" if not called and isinstance(begins, str) else called
        if not called and not begins:
            faults.add(where, "missing", "give the job a name")
        elif isinstance(label, str) and not re.fullmatch(object_names.LABEL, label):
            faults.add(where, f"{called or begins!r} is not a DNS label", "a-z, 0-9 and -")
        elif isinstance(label, str) and len(label) > object_names.LONGEST_LABEL:
            what, hint = f"has {len(label)} characters", f"at most {object_names.LONGEST_LABEL}"
            faults.add(where, what, hint)
    if faults.found:
        raise RequestError(faults.in_order())
    return TrainJob(metadata=found["metadata"], spec=manifest["spec"])


def fault_of_name(name: str, workers: int) -> tuple[str, str] | None:
    """Return what is wrong with the name of a job whose Pods a JobSet names, or ``None``."""
    pods = (f"{name}-{LAUNCHER}-0-0-{_SUFFIX}", f"{name}-{NODE}-0-{max(1, workers) - 1}-{_SUFFIX}")
    over = max(map(len, pods)) - object_names.LONGEST_LABEL
    if over > 0:
        return f"{name!r} makes Pod names of {over + object_names.LONGEST_LABEL} characters", (
            f"at most {object_names.LONGEST_LABEL}: shorten it by {over}"
        )
    return None


def _check_spec(spec: Mapping[str, Any], faults: Faults) -> None:
    """Check what Trainer's webhook and the lists of the CRD refuse of a spec, whatever the runtime."""
    here = ROOT.field("spec")
    for path, patch in _items(spec.get("runtimePatches"), here.field("runtimePatches")):
        manager = patch.get("manager")
        if isinstance(manager, str) and not _MANAGER.fullmatch(manager):
            what, hint = f"{manager!r} has no domain before a /", "such as example.org/team"
            faults.add(path.field("manager"), what, hint)
        jobs = _below(patch, "trainingRuntimeSpec", "template", "spec").get("replicatedJobs")
        for job_path, job in _items(
            jobs, path.fields("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
        ):
            inner = ("template", "spec", "template", "spec")
            pod, pod_path = _below(job, *inner), job_path.fields(*inner)
            for name in ("containers", "initContainers"):
                for at, container in _items(pod.get(name), pod_path.field(name)):
                    if container.get("env") and container.get("name") in _TRAINER_SETS:
                        hint = "spec.trainer.env or spec.initializer has them"
                        faults.add(at.field("env"), f"not for the container {container['name']}", hint)
    _check_twice(spec, here, faults)


def _check_twice(value: Any, path: FieldPath, faults: Faults) -> None:
    """Note items of lists that have the name of another: the API server keeps such lists by their names."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            _check_twice(one, path.field(str(name)), faults)
    elif isinstance(value, list):
        seen: set[str] = set()
        for at, item in _items(value, path):
            name = item.get("name") or item.get("manager")
            if isinstance(name, str) and name in seen:
                faults.add(at, f"a second {name}")
            seen.add(str(name))
            _check_twice(item, at, faults)


def _items(value: Any, path: FieldPath) -> Iterator[tuple[FieldPath, Mapping[str, Any]]]:
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, Mapping):
            yield path.item(index), item


def _below(value: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    found: Any = value
    for name in names:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}

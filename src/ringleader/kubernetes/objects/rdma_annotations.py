"""RDMA profiles of a job: how the cluster gives NICs to its Pods, asked for by annotations. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ringleader.errors import Fault, refuse
from ringleader.kubernetes.mpijob import annotations as names
from ringleader.kubernetes.mpijob.object_metadata import LAUNCHER, WORKER, Document
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.rdma.pod_nics import add_environment, add_nics, advice_on, runs_as_root
from ringleader.kubernetes.rdma.request import FORMS as _FORMS
from ringleader.kubernetes.rdma.request import NicAllocation, RdmaRequest, allocate, faults, pairs_of
from ringleader.render.rdma_profiles import PROFILES, Spread, Way

if TYPE_CHECKING:
    from ringleader.kubernetes.mpijob.model import MPIJob

_CALLED = {names.RDMA_PROFILE: "rdma", names.RDMA_NODE_LABELS: "node_label"}
"""Annotation → field of a request, where that is not called as the annotation is."""
_ANNOTATIONS = {
    _CALLED.get(name, name.removeprefix(names.PREFIX).replace("-", "_")): name
    for name in names.KNOWN
    if name.startswith(names.RDMA)
}
"""Field of a request → annotation that says it."""
FORMS: Mapping[str, str] = {name: _FORMS[field] for field, name in _ANNOTATIONS.items()}
"""Annotation → pattern of its text."""

_WORKER = "spec.mpiReplicaSpecs[Worker].template.spec.containers[0].resources"


def give(pod: Document, job: MPIJob, role: str = WORKER) -> None:
    """Give a Pod in which ranks run its NICs, where the job asks for them.

    Raises RequestError with what ``faults_of`` finds.
    """
    allocation = allocation_of(job)
    if allocation is None:
        return
    here = replace(allocation, ssh_port=ssh_port(job) if role != LAUNCHER else None)
    add_nics(pod, here, job=job.metadata.name, role="" if job.spec.run_launcher_as_worker else WORKER)
    add_environment(pod["spec"]["containers"][0], allocation.env)


def allocation_of(job: MPIJob) -> NicAllocation | None:
    """Return what each worker of a job gets; ``None``: it asks for no NICs."""
    request, found = _asked(job)
    refuse(found)
    return None if request is None else allocate(request, _locate)


def faults_of(job: MPIJob) -> list[Fault]:
    """Return what is wrong with the NICs that a job asks for."""
    return _asked(job)[1]


def remarks_on(job: MPIJob) -> tuple[str, ...]:
    """Return what the user of a job should know of its NICs. Raises RequestError as ``allocation_of``."""
    allocation = allocation_of(job)
    return () if allocation is None else advice_on(allocation, is_root=runs_as_root(_spec(job)))


def ssh_port(job: MPIJob) -> int | None:
    """Return the port of the workers' sshd where NICs decide it; ``None``: the image or the user does.

    A worker with its own command has its own port too, unless the annotation names it.
    """
    request, found = _asked(job)
    if request is None or found or is_exec(job):
        return None
    first = _spec(job)["containers"][0]
    has_program = bool(first.get("command") or first.get("args"))
    return request.rdma_ssh_port if has_program else allocate(request, _locate).ssh_port


def _asked(job: MPIJob) -> tuple[RdmaRequest | None, list[Fault]]:
    """Return what a job asks for, and everything that is wrong with it; ``None``: it asks for no NICs."""
    notes = job.metadata.annotations
    said = {field: notes[name] for field, name in _ANNOTATIONS.items() if name in notes}
    if not said:
        return None, []
    found: list[Fault] = []
    values: dict[str, Any] = {field: _read(field, text, found) for field, text in said.items()}
    resources = _spec(job)["containers"][0].get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    request = RdmaRequest(**values, has_cpu_or_memory=bool({"cpu", "memory"} & set(asked)))
    found += faults(request, _locate)
    profile = PROFILES.get(request.rdma)
    if profile is not None and profile.way is Way.CLAIM and not request.rdma_claim_template:
        what = f"missing: with the profile {profile.name} a worker's claims are made from a template"
        hint = "name one of the job's namespace; ringleader render mpijob --rdma dra prints one"
        found.append(Fault(where=_locate("rdma_claim_template"), what=what, hint=hint))
    return request, found


def _read(field: str, text: str, found: list[Fault]) -> Any:
    """Return the value of an annotation; what cannot be read is a fault."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if field == "rdma_network":
        return tuple(words)
    if field == "node_label":
        labels, unread = pairs_of(words)
        for word in unread:
            found.append(Fault(where=_locate(field), what=f"{word!r} cannot be read", hint="NAME=VALUE"))
        return labels
    if field in ("rdma_count", "rdma_ssh_port"):
        if text.isascii() and text.isdecimal() and len(text) <= 9:
            return int(text)
        found.append(Fault(where=_locate(field), what=f"{text!r} is not a number", hint='in quotes: "1"'))
        return None
    if field == "rdma_spread":
        if text in tuple(Spread):
            return Spread(text)
        hint = f"one of: {', '.join(Spread)}"
        found.append(Fault(where=_locate(field), what=f"{text!r} is unknown", hint=hint))
        return None
    return text


def _locate(field: str) -> str:
    return f"metadata.annotations[{_ANNOTATIONS[field]}]" if field in _ANNOTATIONS else _WORKER


def _spec(job: MPIJob) -> Mapping[str, Any]:
    """Return the Pods' spec in which ranks run."""
    specs = job.spec.mpi_replica_specs
    template = specs.launcher.template if specs.worker is None else specs.worker.template
    spec: Mapping[str, Any] = template["spec"]
    return spec

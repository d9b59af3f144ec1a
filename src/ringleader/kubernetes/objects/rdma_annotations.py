"""RDMA profiles of a job: how the cluster gives NICs to its Pods, asked for by annotations. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.mpijob.annotations import (
    RDMA_CLAIM_TEMPLATE,
    RDMA_COUNT,
    RDMA_NETWORK,
    RDMA_NODE_LABELS,
    RDMA_PROFILE,
    RDMA_RESOURCE,
    RDMA_SPREAD,
    RDMA_SSH_PORT,
)
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import LAUNCHER, WORKER, Document
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.rdma.advice import advice_on, runs_as_root
from ringleader.kubernetes.rdma.allocation import NicAllocation, allocate
from ringleader.kubernetes.rdma.node_labels import pairs_of
from ringleader.kubernetes.rdma.pod_nics import add_environment, add_nics
from ringleader.kubernetes.rdma.request import RdmaRequest, faults
from ringleader.render.rdma_profiles import PROFILES, Spread, Way

_ANNOTATIONS = {
    "profile": RDMA_PROFILE,
    "resource": RDMA_RESOURCE,
    "count": RDMA_COUNT,
    "networks": RDMA_NETWORK,
    "node_labels": RDMA_NODE_LABELS,
    "claim_template": RDMA_CLAIM_TEMPLATE,
    "ssh_port": RDMA_SSH_PORT,
    "spread": RDMA_SPREAD,
}
"""Field of a request → annotation that says it."""

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
    found = faults_of(job)
    if found:
        raise RequestError(found)
    if not _said(job):
        return None
    request, _ = _request(job)
    return allocate(request, _locate)


def faults_of(job: MPIJob) -> tuple[Fault, ...]:
    """Return what is wrong with the NICs that a job asks for."""
    if not _said(job):
        return ()
    request, found = _request(job)
    found = [*found, *faults(request, _locate)]
    profile = PROFILES.get(request.profile)
    if profile is not None and profile.way is Way.CLAIM and not request.claim_template:
        what = f"missing: with the profile {profile.name} a worker's claims are made from a template"
        hint = "name one of the job's namespace; ringleader render mpijob --rdma dra prints one"
        found.append(Fault(where=_locate("claim_template"), what=what, hint=hint))
    return tuple(found)


def remarks_on(job: MPIJob) -> tuple[str, ...]:
    """Return what the user of a job should know of its NICs. Raises RequestError as ``allocation_of``."""
    allocation = allocation_of(job)
    return () if allocation is None else advice_on(allocation, is_root=runs_as_root(_spec(job)))


def ssh_port(job: MPIJob) -> int | None:
    """Return the port of the workers' sshd where NICs decide it; ``None``: the image or the user does.

    A worker with a command of its own has its own port too, unless the annotation names it.
    """
    if not _said(job) or is_exec(job) or faults_of(job):
        return None
    request, _ = _request(job)
    first = _first(job)
    has_program = bool(first.get("command") or first.get("args"))
    return request.ssh_port if has_program else allocate(request, _locate).ssh_port


def _said(job: MPIJob) -> bool:
    return any(name in job.metadata.annotations for name in _ANNOTATIONS.values())


def _locate(field: str) -> str:
    return f"metadata.annotations[{_ANNOTATIONS[field]}]" if field in _ANNOTATIONS else _WORKER


def _request(job: MPIJob) -> tuple[RdmaRequest, list[Fault]]:
    """Return the request with what cannot be read of it."""
    notes, found = job.metadata.annotations, list[Fault]()
    resources = _first(job).get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    labels, unread = pairs_of(_words(notes, "node_labels"))
    for word in unread:
        found.append(Fault(where=_locate("node_labels"), what=f"{word!r} cannot be read", hint="NAME=VALUE"))
    request = RdmaRequest(
        profile=notes.get(RDMA_PROFILE, ""),
        resource=notes.get(RDMA_RESOURCE, ""),
        count=_number(notes, "count", found),
        networks=tuple(_words(notes, "networks")),
        node_labels=labels,
        claim_template=notes.get(RDMA_CLAIM_TEMPLATE, ""),
        ssh_port=_number(notes, "ssh_port", found),
        spread=_spread(notes, found),
        has_cpu_or_memory=bool({"cpu", "memory"} & set(asked)),
    )
    return request, found


def _spec(job: MPIJob) -> Mapping[str, Any]:
    """Return the Pods' spec in which ranks run."""
    specs = job.spec.mpi_replica_specs
    template = specs.launcher.template if specs.worker is None else specs.worker.template
    spec: Mapping[str, Any] = template["spec"]
    return spec


def _first(job: MPIJob) -> Mapping[str, Any]:
    container: Mapping[str, Any] = _spec(job)["containers"][0]
    return container


def _words(notes: Mapping[str, str], field: str) -> list[str]:
    return [word.strip() for word in notes.get(_ANNOTATIONS[field], "").split(",") if word.strip()]


def _number(notes: Mapping[str, str], field: str, found: list[Fault]) -> int | None:
    text = notes.get(_ANNOTATIONS[field])
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        found.append(Fault(where=_locate(field), what=f"{text!r} is not a number", hint='in quotes: "1"'))
        return None
    return int(text)


def _spread(notes: Mapping[str, str], found: list[Fault]) -> Spread | None:
    text = notes.get(RDMA_SPREAD)
    if text is None:
        return None
    if text not in tuple(Spread):
        hint = f"one of: {', '.join(Spread)}"
        found.append(Fault(where=_locate("spread"), what=f"{text!r} is unknown", hint=hint))
        return None
    return Spread(text)

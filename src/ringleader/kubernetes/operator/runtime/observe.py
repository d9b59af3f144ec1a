"""What the cluster holds of one job, put together from caches, reads by name and the ends of logs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import aclosing

from ringleader.errors import RefusedError
from ringleader.kubernetes.client.api_errors import ApiError
from ringleader.kubernetes.client.api_resources import (
    CONFIG_MAPS,
    JOBS,
    PLUGIN_POD_GROUPS,
    POD_GROUPS,
    PODS,
    PRIORITY_CLASSES,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_POD_GROUPS,
    Resource,
)
from ringleader.kubernetes.client.cluster import Cluster, Object
from ringleader.kubernetes.client.object_fields import (
    annotations_of,
    controller_of,
    is_deleting,
    labels_of,
    map_in,
    maps_in,
    text_in,
)
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.mpijob.object_metadata import MANAGED_BY
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.gang_scheduling import KUBERNETES, VOLCANO, gang_of
from ringleader.kubernetes.objects.operator_settings import OperatorSettings
from ringleader.kubernetes.operator.decide.decision import LogRequest, Observed, Rejection
from ringleader.kubernetes.operator.decide.prerequisites import EXEC_RIGHTS
from ringleader.kubernetes.operator.decide.status import is_finished
from ringleader.kubernetes.operator.runtime.caches import BRIEF, FRESH, Caches
from ringleader.kubernetes.pod_view import PodView, pod_view

LINES = 20
"""Lines that are asked for. What a condition shows of them is the decision's business."""
LONGEST = 16 * 1024
"""Bytes of a log that are kept."""
_READ = 256 * 1024
"""Bytes that are read of it at most: the server counts them from the first of the lines."""
READ_BY_NAME = ("config_map", "secret", "pod_group", "service_account", "role", "role_binding")
"""Fields of ``Observed``; a Service and a launcher's Job are watched."""
PATIENCE = 5.0
"""Seconds for a log: a node that is gone must not hold up the word that the job failed."""


async def observe(
    caches: Caches,
    job: MPIJob,
    *,
    settings: OperatorSettings,
    rejections: tuple[Rejection, ...],
    logs: Mapping[str, str],
) -> Observed:
    """Return all that a decision on this job may rest on.

    Reads by name only what the job may have and what is not known freshly. Raises ApiError and
    UnreachableError.
    """
    space, name = job.metadata.namespace, job.metadata.name
    wanted = _wanted(job, gang_of(job, settings))
    if not job.status.conditions:  # never looked at: what is missing is found out by making it
        for resource, object_name in wanted.values():
            if resource != PRIORITY_CLASSES:
                caches.by_name.assume_missing(resource, space, object_name, name)
    pods = [kept.value for kept in caches.pods.of_group(space, name)]
    is_whole = sum(pod.role == "worker" for pod in pods) >= job.workers
    fresh = FRESH if is_whole and not any(pod.is_on_node_and_waits for pod in pods) else BRIEF
    found = await asyncio.gather(
        *(_read(caches, resource, object_name, job, fresh) for resource, object_name in wanted.values())
    )
    documents = dict(zip(wanted, found, strict=True))
    if "role" not in wanted and EXEC_RIGHTS in annotations_of(documents["config_map"]):
        documents["role"] = await _read(caches, ROLES, object_names.launcher(name), job, fresh)
    return Observed(
        **{name: documents.get(name) for name in READ_BY_NAME},
        service=await _watched(caches, SERVICES, object_names.service(name), job),
        launcher=await _watched(caches, JOBS, object_names.launcher(name), job),
        pods=(*pods, *await _in_the_way(caches, job, rejections)),
        priorities=_priorities(documents),
        absent=await _absent(caches, job, pods),
        rejections=rejections,
        logs=logs,
    )


async def _watched(caches: Caches, resource: Resource, name: str, job: MPIJob) -> Object | None:
    """Return an object of a watched kind; one without our label is in no watch and is read anew."""
    space, informer = job.metadata.namespace, caches.watched[resource]
    kept = informer.kept(space, name)
    if kept is not None and MANAGED_BY not in labels_of(kept.value):
        found = await caches.by_name.read(resource, space, name, job.metadata.name)
        if found is None:
            informer.missing(space, name, kept.uid)
    return informer.get(space, name)


async def _in_the_way(caches: Caches, job: MPIJob, rejections: tuple[Rejection, ...]) -> list[PodView]:
    """Return the Pods of others that hold names of ours, as they are now: no watch of ours shows them."""
    space, name = job.metadata.namespace, job.metadata.name
    known = {kept.name for kept in caches.pods.of_group(space, name)}
    taken = [one.name for one in rejections if one.resource == PODS and one.status == 409]
    found = [await caches.by_name.read(PODS, space, one, name) for one in taken if one not in known]
    return [pod_view(document) for document in found if document is not None]


async def _read(caches: Caches, resource: Resource, name: str, job: MPIJob, fresh: float) -> Object | None:
    space = job.metadata.namespace
    try:
        document = await caches.by_name.get(resource, space, name, job.metadata.name, fresh=fresh)
        if document is not None and resource != PRIORITY_CLASSES and not _is_settled(document, job):
            document = await caches.by_name.read(resource, space, name, job.metadata.name)
    except ApiError as error:
        if error.status == 403 and (resource == PRIORITY_CLASSES or (resource == ROLES and not is_exec(job))):
            return None  # an operator of one namespace, or without exec spawning, may not read them
        raise
    return document


def _is_settled(document: Object, job: MPIJob) -> bool:
    """Say whether an object is the job's own and stays: others come and go without our doing."""
    return controller_of(document).get("uid") == job.metadata.uid and not is_deleting(document)


def _wanted(job: MPIJob, gang: str) -> dict[str, tuple[Resource, str]]:
    """Return what to read by name for a job."""
    name = job.metadata.name
    wanted = {"config_map": (CONFIG_MAPS, object_names.config(name))}
    if is_exec(job):  # its Pods speak no ssh
        launcher = object_names.launcher(name)
        wanted |= {
            "service_account": (SERVICE_ACCOUNTS, launcher),
            "role": (ROLES, launcher),
            "role_binding": (ROLE_BINDINGS, launcher),
        }
    elif not is_finished(job.status):
        wanted["secret"] = (SECRETS, object_names.ssh(name))
    if gang:
        groups = {VOLCANO: VOLCANO_POD_GROUPS, KUBERNETES: POD_GROUPS}.get(gang, PLUGIN_POD_GROUPS)
        wanted["pod_group"] = (groups, name)
        for priority in _priority_classes(job):
            wanted[f"priority {priority}"] = (PRIORITY_CLASSES, priority)
    return wanted


def _priority_classes(job: MPIJob) -> list[str]:
    specs = (job.spec.mpi_replica_specs.launcher, job.spec.mpi_replica_specs.worker)
    names = (spec.template.get("spec", {}).get("priorityClassName") for spec in specs if spec is not None)
    return list(dict.fromkeys(filter(None, names)))


async def _absent(caches: Caches, job: MPIJob, pods: Iterable[PodView]) -> dict[str, str]:
    """Return, by role, what the user's volumes of Pods that wait on a node need and the namespace lacks."""
    space, name, specs = job.metadata.namespace, job.metadata.name, job.spec.mpi_replica_specs
    waiting = {pod.role for pod in pods if pod.is_on_node_and_waits}
    found: dict[str, str] = {}
    for role, replicas in (("worker", specs.worker), ("launcher", specs.launcher)):
        spec = replicas.template.get("spec") or {} if role in waiting and replicas is not None else {}
        for volume, resource, wanted in _sources(spec):
            if await caches.by_name.get(resource, space, wanted, name, fresh=BRIEF) is None:
                found[role] = f'volume {volume}: {resource.kind} "{wanted}" not found'
    return found


def _sources(spec: Object) -> Iterator[tuple[str, Resource, str]]:
    """Yield volume, kind and name of each Secret and ConfigMap that a Pod's volumes cannot do without."""
    for volume in maps_in(spec, "volumes"):
        for part in (volume, *maps_in(map_in(volume, "projected"), "sources")):
            for field, resource in (("secret", SECRETS), ("configMap", CONFIG_MAPS)):
                source = map_in(part, field)
                wanted = text_in(source, "secretName") or text_in(source, "name")
                if wanted and not source.get("optional"):
                    yield text_in(volume, "name"), resource, wanted


def _priorities(documents: Mapping[str, Object | None]) -> dict[str, int]:
    return {
        key.removeprefix("priority "): document.get("value", 0)
        for key, document in documents.items()
        if key.startswith("priority ") and document is not None
    }


async def fetch_tails(cluster: Cluster, namespace: str, requests: Iterable[LogRequest]) -> dict[str, str]:
    """Return the end of each log by Pod name; empty text where there is none to be had."""
    wanted = list(requests)
    found = await asyncio.gather(*(_tail(cluster, namespace, request) for request in wanted))
    return {request.pod: text for request, text in zip(wanted, found, strict=True)}


async def _tail(cluster: Cluster, namespace: str, request: LogRequest) -> str:
    parts = []
    try:
        async with asyncio.timeout(PATIENCE):
            stream = cluster.logs(
                request.pod,
                namespace,
                container=request.container,
                tail=LINES,
                previous=request.previous,
                limit_bytes=_READ,
            )
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    parts.append(piece)
    except (RefusedError, TimeoutError):
        if not parts:
            return ""
    return b"".join(parts)[-LONGEST:].decode(errors="replace")

"""What makes a job impossible for this operator although its manifest is right. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from ringleader.errors import Fault, refuse
from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import CHECK, CHECK_CONTAINER, SPAWN
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.objects import init_containers, rdma_annotations
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

Found = Iterator[tuple[str, str, str]]
"""Faults: field path, what is wrong, what to do."""


def check(job: MPIJob, settings: OperatorSettings) -> None:
    """Raise RequestError with all that this operator cannot do of a job, each fault with its field path."""
    ours = (*_spawn(job, settings), *_launcher(job, settings), *_worker(job))
    faults = [Fault(where=where, what=what, hint=hint) for where, what, hint in ours]
    refuse([*rdma_annotations.faults_of(job), *faults])


def _spawn(job: MPIJob, settings: OperatorSettings) -> Found:
    where = f"metadata.annotations[{SPAWN}]"
    if is_exec(job) and not settings.image:
        what = "spawning by exec needs the operator's image, and the operator was started without --image"
        yield where, what, "start it with --image, or use an image with sshd"
    elif is_exec(job) and not settings.has_exec_spawn:
        what = (
            "this operator was installed without the rights for spawning by exec: install it with"
            " `ringleader operator manifests --exec-spawn` (Helm: execSpawn=true), or use an image with sshd"
        )
        yield where, what, ""


def _launcher(job: MPIJob, settings: OperatorSettings) -> Found:
    where = "spec.mpiReplicaSpecs[Launcher].template.spec"
    spec = job.spec.mpi_replica_specs.launcher.template["spec"]
    taken = {object_names.MOUNT_PATH: "the hosts"}
    if not is_exec(job):
        taken[job.spec.ssh_auth_mount_path] = "the ssh keys"
    ours: Collection[str] = _check(job)
    volumes: Collection[str] = ()
    if settings.image:
        taken[init_containers.MOUNT_PATH] = "what mpirun calls"
        ours = (*ours, init_containers.CONTAINER, init_containers.PORT_CONTAINER)
        volumes = (init_containers.VOLUME,)
    yield from _names(spec, where, ours, volumes)
    yield from _mounts(spec, where, taken)


def _check(job: MPIJob) -> Collection[str]:
    return {CHECK_CONTAINER} if CHECK in job.metadata.annotations else set()


def _names(
    spec: Mapping[str, Any], where: str, containers: Collection[str], volumes: Collection[str] = ()
) -> Found:
    """Yield containers and volumes of a Pod that are called as ours are."""
    for kind, names, one in (
        ("containers", containers, "container"),
        ("initContainers", containers, "container"),
        ("volumes", volumes, "volume"),
    ):
        for index, item in enumerate(spec.get(kind) or ()):
            if item.get("name") in names:
                what = f"{item['name']} is the name of a {one} that the controller adds"
                yield f"{where}.{kind}[{index}].name", what, "choose another"


def _worker(job: MPIJob) -> Found:
    worker = job.spec.mpi_replica_specs.worker
    if worker is None:
        return
    where, spec = "spec.mpiReplicaSpecs[Worker].template.spec", worker.template["spec"]
    yield from _names(spec, where, _check(job))
    if not is_exec(job):
        yield from _mounts(spec, where, {job.spec.ssh_auth_mount_path: "the ssh keys"})


def _mounts(spec: Mapping[str, Any], where: str, taken: Mapping[str, str]) -> Found:
    """Yield the mounts of a first container that the API server would refuse beside ours."""
    for index, mount in enumerate(spec["containers"][0].get("volumeMounts") or ()):
        what = taken.get(str(mount.get("mountPath", "")).rstrip("/"))
        if what is not None:
            place = f"{where}.containers[0].volumeMounts[{index}].mountPath"
            yield place, f"the controller mounts {what} at {mount['mountPath']}", "choose another path"

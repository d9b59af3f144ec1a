"""What makes a job impossible for this operator although its manifest is right. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.kubernetes.mpijob.annotations import SPAWN
from ringleader.kubernetes.mpijob.model import MPIJob
from ringleader.kubernetes.objects import config_map, init_containers, rdma_annotations
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.operator_settings import OperatorSettings


def check(job: MPIJob, settings: OperatorSettings) -> None:
    """Raise RequestError with all that this operator cannot do of a job, each fault with its field path."""
    faults = [*rdma_annotations.faults_of(job), *_spawn(job, settings), *_launcher(job, settings)]
    faults += _worker(job)
    if faults:
        raise RequestError(faults)


def _spawn(job: MPIJob, settings: OperatorSettings) -> Iterator[Fault]:
    if is_exec(job) and not settings.image:
        yield Fault(
            where=f"metadata.annotations[{SPAWN}]",
            what="spawning by exec needs the operator's image, and the operator was started without --image",
            hint="start it with --image, or use an image with sshd",
        )
    elif is_exec(job) and not settings.has_exec_spawn:
        yield Fault(
            where=f"metadata.annotations[{SPAWN}]",
            what=(
                "this operator was installed without the rights for spawning by exec: install it with"
                " `ringleader operator manifests --exec-spawn` (Helm: execSpawn=true),"
                " or use an image with sshd"
            ),
        )


def _launcher(job: MPIJob, settings: OperatorSettings) -> Iterator[Fault]:
    where = "spec.mpiReplicaSpecs[Launcher].template.spec"
    spec = job.spec.mpi_replica_specs.launcher.template["spec"]
    taken = {config_map.MOUNT_PATH: "the hosts"}
    if not is_exec(job):
        taken[job.spec.ssh_auth_mount_path] = "the ssh keys"
    if settings.image:
        taken[init_containers.MOUNT_PATH] = "what mpirun calls"
        for kind in ("containers", "initContainers"):
            for index, container in enumerate(spec.get(kind) or ()):
                if container.get("name") in (init_containers.CONTAINER, init_containers.PORT_CONTAINER):
                    what = f"{container['name']} is the name of a container that the controller adds"
                    yield Fault(where=f"{where}.{kind}[{index}].name", what=what, hint="choose another")
        for index, volume in enumerate(spec.get("volumes") or ()):
            if volume.get("name") == init_containers.VOLUME:
                what = f"{init_containers.VOLUME} is the name of a volume that the controller adds"
                yield Fault(where=f"{where}.volumes[{index}].name", what=what, hint="choose another")
    yield from _mounts(spec, where, taken)


def _worker(job: MPIJob) -> Iterator[Fault]:
    worker = job.spec.mpi_replica_specs.worker
    if worker is not None and not is_exec(job):
        where = "spec.mpiReplicaSpecs[Worker].template.spec"
        yield from _mounts(worker.template["spec"], where, {job.spec.ssh_auth_mount_path: "the ssh keys"})


def _mounts(spec: Mapping[str, Any], where: str, taken: Mapping[str, str]) -> Iterator[Fault]:
    """Yield the mounts of a first container that the API server would refuse beside ours."""
    for index, mount in enumerate(spec["containers"][0].get("volumeMounts") or ()):
        what = taken.get(str(mount.get("mountPath", "")).rstrip("/"))
        if what is not None:
            yield Fault(
                where=f"{where}.containers[0].volumeMounts[{index}].mountPath",
                what=f"the controller mounts {what} at {mount['mountPath']}",
                hint="choose another path",
            )

"""What the operator's own image does in a launcher's Pod: wait for the workers, and lay out mpirun's helpers.

An init container waits until every worker answers, and leaves in a volume what mpirun in the user's image
calls: the agent in ssh's place, and the check that a launch reaches the hosts that it was to reach
(docs/decisions/0006-reaching-the-planned-hosts.md). The user's image needs a shell for it and nothing else.
Pure.
"""

from __future__ import annotations

import re
from copy import deepcopy
from itertools import pairwise

from ringleader.kubernetes.mpijob import object_names
from ringleader.kubernetes.mpijob.annotations import WAIT_ANSWER, WAIT_FOR_WORKERS, WAIT_LIMIT, WAIT_OFF
from ringleader.kubernetes.mpijob.model import MpiImplementation, MPIJob
from ringleader.kubernetes.mpijob.object_metadata import Document
from ringleader.kubernetes.objects import (
    mpi_environment,
    rdma_annotations,
    service_and_config_map,
    ssh_secret,
)
from ringleader.kubernetes.objects.exec_spawn import is_exec
from ringleader.kubernetes.objects.operator_settings import OperatorSettings

_JOINED = re.compile(r"-p(\d+)|(?:-o)?Port[= ]\s*(\d+)", re.IGNORECASE)


VOLUME = "ringleader-agent"
MOUNT_PATH = "/opt/ringleader"
CONTAINER = "ringleader-wait"
PORT_CONTAINER = "ringleader-ssh-port"
SSH_AGENT = f"{MOUNT_PATH}/ssh"
EXEC_AGENT = f"{MOUNT_PATH}/kubexec.sh"
SSH_CONFIG = f"{MOUNT_PATH}/ssh-config"
LAUNCH = f"{MOUNT_PATH}/launch"
USER = 65532
"""User of the operator's image."""
MEMORY = {"memory": "256Mi"}
_ASK_SSH = 'ssh -G "$1" >"$2" 2>/dev/null || :'


def ssh_ports(job: MPIJob) -> tuple[int, ...]:
    """Return the workers' ports for ssh; none where only their image knows.

    The port of an RDMA profile counts, else a declared port called ``ssh``, else ``-p N`` or ``-o Port=N`` on
    sshd's command line.
    """
    worker = job.spec.mpi_replica_specs.worker
    if worker is None:
        return ()
    of_profile = rdma_annotations.ssh_port(job)
    if of_profile is not None:
        return (of_profile,)
    first = worker.template["spec"]["containers"][0]
    declared = [port for port in first.get("ports") or () if port.get("name") == "ssh"]
    found = [port["containerPort"] for port in declared]
    if not found:
        given = (*(first.get("command") or ()), *(first.get("args") or ()))
        # A shell's script holds its words in one argument.
        words = [part for word in given for part in str(word).split()]
        if any(word.endswith("sshd") for word in words):
            found = [int(after) for before, after in pairwise(words) if before == "-p" and after.isdecimal()]
            found += [int(match[1] or match[2]) for word in words if (match := _JOINED.fullmatch(word))]
    return tuple(dict.fromkeys(port for port in found if 0 < port < 65536))


def agent_path(job: MPIJob, settings: OperatorSettings) -> str:
    """Return what mpirun calls in place of ssh; empty: ssh itself."""
    if not settings.image:
        return ""
    return EXEC_AGENT if is_exec(job) else SSH_AGENT


def init_containers(job: MPIJob, settings: OperatorSettings, spec: Document) -> list[Document]:
    """Return the init containers of a launcher whose Pod has this spec, in the order in which they run."""
    waiting = wait_container(job, settings, spec)
    is_greeted = _awaited(job) in ("", WAIT_ANSWER)
    if job.workers and is_greeted and not is_exec(job) and not ssh_ports(job):
        return [port_container(job, settings, spec), waiting]
    return [waiting]


def port_container(job: MPIJob, settings: OperatorSettings, spec: Document) -> Document:
    """Return the init container that asks the user's ssh which port it turns to: only the image knows."""
    first = spec["containers"][0]
    kept = ("image", "imagePullPolicy", "securityContext")
    # A path made of the container's variables is none here.
    mounts = [mount for mount in first.get("volumeMounts") or () if not mount.get("subPathExpr")]
    target = service_and_config_map.host(job, object_names.worker(job.metadata.name, 0), settings)
    return {
        "name": PORT_CONTAINER,
        **{name: deepcopy(first[name]) for name in kept if first.get(name)},
        "command": ["/bin/sh", "-c", _ASK_SSH, "sh", target, SSH_CONFIG],
        "volumeMounts": deepcopy(mounts),
        "resources": _resources(first),
    }


def wait_container(job: MPIJob, settings: OperatorSettings, spec: Document) -> Document:
    """Return the init container of a launcher whose Pod has this spec."""
    pull = {"imagePullPolicy": settings.image_pull_policy} if settings.image_pull_policy else {}
    return {
        "name": CONTAINER,
        "image": settings.image,
        **pull,
        "command": ["python", "-P", "-m", "ringleader.kubernetes.pod"],
        "args": _args(job, settings),
        "resources": _resources(spec["containers"][0]),
        "securityContext": _security(spec),
        "volumeMounts": [
            {"name": service_and_config_map.VOLUME, "mountPath": object_names.MOUNT_PATH},
            {"name": VOLUME, "mountPath": MOUNT_PATH},
        ],
    }


def _args(job: MPIJob, settings: OperatorSettings) -> list[str]:
    found = ["wait", f"--tools={MOUNT_PATH}", f"--hostfile={object_names.HOSTFILE_PATH}"]
    found += [f"--expect={pair}" for pair in mpi_environment.expected(job, agent_path(job, settings))]
    if job.spec.mpi_implementation is not MpiImplementation.OPENMPI:
        found.append("--ranks-by-default=1")
    found += [f"--slots={job.spec.slots_per_worker}", f"--timeout={settings.wait_timeout:g}"]
    notes = job.metadata.annotations
    found += [f"--limit={notes[WAIT_LIMIT]}"] if WAIT_LIMIT in notes else []
    found += [f"--wait-for={awaited}"] if (awaited := _awaited(job)) else []
    if job.spec.run_launcher_as_worker:
        found.append(f"--launcher={object_names.launcher(job.metadata.name)}")
    worker = job.spec.mpi_replica_specs.worker
    if is_exec(job):
        container = "" if worker is None else worker.template["spec"]["containers"][0]["name"]
        return [*found, "--spawn=exec", f"--namespace={job.metadata.namespace}", f"--container={container}"]
    found.append("--spawn=ssh")
    if ssh_secret.has_our_sshd(job):
        found.append(f"--known-hosts={job.spec.ssh_auth_mount_path}/known_hosts")
    return [*found, *([f"--port={port}" for port in ssh_ports(job)] or [f"--ssh-config={SSH_CONFIG}"])]


def _awaited(job: MPIJob) -> str:
    """Return what the launcher waits for; empty: what it waits for by itself.

    The launcher of an elastic job looks for its hosts all the time, and begins with those that are there.
    """
    by_itself = WAIT_OFF if job.elastic else ""
    return str(job.metadata.annotations.get(WAIT_FOR_WORKERS, by_itself))


def _resources(first: Document) -> Document:
    """Return the resources of an init container: the CPU of the launcher's own container, which runs later.

    So the Pod needs no more of it, fits the same quota and keeps its class of service.
    """
    given = first.get("resources") or {}
    cpu = {
        key: {"cpu": given[key]["cpu"]} for key in ("requests", "limits") if "cpu" in (given.get(key) or {})
    }
    cpu = cpu or {"requests": {"cpu": "100m"}}
    return {key: {**cpu.get(key, {}), **MEMORY} for key in ("requests", "limits")}


def _security(spec: Document) -> Document:
    """Return rights that even a restricted namespace allows.

    The image's own user is not root. It is named only where the Pod says root for all its containers:
    clusters that give each namespace its own users refuse a fixed one.
    """
    root = (spec.get("securityContext") or {}).get("runAsUser") == 0
    return {
        "runAsNonRoot": True,
        **({"runAsUser": USER} if root else {}),
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }

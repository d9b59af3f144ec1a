"""A job's options become Pod templates: containers, volumes, resources, where the Pods may run. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from ringleader.kubernetes.jobs.job_request import JobRequest, Pairs
from ringleader.kubernetes.mpijob.annotations import PREFIX
from ringleader.kubernetes.mpijob.object_metadata import KUEUE
from ringleader.kubernetes.objects import node_check
from ringleader.kubernetes.rdma.pod_nics import add_nics
from ringleader.render.rdma_profiles import Spread

CONTAINER = "train"
CHANNEL = "nvlink"
"""Claim of a worker for a channel of its ComputeDomain."""
_GROUP = f"{KUEUE}podset-group-name"
_EXPANDED = re.compile(r"\${2,}|\$(?=\()")


@dataclass(frozen=True, kw_only=True)
class Program:
    """What a container runs; without a command: what its image starts."""

    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[tuple[str, str], ...]
    """Variables of the container, in order."""


def unexpanded(text: str) -> str:
    """Return what must be written so that ``text`` arrives byte for byte.

    In a container's ``command``, ``args`` and values of ``env`` the kubelet replaces ``$(NAME)`` and turns
    ``$$`` into ``$`` (https://kubernetes.io/docs/tasks/inject-data-application/define-interdependent-environment-variables/).
    """
    return _EXPANDED.sub(lambda match: match.group() * 2, text)


def pod_template(request: JobRequest, role: str, program: Program, resources: Pairs) -> dict[str, Any]:
    """Return the Pod template of a role (``launcher``, ``worker``) that runs a program, without NICs."""
    has_ranks = role == "worker" or request.run_launcher_as_worker
    volumes = [(f"volume-{index}", *one) for index, one in enumerate(request.mounts)]
    if has_ranks and request.shm_size is not None:
        limit = {"sizeLimit": request.shm_size} if request.shm_size else {}
        volumes.append(("shm", {"emptyDir": {"medium": "Memory", **limit}}, {"mountPath": "/dev/shm"}))
    has_program = bool(program.command or program.env)
    container: dict[str, Any] = {"name": role, "image": request.image}
    container |= _given({"imagePullPolicy": request.image_pull_policy})
    if program.command:
        container |= {"command": list(program.command), "args": list(program.args)}
    container |= _given(
        {
            "workingDir": request.workdir,
            "env": [
                *({"name": name, "value": value} for name, value in program.env),
                *(request.secret_env if has_program else ()),
            ],
            # Requested and limited alike: what a rank gets does not depend on its neighbors.
            "resources": _given({"requests": dict(resources), "limits": dict(resources)}),
            "volumeMounts": [{"name": name, **mount} for name, _, mount in volumes],
        }
    )
    claims = [{"name": CHANNEL}] if has_ranks and request.compute_domain else []
    if claims:
        container["resources"] = {**container.get("resources", {}), "claims": claims}
    spec = {"containers": [container]} | _given(
        {
            "volumes": [{"name": name, **source} for name, source, _ in volumes],
            "resourceClaims": [
                {**one, "resourceClaimTemplateName": request.compute_domain} for one in claims
            ],
            "imagePullSecrets": [{"name": name} for name in request.image_pull_secret],
            "nodeSelector": dict(request.node_selector),
            "tolerations": list(request.toleration),
            "priorityClassName": request.priority_class,
            "serviceAccountName": request.service_account,
        }
    )
    notes = {name: text for name, text in request.annotation if not name.startswith(PREFIX)}
    if request.topology is not None:
        # The launcher and its workers are placed as one: Kueue takes groups of two kinds of Pods.
        how, _, label = request.topology.partition(":")
        notes[f"{KUEUE}podset-{how}-topology"] = label
        notes |= {_GROUP: request.name} if request.workers else {}
    metadata = _given({"labels": dict(request.label), "annotations": notes})
    return _given({"metadata": metadata}) | {"spec": spec}


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that the request says something about."""
    return {name: value for name, value in fields.items() if value}


def single_pod(request: JobRequest) -> dict[str, Any]:
    """Return the Pod that runs a request's command once, with the GPUs and NICs of one worker."""
    env = ({} if request.rdma is None else dict(request.rdma.env)) | dict(request.env)
    program = Program(
        command=tuple(map(unexpanded, request.command[:1])),
        args=tuple(map(unexpanded, request.command[1:])),
        env=tuple((name, unexpanded(value)) for name, value in env.items()),
    )
    pod = pod_template(request, "worker", program, request.resources)
    if request.rdma is not None:
        # There is nobody to be kept apart from, and nobody comes by ssh.
        nics = replace(request.rdma, ssh_port=None, spread=Spread.NONE)
        add_nics(pod, nics, job=request.name, role="")
    spec = pod["spec"]
    if request.check:
        node_check.give(spec)
    spec["containers"][0]["name"] = CONTAINER
    deadline = {} if request.timeout is None else {"activeDeadlineSeconds": request.timeout}
    space = _given({"namespace": request.namespace})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": request.name, **space, **pod.get("metadata", {})},
        "spec": {"restartPolicy": "Never", **deadline, **spec},
    }

"""Training on one node without MPI: a request becomes one Pod. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ringleader.launch.kubernetes.job_request import Request
from ringleader.launch.kubernetes.mpijob_builder import template_of
from ringleader.launch.kubernetes.mpirun_command import Call
from ringleader.launch.kubernetes.pod_template import literal
from ringleader.render.rdma.pod_nics import give
from ringleader.render.rdma.profile import Spread

CONTAINER = "train"


def single_pod(request: Request) -> dict[str, Any]:
    """Return the Pod that runs a request's command once, with the GPUs and NICs of one worker."""
    env = ({} if request.rdma is None else dict(request.rdma.env)) | dict(request.env)
    program = Call(
        command=tuple(map(literal, request.command[:1])),
        args=tuple(map(literal, request.command[1:])),
        env=tuple((name, literal(value)) for name, value in env.items()),
    )
    pod = template_of(request, "worker", program, request.resources)
    if request.rdma is not None:
        # There is nobody to be kept apart from, and nobody comes by ssh.
        nics = replace(request.rdma, ssh_port=None, spread=Spread.NONE)
        give(pod, nics, job=request.name, role="")
    spec = pod["spec"]
    spec["containers"][0]["name"] = CONTAINER
    deadline = {} if request.timeout is None else {"activeDeadlineSeconds": request.timeout}
    space = {"namespace": request.namespace} if request.namespace else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": request.name, **space, **pod.get("metadata", {})},
        "spec": {"restartPolicy": "Never", **deadline, **spec},
    }

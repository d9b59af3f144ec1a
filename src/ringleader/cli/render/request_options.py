"""What the commands of ``ringleader render`` share that print a job made of options."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.kubernetes.connection import checked_namespace, needs_kubernetes
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.options.kubernetes_options import JobOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.errors import RequestError
from ringleader.option_fields import names_of
from ringleader.render.rdma.resource_claims import template
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.launch.kubernetes.job_request import JobRequest

NAME = {"help": "Name of the job. [default: that of COMMAND's script or program]"}
"""What ``--name`` is where nothing is sent."""
JOB_NAMES = names_of(JobOptions)
"""Parameters that describe a job."""


def request_of_options(job: JobOptions, *, namespace: str, faults: Faults) -> JobRequest:
    """Return the request that the options make; what is wrong is added to ``faults``.

    A job without a name is called after its script: the same options always print the same.
    """
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_from_options import request_of
    return request_of(job, faults=faults, namespace=namespace, suffix="", environ=os.environ, read=read_text)


def said_namespace(namespace: str | None, faults: Faults) -> str:
    """Return the namespace of ``--namespace``; empty: kubectl's own."""
    try:
        return checked_namespace(namespace)
    except RequestError as error:
        faults.found += error.faults
        return ""


def claim_templates(request: JobRequest) -> list[dict[str, Any]]:
    """Return the ResourceClaimTemplate that a job needs beside it, if it does."""
    nics = request.rdma
    if nics is None or not nics.makes_template:
        return []
    return [template(nics, job=request.name, namespace=request.namespace)]


def show_objects(options: JsonOptions, values: Sequence[object]) -> None:
    """Print objects as YAML documents, or as JSON: the object, or a List of several."""
    one = values[0] if len(values) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(values)}
    show(options, one, lambda: yaml_of(values))

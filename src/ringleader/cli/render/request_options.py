"""What the commands of ``ringleader render`` share that print a job made of options."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.options.host_options import Faults
from ringleader.cli.options.kubernetes_options import (
    CLUSTER_OPTIONS,
    JOB_OPTIONS,
    SHARED_OPTIONS,
    JobWords,
    job_words,
    told,
)
from ringleader.errors import RequestError
from ringleader.text_files import read_text

if TYPE_CHECKING:
    from ringleader.launch.kubernetes.job_request import JobRequest

JOB_NAMES = frozenset(part.name for part in fields(JobWords))
"""Parameters that describe a job."""

NAMESPACE = next(
    told(option, "Namespace. [default: none is said, and kubectl takes its own]")
    for option in CLUSTER_OPTIONS
    if option.name == "namespace"
)

_HELP = {"name": "Name of the job. [default: that of COMMAND's script or program]"}

REQUEST_OPTIONS: tuple[click.Option, ...] = (
    *(option for option in SHARED_OPTIONS if option.name in JOB_NAMES),
    *(told(option, _HELP.get(option.name or "", option.help)) for option in JOB_OPTIONS),
)
"""What describes a job: the options of ``run --on kubernetes`` with the same meaning."""

JSON = click.Option(["--json", "as_json"], is_flag=True, help="Print JSON: the object, or a List of several.")


def asked(params: Mapping[str, Any], *, namespace: str, faults: Faults) -> JobRequest:
    """Return the request that the options make; what is wrong is added to ``faults``.

    A job without a name is called after its script: the same words always print the same.
    """
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_request import request_of
    return request_of(
        job_words(params),
        faults=faults,
        namespace=namespace,
        suffix="",
        environ=os.environ,
        read=read_text,
    )


def said_namespace(params: Mapping[str, Any], faults: Faults) -> str:
    """Return the namespace of ``--namespace``; empty: kubectl's own."""
    from ringleader.cli.kubernetes.connection import checked_namespace

    try:
        return checked_namespace(params["namespace"])
    except RequestError as error:
        faults.found += error.faults
        return ""


def claim_templates(request: JobRequest) -> list[dict[str, Any]]:
    """Return the ResourceClaimTemplate that a job needs beside it, if it does."""
    from ringleader.render.rdma.resource_claims import template

    nics = request.rdma
    if nics is None or not nics.makes_template:
        return []
    return [template(nics, job=request.name, namespace=request.namespace)]


def printed(values: Sequence[object], *, as_json: bool) -> str:
    """Return objects as YAML documents, or as JSON."""
    if not as_json:
        with needs_kubernetes():
            from ringleader.mpijob.yaml_text import text_of
        return text_of(values)
    one = values[0] if len(values) == 1 else {"apiVersion": "v1", "kind": "List", "items": list(values)}
    return json.dumps(one, indent=2, ensure_ascii=False) + "\n"

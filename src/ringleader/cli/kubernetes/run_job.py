"""``ringleader run --on kubernetes`` and ``ringleader submit``: a job is sent to a cluster and followed."""

from __future__ import annotations

import os
import random
import string
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from ringleader import __version__
from ringleader.cli.json_output import outcome_to
from ringleader.cli.kubernetes.connection import (
    Connection,
    namespace_without_cluster,
    needs_kubernetes,
    with_cluster,
)
from ringleader.cli.kubernetes.follow_job import Work, attend
from ringleader.cli.kubernetes.job_from_options import job_of, readable_secrets, remarks_on, request_of
from ringleader.cli.kubernetes.job_terminal import job_terminal
from ringleader.cli.options.kubernetes_options import ClusterOptions, FollowOptions, KubernetesOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.errors import Fault, RequestError, RingleaderError, collected
from ringleader.launch.kubernetes.exit_status import End
from ringleader.launch.kubernetes.job_request import JobRequest
from ringleader.launch.kubernetes.mpijob_submission import MpiJobSubmission
from ringleader.launch.kubernetes.operatorless_job import OperatorlessSubmission
from ringleader.launch.kubernetes.operatorless_objects import check_operatorless as check_objects
from ringleader.launch.kubernetes.operatorless_objects import owned, plan
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.parser import request as as_requested
from ringleader.mpijob.serializer import write
from ringleader.render.kubernetes.job_validation import check
from ringleader.render.kubernetes.operator_settings import OperatorSettings
from ringleader.text_files import read_text

Where = Literal["kubernetes", "pods"]
RUN_ID = "RUN"
JOB_UID = "UID-OF-THE-JOB"
"""Stand in a dry run for what is known only when the job is sent."""
FORMAT = 1
"""Of the outcome as JSON: grows when a reader of it must change."""


def run_request(on: Where, options: KubernetesOptions) -> int:
    """Run a job made of options. Raises RequestError with every fault at once."""
    cluster, follow, faults = options.cluster, options.follow, Faults()
    namespace = namespace_of(cluster, faults) if follow.dry_run or cluster.namespace is not None else ""
    request = request_of(
        options.job,
        faults=faults,
        namespace=namespace,
        suffix=_five_letters(),
        environ=os.environ,
        read=read_text,
    )
    if request.rdma is not None and request.rdma.makes_template:
        hint = "ringleader render mpijob prints it with its job: send both with kubectl, then name it here"
        faults.add("--rdma-claim-template", f"missing: --rdma {request.rdma.profile.name} needs one", hint)
    made = job_of(request, faults)
    tell(request)
    return run_job(on, cluster, made, follow)


def tell(request: JobRequest) -> None:
    """Tell the user what he should know of his request, on standard error."""
    found = [
        f"whoever may read the job can read {name}; --secret-env takes it from a Secret"
        for name in readable_secrets(request)
    ]
    for text in (*found, *remarks_on(request)):
        print(f"ringleader: {text}", file=sys.stderr)


def run_job(on: Where, cluster: ClusterOptions, job: MPIJob, follow: FollowOptions) -> int:
    """Send a job and follow it; return the exit code."""
    job = _named(job)
    if on == "pods":
        check_operatorless(job, follow)
    if follow.dry_run:
        sys.stdout.write(dry_run_text(on, job, follow))
        return 0
    json = follow.json
    with outcome_to(json) as kept:
        about = {"format": FORMAT, "ringleader": __version__, "job": job.metadata.name}
        try:
            end = with_cluster(cluster, lambda one: _stay(on, one, job, follow))
        except RingleaderError as error:
            values = {"exit_code": error.exit_code, "whose": "ringleader", "reason": str(error)}
            kept.keep(lambda: about | values, failed=True)
            raise
        values = {"exit_code": end.exit_code, "whose": end.whose, "reason": end.reason}
        values |= {"state": end.state, "launcher": end.launcher}
        kept.keep(lambda: about | values, failed=bool(end.exit_code))
    return end.exit_code


async def _stay(
    on: Where,
    connection: Connection,
    job: MPIJob,
    follow: FollowOptions,
) -> End:
    """Send a job and stay with it; tell the terminal how it went."""
    space, name = job.metadata.namespace or connection.namespace, job.metadata.name
    here = replace(connection, namespace=space)
    placed = replace(job, metadata=replace(job.metadata, namespace=space))
    terminal = job_terminal(name, quiet=follow.quiet, output_to_stderr=follow.json.json)
    try:
        work = work_of(on, here, placed, follow, terminal.say)
        end = await attend(here, work, terminal, follow, name=name)
    except RingleaderError:
        terminal.finish(None)
        raise
    terminal.finish(end)
    return end


def _named(job: MPIJob) -> MPIJob:
    """Return a job with a name of its own in place of ``generateName``: we ask for it by name."""
    metadata = job.metadata
    if metadata.name:
        return job
    name = metadata.generate_name + _five_letters()
    return replace(job, metadata=replace(metadata, name=name, generate_name=""))


def _five_letters() -> str:
    """Return what makes a name new, as the API server does it for ``generateName``."""
    return "".join(random.choices(string.ascii_lowercase + string.digits, k=5))


def dry_run_text(on: Where, job: MPIJob, follow: FollowOptions) -> str:
    """Return the YAML that would be sent."""
    with needs_kubernetes():
        from ringleader.mpijob.yaml_text import text_of
    return text_of(objects(on, job, follow))


def objects(on: Where, job: MPIJob, follow: FollowOptions) -> list[dict[str, Any]]:
    """Return the objects that would be sent, in that order; keys are not among them."""
    if on == "kubernetes":
        return [write(as_requested(job))]
    first, *rest = plan(job, _settings(follow), run=RUN_ID).documents
    name = first["metadata"]["name"]
    return [first, *(owned(one, name=name, uid=JOB_UID) for one in rest)]


def check_operatorless(job: MPIJob, follow: FollowOptions) -> None:
    """Raise RequestError with all that cannot be done without an operator."""
    faults: list[Fault] = []
    with collected(faults):
        check_objects(job)
    with collected(faults):
        check(job, _settings(follow))
    if faults:
        raise RequestError(faults)


def work_of(
    on: Where, connection: Connection, job: MPIJob, follow: FollowOptions, tell: Callable[[str], None]
) -> Work:
    """Return what brings a job onto this kind of cluster and takes it away again."""
    if on == "pods":
        return OperatorlessSubmission(connection.cluster, job, _settings(follow), tell=tell)
    return MpiJobSubmission(connection.cluster, job, tell=tell)


def _settings(follow: FollowOptions) -> OperatorSettings:
    return OperatorSettings(image=follow.operator_image or "", has_exec_spawn=True)


def namespace_of(cluster: ClusterOptions, faults: Faults) -> str:
    """Return the namespace that a job would be sent to; what is wrong is added to ``faults``."""
    found = ""
    with collected(faults.found):
        found = namespace_without_cluster(cluster)
    return found

"""``ringleader render pods``: a job without an operator, or one Pod alone, printed and not sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import click

from ringleader.cli.json_output import JsonOptions
from ringleader.cli.kubernetes.connection import needs_kubernetes
from ringleader.cli.options.kubernetes_options import ClusterOptions, FollowOptions, JobOptions
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.render.mpijob import (
    NAME,
    claim_templates,
    request_of_options,
    said_namespace,
    show_objects,
)
from ringleader.cli.typed_command import Command, given, spelling
from ringleader.option_fields import flag, group, names_of
from ringleader.plan.elastic_options import ElasticOptions

HELP = """Print a job as plain Pods: what run --on pods would send, without the keys.

\b
  ringleader render pods -n 16 --gpus 8 --image example.org/team/train:1 --rdma shared -- python train.py
  ringleader render pods --single --gpus 8 --image team/train:1 -- ringleader run -n 8 python train.py

With --single it is one Pod for kubectl that runs COMMAND once: training on one node, without MPI. The rest is
for reading: run --on pods draws keys for ssh, sends the objects in this order and starts the launcher last.
"""

_OF_MPI = frozenset(
    (
        *("np", "map_by", "master_port", "mpirun_arg", "slots_per_worker", "mpi_implementation", "mpirun"),
        *("launcher_cpu", "launcher_memory", "run_launcher_as_worker", "clean_pod_policy", "ttl"),
        *("backoff_limit", "spawn", "ssh_auth_mount_path", "rdma_spread", "rdma_ssh_port", "suspend"),
        *("queue", "gang", "autotune", "consistency_check", "operator_image"),
        *names_of(ElasticOptions, where="cluster"),
    )
)
"""Parameters that mean nothing for a single Pod."""


EVERYDAY = (
    *("single", "json", "json_file", "namespace", "np", "x", "env_file", "workdir", "image", "name", "gpus"),
    *("cpu", "memory", "slots_per_worker", "rdma", "claim", "volume"),
)
"""Options of the short help."""


@dataclass(frozen=True, kw_only=True)
class PodsOptions:
    """The options of ``render pods``."""

    single: bool = flag("One Pod that runs COMMAND once, without MPI.")
    json: JsonOptions = group(JsonOptions)
    cluster: ClusterOptions = group(ClusterOptions)
    follow: FollowOptions = group(FollowOptions, where="pods")
    job: JobOptions = group(JobOptions, changed={"name": NAME, "command": {"metavar": "COMMAND…"}})


def pods(options: PodsOptions) -> None:
    """Print the objects."""
    show_objects(options.json, single(options) if options.single else several(options))


command = Command(
    "pods",
    options=PodsOptions,
    run=pods,
    everyday=EVERYDAY,
    help=HELP,
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False},
)


def several(options: PodsOptions) -> list[dict[str, Any]]:
    """Return a job's objects in the order in which they are sent. Remarks go to standard error."""
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_from_options import job_of
        from ringleader.cli.kubernetes.run_job import check_operatorless, namespace_of, objects, tell
    faults = Faults()
    namespace = namespace_of(options.cluster, faults)
    request = request_of_options(options.job, namespace=namespace, faults=faults)
    job = job_of(request, faults)
    check_operatorless(job, options.follow)
    tell(request)
    return [*claim_templates(request), *objects("pods", job, options.follow)]


def single(options: PodsOptions) -> list[dict[str, Any]]:
    """Return the one Pod. Remarks go to standard error."""
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_from_options import job_of
        from ringleader.cli.kubernetes.run_job import tell
        from ringleader.launch.kubernetes.pod_template import single_pod
    faults = Faults()
    for one in given(click.get_current_context()):
        if one.name in _OF_MPI:
            faults.add(spelling(one), "means nothing with --single", "one Pod runs COMMAND once, without MPI")
    namespace = said_namespace(options.cluster.namespace, faults)
    asked = replace(options.job, pods=replace(options.job.pods, spawn=None))
    request = request_of_options(asked, namespace=namespace, faults=faults)
    job_of(request, faults)
    tell(request)
    return [*claim_templates(request), single_pod(request)]

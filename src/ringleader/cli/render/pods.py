"""``ringleader render pods``: a job without an operator, or one Pod alone, printed and not sent."""

from __future__ import annotations

import sys
from typing import Any

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.kubernetes.connection import namespace_without_cluster
from ringleader.cli.options.host_options import Faults
from ringleader.cli.options.kubernetes_options import (
    CLUSTER_OPTIONS,
    FOLLOW_OPTIONS,
    FollowWords,
    cluster_words,
    given,
    spelt,
)
from ringleader.cli.render.request_options import (
    JSON,
    REQUEST_OPTIONS,
    asked,
    claim_templates,
    printed,
    said_namespace,
)
from ringleader.errors import RequestError

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
        *("queue", "gang", "autotune", "operator_image"),
    )
)
"""Parameters that mean nothing for a single Pod."""


class PodsCommand(click.Command):
    """A command whose words arrive as a few values."""

    def invoke(self, ctx: click.Context) -> int:
        """Print the objects; return the exit code."""
        sys.stdout.write(single(ctx) if ctx.params["single"] else several(ctx))
        return 0


command = PodsCommand(
    "pods",
    params=[
        click.Option(["--single"], is_flag=True, help="One Pod that runs COMMAND once, without MPI."),
        JSON,
        *CLUSTER_OPTIONS,
        *(option for option in FOLLOW_OPTIONS if option.name == "operator_image"),
        *REQUEST_OPTIONS,
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="COMMAND…"),
    ],
    help=HELP,
    no_args_is_help=True,
    context_settings={"allow_interspersed_args": False, "help_option_names": ["-h", "--help"]},
)


def several(ctx: click.Context) -> str:
    """Return a job's objects in the order in which they are sent. Remarks go to standard error."""
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_request import job_of
        from ringleader.cli.kubernetes.run_job import check_operatorless, objects, tell
    faults = Faults()
    request = asked(ctx.params, namespace=_namespace(ctx, faults), faults=faults)
    job = job_of(request, faults)
    follow = FollowWords(operator_image=ctx.params["operator_image"])
    check_operatorless(job, follow)
    tell(request)
    return printed([*claim_templates(request), *objects("pods", job, follow)], as_json=ctx.params["as_json"])


def single(ctx: click.Context) -> str:
    """Return the one Pod. Remarks go to standard error."""
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_request import job_of
        from ringleader.cli.kubernetes.run_job import tell
        from ringleader.launch.kubernetes.pod_template import single_pod
    faults = Faults()
    for one in given(ctx):
        if one.name in _OF_MPI:
            faults.add(spelt(one), "means nothing with --single", "one Pod runs COMMAND once, without MPI")
    params: dict[str, Any] = {**ctx.params, "spawn": None}
    request = asked(params, namespace=said_namespace(ctx.params, faults), faults=faults)
    job_of(request, faults)
    tell(request)
    return printed([*claim_templates(request), single_pod(request)], as_json=ctx.params["as_json"])


def _namespace(ctx: click.Context, faults: Faults) -> str:
    try:
        return namespace_without_cluster(cluster_words(ctx.params))
    except RequestError as error:
        faults.found += error.faults
        return ""

"""``ringleader submit``: an MPIJob from a file or from options is sent to a cluster and followed."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import click

from ringleader.cli.kubernetes import run_job
from ringleader.cli.kubernetes.manifest_arguments import FilesOrCommand, changes_text, read_files
from ringleader.cli.options.kubernetes_options import (
    ClusterOptions,
    FollowOptions,
    JobOptions,
    KubernetesOptions,
)
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import given, spelling
from ringleader.errors import Fault, RequestError
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.parser import read
from ringleader.option_fields import flag, group, option, parts
from ringleader.plan.elastic_options import ElasticOptions

HELP = """Send an MPIJob to a cluster and stay with it: progress, the launcher's log, its exit code.

The job comes from a FILE (YAML or JSON; - is standard input), or with --image from the options and COMMAND.

\b
  ringleader submit job.yaml
  ringleader submit -n 8 --gpus 4 --image example.org/team/train:1 -- python train.py --lr 0.1
  ringleader submit --detach job.yaml

Ctrl-C asks whether to delete the job. Without --detach only one job can be sent at a time.
"""

_OF_FILES = {"detach", "rm", "quiet", "dry_run", "json", "json_file", "start_timeout", "on", "convert"}
_OF_FILES |= {"operator_image", "namespace", "context", "kubeconfig", "command"}
EVERYDAY = (
    *("np", "x", "env_file", "workdir", "timeout", "quiet", "dry_run", "json", "json_file", "on"),
    *("namespace", "detach", "rm", "image", "name", "gpus", "cpu", "memory"),
    *("rdma", "claim", "volume", "queue"),
)
"""Options of the short help."""


@dataclass(frozen=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    on: Literal["kubernetes", "pods"] = option(
        "pods: no operator and no MPIJob are needed; the job is made here and cleaned up here.",
        default="kubernetes",
        metavar="kubernetes|pods",
        choices=("kubernetes", "pods"),
    )
    convert: bool = flag("Take manifests of v1alpha1, v1alpha2 and v1 too.")
    cluster: ClusterOptions = group(ClusterOptions)
    follow: FollowOptions = group(FollowOptions)
    job: JobOptions = group(JobOptions, changed={"command": {"metavar": "FILE|COMMAND..."}})


def submit(options: SubmitOptions) -> int:
    """Do what was asked for and return the exit code."""
    on, job, follow, cluster = options.on, options.job, options.follow, options.cluster
    if job.pods.image is not None:
        if options.convert:
            what = "a job made from options is of the newest version"
            raise RequestError([*job.job.faults, Fault(where="--convert and --image", what=what)])
        return run_job.run_request(on, KubernetesOptions(cluster=cluster, job=job, follow=follow))
    faults = Faults(found=list(job.job.faults))
    return max(run_job.run_job(on, cluster, one, follow) for one in _jobs_of_files(options, faults))


def _jobs_of_files(options: SubmitOptions, faults: Faults) -> tuple[MPIJob, ...]:
    """Return the jobs. Raises RequestError with every fault at once."""
    files, follow = options.job.job.command, options.follow
    namespace = options.cluster.namespace
    for parameter in given(click.get_current_context()):
        if parameter.name not in _OF_FILES:
            faults.add(
                spelling(parameter), "is for a job made from options", "edit the file, or give --image"
            )
    rendered = read_files(files, faults.found, converting=options.convert)
    for other in rendered:
        if not other.name:
            what = f"a {other.value.get('kind')}: only MPIJobs are sent"
            hint = "kubectl apply -f takes files of any objects; ringleader logs -f JOB"
            faults.add(other.where, what, hint)
    found = tuple(read(one.value) for one in rendered if one.name)
    if len(found) > 1 and not follow.detach and not follow.dry_run:
        names = ", ".join(one.metadata.name or one.metadata.generate_name for one in found)
        faults.add("FILE", f"holds {len(found)} jobs: {names}", "with --detach all are sent")
    if namespace is not None:
        for one in found:
            if one.metadata.namespace not in ("", namespace):
                what = f"{one.metadata.name} belongs to namespace {one.metadata.namespace}"
                faults.add("--namespace", what, "leave out one of the two")
    if faults.found:
        raise RequestError(faults.found)
    if options.convert:
        sys.stderr.write(changes_text(rendered))
    return found


command = FilesOrCommand(
    "submit",
    options=SubmitOptions,
    run=submit,
    first=(
        *("np", "map_by", "threads", "master_port", "x", "env_file", "autotune", "consistency_check"),
        *("quiet", "timeout", "workdir", "dry_run", "json", "json_file", "mpirun_arg", "start_timeout"),
        *(part.parameter for part in parts(ElasticOptions)),
    ),
    everyday=EVERYDAY,
    help=HELP,
    no_args_is_help=True,
)

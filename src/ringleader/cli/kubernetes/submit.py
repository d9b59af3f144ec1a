"""``ringleader submit``: an MPIJob from a file or from options is sent to a cluster and followed."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Literal

import click

from ringleader.cli.kubernetes import run_job
from ringleader.cli.kubernetes.manifest_arguments import FilesOrCommand, changes_text, read_files
from ringleader.cli.options.kubernetes_options import (
    CLUSTER_OPTIONS,
    FOLLOW_OPTIONS,
    JOB_OPTIONS,
    SHARED_OPTIONS,
    KubernetesOptions,
)
from ringleader.cli.options.option_checks import Faults
from ringleader.cli.typed_command import Option, complete_files, given, spelling
from ringleader.errors import Fault, RequestError
from ringleader.mpijob.model import MPIJob
from ringleader.mpijob.parser import read

HELP = """Send an MPIJob to a cluster and stay with it: progress, the launcher's log, its exit code.

The job comes from a FILE (YAML or JSON; - is standard input), or with --image from the options and COMMAND.

\b
  ringleader submit job.yaml
  ringleader submit -n 8 --gpus 4 --image example.org/team/train:1 -- python train.py --lr 0.1
  ringleader submit --detach job.yaml

Ctrl-C asks whether to delete the job. Without --detach only one job can be sent at a time.
"""

_ON = Option(
    ["--on"],
    metavar="kubernetes|pods",
    default="kubernetes",
    show_default=True,
    help="pods: no operator and no MPIJob are needed; the job is made here and cleaned up here.",
)
_CONVERT = Option(["--convert"], is_flag=True, help="Take manifests of v1alpha1, v1alpha2 and v1 too.")
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
    """The options, as they were written."""

    on: Literal["kubernetes", "pods"] = "kubernetes"
    convert: bool = False
    kubernetes: KubernetesOptions = field(default_factory=KubernetesOptions)


def submit(options: SubmitOptions) -> int:
    """Do what was asked for and return the exit code."""
    on, faults, kubernetes = options.on, Faults(), options.kubernetes
    job, follow, cluster = kubernetes.job, kubernetes.follow, kubernetes.cluster
    if on not in ("kubernetes", "pods"):
        faults.add("--on", f"{on!r} is unknown", "use kubernetes or pods")
    if job.image is not None:
        if options.convert:
            faults.add("--convert and --image", "a job made from options is of the newest version")
        if faults.found:
            raise RequestError(faults.found)
        return run_job.run_request(on, kubernetes)
    found, start_timeout = _jobs_of_files(options, faults)
    return max(run_job.run_job(on, cluster, one, follow, start_timeout=start_timeout) for one in found)


def _jobs_of_files(options: SubmitOptions, faults: Faults) -> tuple[tuple[MPIJob, ...], float | None]:
    """Return the jobs, and how long each may take to run. Raises RequestError with every fault at once."""
    files, follow = options.kubernetes.job.command, options.kubernetes.follow
    namespace = options.kubernetes.cluster.namespace
    for option in given(click.get_current_context()):
        if option.name not in _OF_FILES:
            faults.add(spelling(option), "is for a job made from options", "edit the file, or give --image")
    start_timeout = run_job.seconds(follow, faults)
    rendered = read_files(files, faults.found, converting=options.convert)
    for other in rendered:
        if not other.name:
            what = f"a {other.value.get('kind')}: only MPIJobs are sent"
            hint = "kubectl apply -f takes files of any objects; ringleader logs -f JOB"
            faults.add(other.where, what, hint)
    found = tuple(read(one.value) for one in rendered if one.name)
    if not files and follow.json.json not in (None, "-"):
        hint = f"--json {follow.json.json} names the file of the outcome: write --json behind FILE"
        faults.found[-1] = Fault(where="FILE", what="missing", hint=hint)
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
    return found, start_timeout


command = FilesOrCommand(
    "submit",
    options=SubmitOptions,
    run=submit,
    everyday=EVERYDAY,
    params=[
        *SHARED_OPTIONS,
        _ON,
        _CONVERT,
        *CLUSTER_OPTIONS,
        *FOLLOW_OPTIONS,
        *JOB_OPTIONS,
        click.Argument(
            ["command"],
            nargs=-1,
            type=click.UNPROCESSED,
            metavar="FILE|COMMAND...",
            shell_complete=complete_files,
        ),
    ],
    help=HELP,
    no_args_is_help=True,
)

"""``ringleader submit``: an MPIJob from a file or from options is sent to a cluster and followed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.options.host_options import Faults
from ringleader.cli.options.kubernetes_options import (
    CLUSTER_OPTIONS,
    FOLLOW_OPTIONS,
    JOB_OPTIONS,
    SHARED_OPTIONS,
    cluster_words,
    follow_words,
    given,
    job_words,
    spelt,
)
from ringleader.errors import RequestError

if TYPE_CHECKING:
    from ringleader.mpijob.model import MPIJob

HELP = """Send an MPIJob to a cluster and stay with it: progress, the launcher's log, its exit code.

The job comes from a FILE (YAML or JSON; - is standard input), or with --image from the options and COMMAND.

\b
  ringleader submit job.yaml
  ringleader submit -n 8 --gpus 4 --image example.org/team/train:1 -- python train.py --lr 0.1
  ringleader submit --detach job.yaml

Ctrl-C asks whether to delete the job. Without --detach only one job can be sent at a time.
"""

_ON = click.Option(
    ["--on"],
    metavar="kubernetes|pods",
    default="kubernetes",
    show_default=True,
    help="pods: no operator and no MPIJob are needed; the job is made here and cleaned up here.",
)
_CONVERT = click.Option(["--convert"], is_flag=True, help="Take manifests of v1alpha1, v1alpha2 and v1 too.")
_OF_FILES = {"detach", "rm", "quiet", "dry_run", "json", "start_timeout", "on", "convert", "operator_image"}
_OF_FILES |= {"namespace", "context", "kubeconfig", "command"}


class SubmitCommand(click.Command):
    """A command whose words arrive as a few values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options stand behind files too; behind a COMMAND they are its own."""
        ctx.allow_interspersed_args = not any(word.partition("=")[0] == "--image" for word in args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> int:
        """Send the job; return the exit code."""
        return submit(ctx)


command = SubmitCommand(
    "submit",
    params=[
        *SHARED_OPTIONS,
        _ON,
        _CONVERT,
        *CLUSTER_OPTIONS,
        *FOLLOW_OPTIONS,
        *JOB_OPTIONS,
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="FILE|COMMAND..."),
    ],
    help=HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def submit(ctx: click.Context) -> int:
    """Do what was asked for and return the exit code."""
    from ringleader.cli.kubernetes import run_job

    on, faults = ctx.params["on"], Faults()
    if on not in ("kubernetes", "pods"):
        faults.add("--on", f"{on!r} is unknown", "use kubernetes or pods")
    job, follow, cluster = job_words(ctx.params), follow_words(ctx.params), cluster_words(ctx.params)
    if job.image is not None:
        if ctx.params["convert"]:
            faults.add("--convert and --image", "a job made from options is of the newest version")
        if faults.found:
            raise RequestError(faults.found)
        return run_job.run_words(on, cluster, job, follow)
    for option in given(ctx):
        if option.name not in _OF_FILES:
            faults.add(spelt(option), "is for a job made from options", "edit the file, or give --image")
    start_timeout = run_job.seconds(follow, faults)
    found = jobs_of(job.command, faults, converting=ctx.params["convert"])
    if len(found) > 1 and not follow.detach and not follow.dry_run:
        names = ", ".join(one.metadata.name or one.metadata.generate_name for one in found)
        faults.add("FILE", f"holds {len(found)} jobs: {names}", "with --detach all are sent")
    if cluster.namespace is not None:
        for one in found:
            if one.metadata.namespace not in ("", cluster.namespace):
                what = f"{one.metadata.name} belongs to namespace {one.metadata.namespace}"
                faults.add("--namespace", what, "leave out one of the two")
    if faults.found:
        raise RequestError(faults.found)
    codes = [run_job.run_job(on, cluster, one, follow, start_timeout=start_timeout) for one in found]
    return max(codes)


def jobs_of(files: tuple[str, ...], faults: Faults, *, converting: bool) -> tuple[MPIJob, ...]:
    """Return the MPIJobs of files; what is wrong with them is added to ``faults``."""
    from ringleader.cli.kubernetes.manifest_files import text_of_file

    with needs_kubernetes():
        from ringleader.mpijob import manifest_files, yaml_text
    if not files:
        faults.add("FILE", "missing", "ringleader submit job.yaml, or --image IMAGE -- COMMAND")
        return ()
    documents: list[yaml_text.Document] = []
    for file in files:
        try:
            documents += yaml_text.documents(text_of_file(file), "standard input" if file == "-" else file)
        except RequestError as error:
            faults.found += error.faults
    try:
        rendered = (
            manifest_files.render(documents, converting=converting, source=", ".join(files))
            if documents or not faults.found
            else ()
        )
    except RequestError as error:
        faults.found += error.faults
        return ()
    for one in rendered:
        if not one.name:
            what = f"a {one.value.get('kind')}: only MPIJobs are sent"
            faults.add(one.where, what, "kubectl apply -f takes files of any objects; ringleader logs -f JOB")
    from ringleader.mpijob.parser import read

    return tuple(read(one.value) for one in rendered if one.name)

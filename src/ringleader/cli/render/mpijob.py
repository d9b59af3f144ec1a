"""``ringleader render mpijob``: MPIJobs made of options or read from files, printed and not sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.kubernetes.manifest_files import changes_text, read_files
from ringleader.cli.options.host_options import Faults
from ringleader.cli.options.kubernetes_options import given, spelt
from ringleader.cli.render.request_options import (
    JOB_NAMES,
    JSON,
    NAMESPACE,
    REQUEST_OPTIONS,
    asked,
    claim_templates,
    printed,
    said_namespace,
)
from ringleader.errors import Fault, RequestError

if TYPE_CHECKING:
    from ringleader.mpijob.manifest_files import Rendered

HELP = """Print MPIJobs: made of options, or read from files with every default spelt out.

\b
  ringleader render mpijob -n 16 --gpus 8 --image example.org/team/train:1 --rdma shared -- python train.py
  ringleader render mpijob job.yaml
  ringleader render mpijob --convert job-of-2019.yaml

With --image the job is made of the options, as run --on kubernetes makes it, and works under every
controller of v2beta1. Otherwise FILE is YAML or JSON of any number of objects; - is standard input. Every
fault in every file is listed, with file, line and field; the exit code is 2 then. What a server added (uid,
status and the like) is left out. Objects of other kinds pass unchanged.
"""


class MpiJobCommand(click.Command):
    """A command whose words arrive as a few values."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let options stand behind files too; behind a COMMAND they are its own."""
        ctx.allow_interspersed_args = not any(word.partition("=")[0] == "--image" for word in args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> int:
        """Print the jobs; return the exit code."""
        sys.stdout.write(of_options(ctx) if ctx.params["image"] is not None else of_files(ctx))
        return 0


command = MpiJobCommand(
    "mpijob",
    params=[
        click.Option(
            ["--convert"],
            is_flag=True,
            help="Read manifests of v1alpha1, v1alpha2 and v1 too; list changes.",
        ),
        JSON,
        NAMESPACE,
        *REQUEST_OPTIONS,
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="FILE…|COMMAND…"),
    ],
    help=HELP,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def of_options(ctx: click.Context) -> str:
    """Return the job that the options make, after the claims that it needs. Remarks go to standard error."""
    with needs_kubernetes():
        from ringleader.cli.kubernetes.job_request import job_of
        from ringleader.cli.kubernetes.run_job import tell
        from ringleader.mpijob.parser import request as as_requested
        from ringleader.mpijob.serializer import write
    faults = Faults()
    if ctx.params["convert"]:
        faults.add("--convert and --image", "a job made of options is of the newest version")
    request = asked(ctx.params, namespace=said_namespace(ctx.params, faults), faults=faults)
    job = job_of(request, faults)
    tell(request)
    return printed([*claim_templates(request), write(as_requested(job))], as_json=ctx.params["as_json"])


def of_files(ctx: click.Context) -> str:
    """Return the objects of the files. Changes of a conversion go to standard error."""
    misplaced = [
        Fault(where=spelt(one), what="is for a job made of options", hint="edit the file, or give --image")
        for one in given(ctx)
        if one.name != "command" and (one.name in JOB_NAMES or one.name == "namespace")
    ]
    if misplaced:
        raise RequestError(misplaced)
    rendered = read_files(ctx.params["command"], converting=ctx.params["convert"])
    remarks = _remarks(rendered)
    if ctx.params["convert"]:
        sys.stderr.write(changes_text(rendered))
    sys.stderr.writelines(f"ringleader: {one}\n" for one in remarks)
    return printed([one.value for one in rendered], as_json=ctx.params["as_json"])


def _remarks(rendered: Sequence[Rendered]) -> list[str]:
    """Return what the user should know of the NICs that jobs ask for, each remark once.

    Raises RequestError where they cannot have them.
    """
    from ringleader.mpijob.parser import read
    from ringleader.render.kubernetes import rdma_annotations

    jobs = [(one.where, read(one.value)) for one in rendered if one.name]
    faults = [
        replace(fault, where=f"{where} {fault.where}")
        for where, job in jobs
        for fault in rdma_annotations.faults_of(job)
    ]
    if faults:
        raise RequestError(faults)
    return list(dict.fromkeys(text for _, job in jobs for text in rdma_annotations.remarks_on(job)))

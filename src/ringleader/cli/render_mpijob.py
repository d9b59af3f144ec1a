"""``ringleader render mpijob``: MPIJobs made of options or read from files, printed and not sent."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.host_options import Faults
from ringleader.cli.kubernetes_options import given, spelt
from ringleader.cli.render_request import (
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
    from ringleader.mpijob.manifests import Rendered

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
        from ringleader.cli.kubernetes_request import job_of
        from ringleader.cli.kubernetes_run import tell
        from ringleader.mpijob.reading import request as as_requested
        from ringleader.mpijob.writing import write
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
    if ctx.params["convert"]:
        sys.stderr.write(_changes(rendered))
    return printed([one.value for one in rendered], as_json=ctx.params["as_json"])


def read_files(files: Sequence[str], *, converting: bool) -> tuple[Rendered, ...]:
    """Return the objects of files. Raises RequestError with every fault in all of them."""
    with needs_kubernetes():
        from ringleader.mpijob import manifests, yaml_text
    if not files:
        hint = "a file of MPIJobs, - for standard input, or --image IMAGE … -- COMMAND"
        raise RequestError(Fault(where="FILE", what="missing", hint=hint))
    documents: list[yaml_text.Document] = []
    faults: list[Fault] = []
    for file in files:
        try:
            documents += yaml_text.documents(text_of_file(file), "standard input" if file == "-" else file)
        except RequestError as error:
            faults += error.faults
    rendered: tuple[Rendered, ...] = ()
    try:
        if documents or not faults:
            rendered = manifests.render(documents, converting=converting)
    except RequestError as error:
        faults += error.faults
    if faults:
        raise RequestError(faults)
    return rendered


def text_of_file(file: str) -> str:
    """Return a file's text; RequestError where there is none."""
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise RequestError(Fault(where=file, what=f"cannot be read: {error.strerror or error}")) from None
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise RequestError(Fault(where=f"{file}:{line}", what="is not UTF-8")) from None


def _changes(rendered: Sequence[Rendered]) -> str:
    """Return the list of changes, job by job, what is lost last."""
    lines = []
    for one in rendered:
        if not one.name:
            continue
        if not one.changes:
            lines.append(f"{one.where} {one.name}: is v2beta1 already, nothing changed")
            continue
        lines.append(f"{one.where} {one.name}:")
        ordered = sorted(one.changes, key=lambda change: change.is_lost)
        lines += [f"  {change}" for change in ordered]
    return "".join(f"{line}\n" for line in lines)

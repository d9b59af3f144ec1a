"""``ringleader operator``: the controller of MPIJobs, and what a cluster needs for it."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.kubernetes.manifest_arguments import yaml_of
from ringleader.cli.operator import manifests, run
from ringleader.cli.typed_command import Command
from ringleader.option_fields import group


@click.group(name="operator")
def command() -> None:
    """The MPIJob operator and what a cluster needs for it."""


command.add_command(run.command)
command.add_command(manifests.command)


def crd(options: CrdOptions) -> None:
    """Print the definition."""
    from ringleader.mpijob.crd import crd as definition

    value = definition()
    show(options.json, value, lambda: yaml_of([value]))


@dataclass(frozen=True, kw_only=True)
class CrdOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)


command.add_command(
    Command(
        "crd",
        options=CrdOptions,
        run=crd,
        help="""Print the CustomResourceDefinition of MPIJob.

    ringleader operator crd | kubectl apply -f -""",
    )
)

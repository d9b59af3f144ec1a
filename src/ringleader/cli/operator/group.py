"""``ringleader operator``: the controller of MPIJobs, and what a cluster needs for it."""

from __future__ import annotations

import json
import sys

import click

from ringleader.cli.extras import needs_kubernetes
from ringleader.cli.operator import manifests, run


@click.group(name="operator", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """The MPIJob operator and what a cluster needs for it."""


command.add_command(run.command)
command.add_command(manifests.command)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def crd(as_json: bool) -> None:
    """Print the CustomResourceDefinition of MPIJob.

    ringleader operator crd | kubectl apply -f -
    """
    from ringleader.mpijob.crd import crd as definition

    if as_json:
        sys.stdout.write(json.dumps(definition(), indent=2, ensure_ascii=False) + "\n")
        return
    with needs_kubernetes():
        from ringleader.mpijob.yaml_text import text_of
    sys.stdout.write(text_of([definition()]))

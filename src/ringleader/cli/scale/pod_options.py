"""The options of ``ringleader scale --on kubernetes``: those of ``run`` that do not depend on the size."""

from __future__ import annotations

from dataclasses import fields

import click

from ringleader.cli.options.host_options import HOST_OPTIONS
from ringleader.cli.options.kubernetes_options import (
    KUBERNETES_OPTIONS,
    PLACES,
    ClusterOptions,
    PodOptions,
    is_for_hosts,
)
from ringleader.cli.options.rank_options import RUN_OPTIONS
from ringleader.cli.typed_command import Option, given, spelling
from ringleader.errors import Fault

_NAMES = {part.name for kind in (PodOptions, ClusterOptions) for part in fields(kind)} | {"operator_image"}

POD_OPTIONS: tuple[Option, ...] = tuple(option for option in KUBERNETES_OPTIONS if option.name in _NAMES)

ON = Option(
    ["--on"],
    metavar="local|ssh|lab|kubernetes|pods",
    help="Where to run; local, ssh and lab follow from the other options. pods: on Kubernetes, but without "
    "an operator.",
)
_OF_SCALE = {"output", "json", "json_file", "dry_run"}
"""Names that options of ``run`` have too."""
_OF_HOSTS = {
    option.name
    for option in (*HOST_OPTIONS, *RUN_OPTIONS)
    if is_for_hosts(option.name or "") and option.name not in _OF_SCALE
}


def misplaced_options(ctx: click.Context, on: str | None) -> list[Fault]:
    """Return what is wrong with options that mean nothing where the sizes shall run."""
    found = []
    for option in given(ctx):
        if on in PLACES and option.name in _OF_HOSTS and option.name != "bind":
            hint = "leave it out: the cluster places the ranks"
            found.append(Fault(where=spelling(option), what=f"means nothing with --on {on}", hint=hint))
        elif on not in PLACES and option.name in _NAMES:
            hint = "add --on kubernetes, or leave it out"
            found.append(Fault(where=spelling(option), what="is for jobs on Kubernetes", hint=hint))
    return found

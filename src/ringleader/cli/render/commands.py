"""``ringleader render``: texts for a cluster or a host, printed and not sent."""

from __future__ import annotations

from ringleader.cli.lazy_group import LazyGroup, Table

COMMANDS: Table = {
    "pods": ("ringleader.cli.render.pods", "A job as plain Pods, without an operator; or one Pod alone."),
    "mpijob": (
        "ringleader.cli.render.mpijob",
        "MPIJobs: made of options, or read from files.",
    ),
    "compose": (
        "ringleader.cli.render.compose",
        "An application of mpihead and mpinode containers.",
    ),
    "env": ("ringleader.cli.render.env", "Variables for transports that fit a host, with their reasons."),
    "topology": (
        "ringleader.cli.render.topology",
        "Distances of a host's GPUs and NICs: table, JSON, drawing.",
    ),
}


command = LazyGroup(
    "render",
    table=COMMANDS,
    help="Print what would be sent to a cluster, or what fits a host. Nothing is sent.",
)

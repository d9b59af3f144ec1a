"""``ringleader render env``: the variables for transports that fit a host, each with its reason."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from ringleader.cli.render.facts_option import facts_from_option, host_facts
from ringleader.cli.typed_command import Command
from ringleader.option_fields import option

HELP = """Print the variables for NCCL, UCX, libfabric, MPI and Gloo that fit a host, each with its reason.

\b
  eval "$(ringleader render env)"
  ringleader render env --facts-from node7.json --format docker-env > node7.env

A library that decides better by itself is left alone, and so is what you have set. ringleader run does the
same on every host of a job; this is for what others start.
"""


@dataclass(frozen=True, kw_only=True)
class EnvOptions:
    """The options, as they were written."""

    facts_from: str | None = facts_from_option()
    local_rank: int | None = option(
        "Also what fits this rank of the host alone: the NIC at its GPU.", metavar="N"
    )
    format: str = option(
        "Lines for eval, a file for --env-file, the env of a container, or all as JSON.",
        default="shell",
        metavar="shell|docker-env|kubernetes|json",
        choices=("shell", "docker-env", "kubernetes", "json"),
    )


def env(options: EnvOptions) -> None:
    """Print the settings."""
    from ringleader.fabric.settings.recommended_settings import recommend
    from ringleader.render.transport_settings import FORMATS

    # The facts of another host have that host's environment, and ours says nothing about it.
    user = os.environ if options.facts_from is None else {}
    with host_facts(options.facts_from) as facts:
        sys.stdout.write(
            FORMATS[options.format](
                facts.hostname, recommend(facts, local_rank=options.local_rank, user=user)
            )
        )


command = Command("env", options=EnvOptions, run=env, help=HELP)

"""``ringleader render env``: the variables for transports that fit a host, each with its reason."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from ringleader.cli.options.option_checks import Faults
from ringleader.cli.render.facts_option import FACTS_FROM, host_facts
from ringleader.cli.typed_command import Command, Option
from ringleader.errors import RequestError

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

    facts_from: str | None = None
    local_rank: str | None = None
    format: str = "shell"


ENV_OPTIONS = (
    FACTS_FROM,
    Option(
        ["--local-rank"],
        metavar="N",
        help="Also what fits this rank of the host alone: the NIC at its GPU.",
    ),
    Option(
        ["--format"],
        default="shell",
        show_default=True,
        metavar="shell|docker-env|kubernetes|json",
        help="Lines for eval, a file for --env-file, the env of a container, or all as JSON.",
    ),
)


def env(options: EnvOptions) -> None:
    """Print the settings."""
    from ringleader.fabric.settings.recommended_settings import recommend
    from ringleader.render.transport_settings import FORMATS

    faults = Faults()
    local_rank = faults.whole("--local-rank", options.local_rank)
    text = FORMATS.get(options.format)
    if text is None:
        faults.add("--format", f"{options.format!r} is unknown", f"use one of: {', '.join(FORMATS)}")
    if text is None or faults.found:
        raise RequestError(faults.found)
    # The facts of another host have that host's environment, and ours says nothing about it.
    user = os.environ if options.facts_from is None else {}
    with host_facts(options.facts_from) as facts:
        sys.stdout.write(text(facts.hostname, recommend(facts, local_rank=local_rank, user=user)))


command = Command("env", options=EnvOptions, run=env, params=list(ENV_OPTIONS), help=HELP)

"""Options that several commands of ``ringleader lab`` share."""

from __future__ import annotations

from dataclasses import dataclass

import click

from ringleader.cli.typed_command import Option
from ringleader.lab import saved_state

DRY_RUN = Option(["--dry-run"], is_flag=True, help="Print, as a shell script, what would be done.")
NAME = Option(
    ["--name", "--lab-name", "name"],
    envvar=saved_state.VARIABLE,
    metavar="NAME",
    help="Which lab. [default: RINGLEADER_LAB, else `lab`, else the only one there is]",
)
HOST = click.Argument(["host"])


@dataclass(frozen=True, kw_only=True)
class HostOptions:
    """A host of a lab."""

    host: str
    name: str | None = None

"""``ringleader config``: which defaults of options files and variables set, and from where."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import click

from ringleader.cli.option_defaults import Configuration, Setting
from ringleader.cli.output import JsonOptions, show, table
from ringleader.cli.typed_command import Command
from ringleader.errors import refuse
from ringleader.option_fields import group


@dataclass(frozen=True, kw_only=True)
class ConfigOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)


@Command.of("config", ConfigOptions)
def command(options: ConfigOptions) -> None:
    """Show the defaults that files and variables set, and which of them set each.

    \b
      RINGLEADER_OPT_RUN_NP=4            variable: command and option
      ringleader.toml                    the project's file: in the working directory or above it
      ~/.config/ringleader/config.toml   your file (XDG_CONFIG_HOME)

    The command line overrides variables, variables override the project's file, and that overrides yours.
    All names and values are checked. In a file, each command has a table; its keys are options:

    \b
      [run]
      hostfile = "hosts.txt"
      x = ["NCCL_DEBUG=WARN"]
      [image.build]
      builder = "podman"
    """
    ctx = click.get_current_context()
    configuration = ctx.find_object(Configuration)
    if configuration is None:
        return
    found = [configuration.settings(one, one.command) for one in _leaves(ctx.find_root())]
    faults = dict.fromkeys(fault for one in found for fault in one.faults)
    refuse(faults)
    rows = [setting for one in found for setting in one.in_force()]
    values = [
        {
            "command": " ".join(one.command),
            "option": one.option.replace("_", "-"),
            "value": list(one.value) if isinstance(one.value, tuple) else one.value,
            "from": one.origin,
        }
        for one in rows
    ]
    show(options.json, values, lambda: _table(rows))
    if not rows and not options.json.json:
        print("ringleader: no file and no variable sets a default", file=sys.stderr)


def _leaves(ctx: click.Context) -> Iterator[click.Context]:
    """Yield a context for each command that is not a group."""
    group = ctx.command
    if not isinstance(group, click.Group):
        yield ctx
        return
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None:
            yield from _leaves(click.Context(command, info_name=name, parent=ctx))


def _table(rows: Sequence[Setting]) -> str:
    if not rows:
        return ""
    cells = [
        (
            " ".join(one.command),
            one.option.replace("_", "-"),
            shlex.join(one.value) if isinstance(one.value, tuple) else str(one.value),
            one.origin,
        )
        for one in rows
    ]
    return table(cells, ("command", "option", "value", "from")) + "\n"

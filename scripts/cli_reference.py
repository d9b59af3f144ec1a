"""Write docs/reference/cli.md from the commands themselves (``python scripts/cli_reference.py > …``)."""

from __future__ import annotations

import sys

import click

from ringleader.cli.command_groups import Context
from ringleader.cli.main import ringleader
from ringleader.cli.typed_command import full_help

WIDTH = 100
"""Columns of a help."""


def sections(command: click.Command, words: tuple[str, ...]) -> list[str]:
    """Return the page's sections for a command and, after it, for each of its sub-commands."""
    context = _context(command, words[-1], _parents(words[:-1]))
    found = [f"## {' '.join(words)}\n\n```\n{full_help(context)}\n```\n"]
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                found += sections(child, (*words, name))
    return found


def _parents(words: tuple[str, ...]) -> click.Context | None:
    context = None
    for word in words:
        context = _context(click.Group(word), word, context)
    return context


def _context(command: click.Command, name: str, parent: click.Context | None) -> click.Context:
    names = ringleader.context_settings["help_option_names"]
    return Context(command, parent, name, terminal_width=WIDTH, help_option_names=names)


def page() -> str:
    """Return the whole page."""
    head = "# Command line\n\nWritten from the commands' own help by `scripts/cli_reference.py`.\n"
    return "\n".join([head, *sections(ringleader, ("ringleader",))])


if __name__ == "__main__":
    sys.stdout.write(page())

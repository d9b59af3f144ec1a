"""Write docs/reference/cli.md from the commands themselves (``python scripts/cli_reference.py > …``)."""

from __future__ import annotations

import sys

import click

from ringleader.cli.main import ringleader
from ringleader.cli.typed_command import full_help


def sections(command: click.Command, words: tuple[str, ...]) -> list[str]:
    """Return the page's sections for a command and, after it, for each of its sub-commands."""
    context = click.Context(command, info_name=words[-1], parent=_parents(words[:-1]), max_content_width=110)
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
        context = click.Context(click.Group(word), info_name=word, parent=context)
    return context


def page() -> str:
    """Return the whole page."""
    head = "# Command line\n\nWritten from the commands' own help by `scripts/cli_reference.py`.\n"
    return "\n".join([head, *sections(ringleader, ("ringleader",))])


if __name__ == "__main__":
    sys.stdout.write(page())

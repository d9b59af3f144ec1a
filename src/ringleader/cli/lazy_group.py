"""A group of commands, each of which is imported only when it is called: ``--help`` is fast."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from ringleader.cli import interrupts

Table = Mapping[str, tuple[str, str]]
"""Sub-command → (module that holds a click command named ``command``, or ``module:name``; a line of help)."""


class LazyGroup(click.Group):
    """A group that lists its commands without importing them, so that ``--help`` is fast."""

    def __init__(
        self, name: str, *, table: Table, sections: Mapping[str, str] | None = None, **attributes: Any
    ) -> None:
        """``table``: the commands in order; ``sections``: first command of each section → its heading."""
        super().__init__(name, **attributes)
        self._table = table
        self._sections = sections or {}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the table: the order in which a user meets them."""
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one command that was asked for."""
        if cmd_name not in self._table:
            return None
        with interrupts.held():
            module, _, name = self._table[cmd_name][0].partition(":")
            command = getattr(import_module(module), name or "command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands, section by section."""
        heading, width = "Commands", max(map(len, self._table))
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, (_, line) in self._table.items():
            heading = self._sections.get(name, heading)
            line = line.removeprefix(f"{heading}: ")
            sections.setdefault(heading, []).append((name.ljust(width), line[:1].upper() + line[1:]))
        for heading, lines in sections.items():
            with formatter.section(heading):
                formatter.write_dl(lines)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command, without importing any."""
        names = [
            CompletionItem(name, help=help_)
            for name, (_, help_) in self._table.items()
            if name.startswith(incomplete)
        ]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

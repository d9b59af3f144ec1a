"""``ringleader completion``: what a shell needs to complete our commands, options and their values."""

from __future__ import annotations

from typing import Any

import click
from click.shell_completion import get_completion_class

SHELLS = {
    "bash": 'eval "$(ringleader completion bash)"       # in ~/.bashrc',
    "zsh": 'eval "$(ringleader completion zsh)"        # in ~/.zshrc',
    "fish": "ringleader completion fish | source        # in ~/.config/fish/config.fish",
}
"""Shell → the line that switches completion on, and where it belongs."""


@click.command(
    "completion",
    help="Print a shell completion script.\n\n\b\n  " + "\n  ".join(SHELLS.values()),
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.argument("shell", type=click.Choice(tuple(SHELLS)), metavar="bash|zsh|fish")
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the text of click's completion for a shell."""
    kind: Any = get_completion_class(shell)
    root = ctx.find_root()
    print(kind(root.command, {}, "ringleader", "_RINGLEADER_COMPLETE").source())

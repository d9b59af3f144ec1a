"""``ringleader image lock``: a recipe's Python packages with versions and hashes."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import click

from ringleader.cli.image.recipe_options import opened, recipe_options, refuse_what_clashes
from ringleader.cli.number_types import FiniteRange
from ringleader.errors import RequestError


@click.command(name="lock", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("recipe", metavar="PROFILE|FILE")
@click.option("--output", "-o", metavar="FILE", help="Write to a file. [default: standard output]")
@click.option("--platform", default="", metavar="OS/ARCH", help="[default: linux/amd64]")
@click.option(
    "--timeout",
    type=FiniteRange(min=0, min_open=True),
    default=600,
    show_default=True,
    metavar="SECONDS",
    help="What pip may take.",
)
@click.option("--no-check", is_flag=True, help="Do not check first whether everything fits together.")
@click.option("--dry-run", is_flag=True, help="Print pip's command and ask nothing.")
@recipe_options
def command(
    recipe: str,
    output: str | None,
    platform: str,
    timeout: float,
    no_check: bool,
    dry_run: bool,
    settings: tuple[str, ...],
    mirrors: tuple[str, ...],
    base: str,
) -> None:
    """Write down every Python package that a recipe comes to, with version and hash.

    \b
      ringleader image lock my.toml --output requirements.lock
      ringleader image build my.toml --set packages.lock=requirements.lock

    pip is asked for the recipe's Python and base, over the network; wheels whose index does not tell their
    dependencies apart are fetched for it. Nothing is installed. Without --mirror it asks what it is
    configured to ask; no such address reaches the file.
    """
    from ringleader.cli.image.build import unwritable, write_text
    from ringleader.images import lock_file, pip_resolver

    faults = unwritable("--output", output)
    if faults:
        raise RequestError(faults)
    read = opened(recipe, settings, mirrors, base)
    if not no_check:
        refuse_what_clashes(read)
    asked = lock_file.question(read, platform=platform)
    directory = Path(read.where).parent if read.where else Path()
    if dry_run:
        print(
            shlex.join(lock_file.argv(asked, python=sys.executable, target="EMPTY", directory=str(directory)))
        )
        return
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if asked.python != ours:
        what = f"the image has Python {asked.python}, we run in {ours}"
        do = "pip takes conditions on Python's version in packages' metadata for ours"
        print(f"ringleader: {what}: {do}", file=sys.stderr)
    report = pip_resolver.ask(asked, environ=os.environ, directory=directory, seconds=timeout)
    write_text(output or "-", lock_file.text(asked, report))

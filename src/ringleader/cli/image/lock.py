"""``ringleader image lock``: a recipe's Python packages with versions and hashes."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

from ringleader.cli.image.recipe_options import (
    NO_CHECK,
    RecipeOptions,
    opened,
    recipe_argument,
    refuse_what_clashes,
)
from ringleader.cli.options.option_checks import unwritable, write_text
from ringleader.cli.typed_command import Command
from ringleader.errors import RequestError
from ringleader.images import lock_file, pip_resolver
from ringleader.option_fields import SECONDS, flag, group, option

HELP = """Write down every Python package that a recipe comes to, with version and hash.

\b
  ringleader image lock my.toml --output requirements.lock
  ringleader image build my.toml --set packages.lock=requirements.lock

pip is asked for the recipe's Python and base, over the network; wheels whose index does not tell their
dependencies apart are fetched for it. Nothing is installed. Without --mirror it asks what it is
configured to ask; no such address reaches the file.
"""


@dataclass(frozen=True, kw_only=True)
class LockOptions:
    """The options, as they were written."""

    recipe: str = recipe_argument()
    output: str | None = option(
        "Write to a file. [default: standard output]", "-o", "--output", metavar="FILE"
    )
    platform: str = option("[default: linux/amd64]", default="", metavar="OS/ARCH")
    timeout: float = option("What pip may take.", default=600, **SECONDS)
    no_check: bool = flag(NO_CHECK)
    dry_run: bool = flag("Print pip's command and ask nothing.")
    changes: RecipeOptions = group(RecipeOptions)


def write_lock(options: LockOptions) -> None:
    """Ask pip, and write down what it says."""
    faults = unwritable("--output", options.output)
    if faults:
        raise RequestError(faults)
    recipe = opened(options.recipe, options.changes)
    if not options.no_check:
        refuse_what_clashes(recipe)
    question = lock_file.question(recipe, platform=options.platform)
    directory = Path(recipe.where).parent if recipe.where else Path()
    if options.dry_run:
        argv = lock_file.argv(question, python=sys.executable, target="EMPTY", directory=str(directory))
        print(shlex.join(argv))
        return
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if question.python != ours:
        what = f"the image has Python {question.python}, we run in {ours}"
        do = "pip takes conditions on Python's version in packages' metadata for ours"
        print(f"ringleader: {what}: {do}", file=sys.stderr)
    report = pip_resolver.ask(question, environ=os.environ, directory=directory, seconds=options.timeout)
    write_text(options.output or "-", lock_file.text(question, report))


command = Command(
    "lock",
    options=LockOptions,
    run=write_lock,
    help=HELP,
)

"""``ringleader image solve``: versions that fit together, from some constraints."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.images.check import clashes
from ringleader.images.solve.constraints import parse
from ringleader.images.solve.search import solve
from ringleader.images.solve.solution_text import parts, recipe_text
from ringleader.images.tables import load
from ringleader.option_fields import argument, flag, group

if TYPE_CHECKING:
    from ringleader.images.check import Finding
    from ringleader.images.solve.solution_text import Part


HELP = """Propose one full set of versions that fits: the newest, always the same for the same constraints.

\b
torch=2.8       PyTorch; 2.8 is the newest 2.8.x, "newest" the newest of all
tensorflow=2.21 TensorFlow; with torch= too: both in one image
gpu=h100        GPUs that it must run on, with commas between
driver=550.54   the hosts' NVIDIA driver
cuda=12.8       CUDA of the wheels; "none": for CPUs
nccl=2.27       NCCL of the wheels
python=3.12  base=debian:12  mpi=openmpi-5.0  rdma=rdma-core
network=roce    what joins the hosts: infiniband, roce, efa, erdma or tcp

Nothing is fetched. Where no set fits: which constraints clash, by which rows of the version tables, and what
fits without one of them; exit code 2.
"""


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """The options, as they were written."""

    constraints: tuple[str, ...] = argument("CONSTRAINT…", default=())
    recipe: bool = flag("Print a recipe: TOML for the other commands.")
    json: JsonOptions = group(JsonOptions)


def propose(options: SolveOptions) -> None:
    """Print the versions."""
    if not options.constraints:
        hint = "ringleader image solve torch=2.8 gpu=h100"
        raise RequestError(Fault(where="CONSTRAINT", what="nothing was requested", hint=hint))
    if options.recipe and options.json.json:
        raise RequestError(Fault(where="--json", what="cannot be combined with --recipe"))
    tables = load()
    found = solve(parse(options.constraints, tables), tables)
    chosen = parts(found, tables)
    warnings = [one for one in clashes(found, tables) if one.level == "warning"]
    text = recipe_text(found, shlex.join(options.constraints)) if options.recipe else f"{_table(chosen)}\n"
    show(options.json, _values(chosen, warnings), lambda: text)
    for one in () if options.json.json else warnings:
        hint = f"\n    → {one.hint}" if one.hint else ""
        print(f"image: warning: {one.what}{hint}", file=sys.stderr)


command = Command(
    "solve",
    options=SolveOptions,
    run=propose,
    help=HELP,
)


def _table(found: tuple[Part, ...]) -> str:
    from tabulate import tabulate

    rows = [(one.name, one.version, one.source or "unverified") for one in found]
    head = ("part", "version", "source")
    return str(tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True))


def _values(found: tuple[Part, ...], warnings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "parts": [{**asdict(one), "source": one.source or "unverified"} for one in found],
        "warnings": [{"rule": one.where, "what": one.what, "works": one.hint} for one in warnings],
    }

"""``ringleader image solve``: versions that fit together, from some wishes."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from ringleader.errors import Fault, RequestError

if TYPE_CHECKING:
    from ringleader.images.check import Finding
    from ringleader.images.solve.solution_text import Part


@click.command(name="solve", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("wishes", nargs=-1, metavar="WISH…")
@click.option("--recipe", "as_recipe", is_flag=True, help="Print a recipe: TOML for the other commands.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: every part with its version and source.")
def command(wishes: tuple[str, ...], as_recipe: bool, as_json: bool) -> None:
    """Propose one full set of versions that fits: the newest, always the same for the same wishes.

    \b
    torch=2.8       PyTorch; 2.8 is the newest 2.8.x, "newest" the newest of all
    tensorflow=2.21 TensorFlow; with torch= too: both in one image
    gpu=h100        GPUs that it must run on, with commas between
    driver=550.54   the hosts' NVIDIA driver
    cuda=12.8       CUDA of the wheels; "none": for CPUs
    nccl=2.27       NCCL of the wheels
    python=3.12  base=debian:12  mpi=openmpi-5.0  rdma=rdma-core
    network=roce    what joins the hosts: infiniband, roce, efa, erdma or tcp

    Nothing is fetched. Where no set fits: which wishes clash, by which rows of the version tables, and what
    fits without one of them; exit code 2.
    """
    from ringleader.images.check import clashes
    from ringleader.images.solve.constraints import parsed
    from ringleader.images.solve.search import solve
    from ringleader.images.solve.solution_text import parts, recipe_text
    from ringleader.images.tables import load

    if not wishes:
        hint = "ringleader image solve torch=2.8 gpu=h100"
        raise RequestError(Fault(where="WISH", what="nothing was wished for", hint=hint))
    if as_recipe and as_json:
        raise RequestError(Fault(where="--json", what="cannot be combined with --recipe"))
    tables = load()
    found = solve(parsed(wishes, tables), tables)
    told = [one for one in clashes(found, tables) if one.level == "warning"]
    if as_recipe:
        sys.stdout.write(recipe_text(found, shlex.join(wishes)))
    else:
        print(_json(parts(found, tables), told) if as_json else _table(parts(found, tables)))
    if not as_json:
        for one in told:
            hint = f"\n    → {one.works}" if one.works else ""
            print(f"image: warning: {one.what}{hint}", file=sys.stderr)


def _table(found: tuple[Part, ...]) -> str:
    from tabulate import tabulate

    rows = [(one.name, one.version, one.source or "unverified") for one in found]
    head = ("part", "version", "source")
    return str(tabulate(rows, headers=head, tablefmt="simple", disable_numparse=True))


def _json(found: tuple[Part, ...], told: list[Finding]) -> str:
    value = {
        "parts": [{**asdict(one), "source": one.source or "unverified"} for one in found],
        "warnings": [{"rule": one.rule, "what": one.what, "works": one.works} for one in told],
    }
    return json.dumps(value, indent=2, ensure_ascii=False)

"""``ringleader image list``, ``check`` and ``solve``: what the version tables say of recipes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ringleader.cli.image.recipe_options import (
    FROZEN,
    UNCHANGED,
    RecipeOptions,
    complete_recipe,
    opened,
    opened_historical,
    profiles,
)
from ringleader.cli.output import JsonOptions, show, table
from ringleader.cli.terminal_progress import shown_while
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError, collected, refuse
from ringleader.images import bundled_recipes
from ringleader.images.check import check, clashes, selection_of
from ringleader.images.check.selection import VersionLookup
from ringleader.images.solve import parse, parts, recipe_text, solve
from ringleader.images.tables import load
from ringleader.option_fields import argument, flag, group, many, option

if TYPE_CHECKING:
    from ringleader.images.check import Finding
    from ringleader.images.solve import Part


FRAMEWORKS = {"torch": "PyTorch", "tensorflow": "TensorFlow", "mxnet": "MXNet", "horovod": "Horovod"}


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """The options, as they were written."""

    json: JsonOptions = group(JsonOptions)


@Command.of("list", ListOptions)
def list_command(options: ListOptions) -> None:
    """List built-in recipes (profiles), with historical ones."""
    found = [_profile(name) for name in profiles()]
    rows = [
        (one["name"], one["base"], ", ".join(one["frameworks"]), one["cuda"] or "-", one["about"])
        for one in found
    ]
    head = ("PROFILE", "BASE", "FRAMEWORKS", "CUDA", "ABOUT")
    show(options.json, found, lambda: table(rows, head, form="plain") + "\n")


def _profile(name: str) -> dict[str, Any]:
    historical = opened_historical(name, UNCHANGED)
    if historical is not None:
        about, base, cuda = historical.about, historical.base, historical.cuda
        frameworks = list(historical.frameworks)
    else:
        recipe = opened(name)
        about, base, blocks = recipe.about, recipe.base, recipe.blocks
        frameworks = [f"{title} {blocks[one].version}" for one, title in FRAMEWORKS.items() if one in blocks]
        selection = selection_of(recipe)
        # The base's, else the one that its wheels bring.
        brought = [one.cuda for one in VersionLookup(selection, load()).needs]
        cuda = ".".join((selection.cuda or next(iter(brought), "")).split(".")[:2])
    return {
        "name": name,
        "about": about,
        "base": base,
        "frameworks": frameworks,
        "cuda": cuda,
        "historical": historical is not None,
    }


HEADINGS = {
    "fault": "cannot work",
    "gone": "cannot be built today",
    "warning": "warning",
    "exemption": "exempt from hardening",
    "note": "note",
}


@dataclass(frozen=True, kw_only=True)
class Checked:
    """A recipe and what was found."""

    name: str
    findings: tuple[Finding, ...]

    def count(self, level: str) -> int:
        """Return how many findings there are of one level."""
        return sum(one.level == level for one in self.findings)

    @property
    def result(self) -> str:
        """One word or two for the table."""
        if self.count("fault"):
            return "cannot work"
        if self.count("gone"):
            return "cannot be built today"
        return "fits"


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options, as they were written."""

    recipes: tuple[str, ...] = argument("[PROFILE|FILE]…", default=(), shell_complete=complete_recipe)
    recipe: RecipeOptions = group(RecipeOptions)
    gpu: tuple[str, ...] = many("GPU that the image must run on: h100. Can be repeated.", metavar="NAME")
    driver: str = option("NVIDIA driver of the hosts: 535.129.", default="", metavar="VERSION")
    network: str = option(
        "Network between hosts: infiniband, roce, efa, erdma or tcp.",
        default="",
        choices=["", "infiniband", "roce", "efa", "erdma", "tcp"],
        metavar="NAME",
    )
    strict: bool = flag("Also fail (exit code 2) for historical images that cannot be built today.")
    json: JsonOptions = group(JsonOptions)


@Command.of("check", CheckOptions)
def check_command(options: CheckOptions) -> int:
    """Check whether the parts of recipes fit together, and propose the nearest set that does.

    Without a name, all profiles are checked. Each finding cites the compatibility data it is based on, with
    sources. Findings based on data that hasn't been verified are reported as warnings. Nothing is downloaded.

    Some built-in profiles reproduce historical images (see docs/reference/historical-images.md) and are kept
    unchanged. Those whose parts are no longer available, or were never compatible, are listed as "cannot be
    built today"; pass the name of one to see why. They fail the check (exit code 2) only with --strict;
    faults in other recipes always do.
    """
    found = _checked(options)
    show(
        options.json,
        [_check_value(one) for one in found],
        lambda: f"{_check_text(found, notes=options.strict or len(found) == 1)}\n",
    )
    bad = [one.name for one in found if one.count("fault") or (options.strict and one.count("gone"))]
    return 2 if bad else 0


def _checked(options: CheckOptions) -> list[Checked]:
    """Return every recipe with its findings; RequestError with the faults of all that cannot be read."""
    faults: list[Fault] = []
    found: list[Checked] = []
    hosts = bool(options.gpu or options.driver or options.network)
    every = bundled_recipes.names() if hosts or options.recipe != UNCHANGED else profiles()
    for name in options.recipes or every:
        with collected(faults):
            if (historical := opened_historical(name, options.recipe)) is not None:
                if hosts:
                    what = f"{FROZEN}: --gpu, --driver and --network are not compared with it"
                    raise RequestError(what, where=name, hint="leave them out")
                found.append(Checked(name=name, findings=historical.findings))
                continue
            recipe = opened(name, options.recipe)
            recipe = replace(
                recipe,
                gpus=options.gpu or recipe.gpus,
                driver=options.driver or recipe.driver,
                network=options.network or recipe.network,
            )
            found.append(Checked(name=recipe.name, findings=check(selection_of(recipe), load())))
    refuse(faults)
    return found


def _check_text(found: list[Checked], *, notes: bool) -> str:
    """Return the table, and below it the findings of each recipe; ``notes``: also what is not to be fixed."""
    rows = [(one.name, one.result, one.count("warning") or "", one.count("exemption") or "") for one in found]
    lines = [table(rows, ("recipe", "result", "warnings", "exemptions"), align="llr")]
    for one in found:
        told = [finding for finding in one.findings if notes or finding.level in ("fault", "warning")]
        if told:
            lines += ["", f"{one.name}:", *(line for finding in told for line in _lines(finding))]
    return "\n".join(lines)


def _lines(finding: Finding) -> Iterable[str]:
    yield f"  {HEADINGS[finding.level]}: {finding.what}"
    yield from (f"      {row}" for row in finding.rows)
    if finding.hint:
        yield f"    → {finding.hint}"


def _check_value(one: Checked) -> dict[str, Any]:
    findings = [
        {
            "level": finding.level.value,
            "rule": finding.where,
            "what": finding.what,
            "works": finding.hint,
            "rows": [{**asdict(row), "source": row.shown_source} for row in finding.rows],
        }
        for finding in one.findings
    ]
    return {"recipe": one.name, "result": one.result, "findings": findings}


@dataclass(frozen=True, kw_only=True)
class SolveOptions:
    """The options, as they were written."""

    constraints: tuple[str, ...] = argument("CONSTRAINT…", default=())
    recipe: bool = flag("Print a recipe (TOML) for the other commands.")
    json: JsonOptions = group(JsonOptions)


@Command.of("solve", SolveOptions)
def solve_command(options: SolveOptions) -> None:
    """Propose a complete set of compatible versions, preferring the newest.

    The same constraints always give the same result.

    \b
    torch=2.8       PyTorch; 2.8 is the newest 2.8.x, "newest" the newest of all
    tensorflow=2.21 TensorFlow; may be combined with torch=
    gpu=h100        GPUs to run on, separated by commas
    driver=550.54   NVIDIA driver of the hosts
    cuda=12.8       CUDA version of the wheels; "none": CPU wheels
    nccl=2.27       NCCL version of the wheels
    python=3.12  base=debian:12  mpi=openmpi-5.0  rdma=rdma-core
    network=roce    network between hosts: infiniband, roce, efa, erdma or tcp

    Nothing is downloaded. If no set fits, the conflicting constraints are listed, with the data behind each
    and what would work if you dropped one. The exit code is then 2.
    """
    if not options.constraints:
        hint = "ringleader image solve torch=2.8 gpu=h100"
        raise RequestError("nothing was requested", where="CONSTRAINT", hint=hint)
    if options.recipe and options.json.json:
        raise RequestError("cannot be combined with --recipe", where="--json")
    tables = load()
    with shown_while("looking for versions that fit together"):
        found = solve(parse(options.constraints, tables), tables)
    chosen = tuple(parts(found, tables))
    warnings = [one for one in clashes(found, tables) if one.level == "warning"]
    rows = [(one.name, one.version, one.source or "unverified") for one in chosen]
    text = f"{table(rows, ('part', 'version', 'source'))}\n"
    if options.recipe:
        text = recipe_text(found, shlex.join(options.constraints))
    show(options.json, _solution(chosen, warnings), lambda: text)
    for one in () if options.json.json else warnings:
        hint = f"\n    → {one.hint}" if one.hint else ""
        print(f"image: warning: {one.what}{hint}", file=sys.stderr)


def _solution(found: tuple[Part, ...], warnings: Sequence[Finding]) -> dict[str, Any]:
    return {
        "parts": [{**one._asdict(), "source": one.source or "unverified"} for one in found],
        "warnings": [{"rule": one.where, "what": one.what, "works": one.hint} for one in warnings],
    }

"""``ringleader image check``: what of a recipe does not fit together, and what would."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from ringleader.cli.image.recipe_options import (
    RecipeOptions,
    complete_recipe,
    opened,
)
from ringleader.cli.json_output import JsonOptions, show
from ringleader.cli.typed_command import Command
from ringleader.errors import Fault, RequestError
from ringleader.images import bundled_recipes
from ringleader.images.check import check, selection_of
from ringleader.images.tables import load
from ringleader.option_fields import argument, flag, group, many, option

if TYPE_CHECKING:
    from ringleader.images.check import Finding

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


HELP = """Say what of recipes does not fit together, and the nearest set that does.

Without a name all profiles are checked. Each finding names the rows of the version tables that it rests
on, with their sources; a row that nobody looked up reads "unverified", and what rests on it is a warning.
Nothing is fetched.

Historical profiles are as images were made then. What of them can no longer be fetched, or never fitted,
is told as "cannot be built today" and does not fail, unless with --strict; so is each point in which they
are exempt from the hardening of today's images. A fault of any other recipe: exit code 2.
"""


@dataclass(frozen=True, kw_only=True)
class CheckOptions:
    """The options, as they were written."""

    recipes: tuple[str, ...] = argument("[PROFILE|FILE]…", default=(), shell_complete=complete_recipe)
    recipe: RecipeOptions = group(RecipeOptions)
    gpu: tuple[str, ...] = many("A GPU it must run on: h100. Again for more.", metavar="NAME")
    driver: str = option("The hosts' NVIDIA driver: 535.129.", default="", metavar="VERSION")
    network: str = option(
        "What joins the hosts: infiniband, roce, efa, erdma or tcp.",
        default="",
        choices=["", "infiniband", "roce", "efa", "erdma", "tcp"],
        metavar="NAME",
    )
    strict: bool = flag("Exit code 2 also for historical images that cannot be built today.")
    json: JsonOptions = group(JsonOptions)


def check_recipes(options: CheckOptions) -> int:
    """Check them; return the exit code."""
    found = _checked(options)
    show(options.json, [_value(one) for one in found], lambda: f"{_text(found, notes=len(found) == 1)}\n")
    bad = [one.name for one in found if one.count("fault") or (options.strict and one.count("gone"))]
    return 2 if bad else 0


command = Command(
    "check",
    options=CheckOptions,
    run=check_recipes,
    help=HELP,
)


def _checked(options: CheckOptions) -> list[Checked]:
    """Return every recipe with its findings; RequestError with the faults of all that cannot be read."""
    faults: list[Fault] = []
    found: list[Checked] = []
    for name in options.recipes or bundled_recipes.names():
        try:
            recipe = opened(name, options.recipe)
        except RequestError as error:
            faults += error.faults
            continue
        recipe = replace(
            recipe,
            gpus=options.gpu or recipe.gpus,
            driver=options.driver or recipe.driver,
            network=options.network or recipe.network,
        )
        found.append(Checked(name=recipe.name, findings=check(selection_of(recipe), load())))
    if faults:
        raise RequestError(faults)
    return found


def _text(found: list[Checked], *, notes: bool) -> str:
    """Return the table, and below it the findings of each recipe; notes only where one was asked for."""
    from tabulate import tabulate

    table = [
        (one.name, one.result, one.count("warning") or "", one.count("exemption") or "") for one in found
    ]
    lines = [tabulate(table, headers=("recipe", "result", "warnings", "exemptions"), tablefmt="simple")]
    for one in found:
        told = [finding for finding in one.findings if notes or finding.level != "note"]
        if told:
            lines += ["", f"{one.name}:", *(line for finding in told for line in _lines(finding))]
    return "\n".join(lines)


def _lines(finding: Finding) -> Iterable[str]:
    yield f"  {HEADINGS[finding.level]}: {finding.what}"
    yield from (f"      {row}" for row in finding.rows)
    if finding.hint:
        yield f"    → {finding.hint}"


def _value(one: Checked) -> dict[str, Any]:
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

"""What fits what: a recipe's choices against the version tables, and what would fit instead. Pure."""

from __future__ import annotations

from dataclasses import replace

from ringleader.finding import Finding, Level
from ringleader.images.base_image import find_cuda_image
from ringleader.images.blocks import unverified
from ringleader.images.check.base_and_python import BASE_IMAGE, BUILD_BASE
from ringleader.images.check.frameworks import FRAMEWORKS, gpus, horovod
from ringleader.images.check.hardening import hardening, secrets
from ringleader.images.check.known_versions import KNOWN_VERSIONS
from ringleader.images.check.network import NETWORK
from ringleader.images.check.suggestions import BAD, nearest
from ringleader.images.check.version_lookup import VersionLookup
from ringleader.images.mirrors import places_of
from ringleader.images.recipe import Recipe
from ringleader.images.selection import Selection
from ringleader.images.tables import Tables

__all__ = ["BAD", "NOTHING_NEAR", "Finding", "Level", "Selection", "check", "clashes", "selection_of"]

RULES = (
    *(*KNOWN_VERSIONS, *FRAMEWORKS, horovod, gpus, *NETWORK),
    *(*BASE_IMAGE, *BUILD_BASE, secrets, hardening),
)
ORDER = tuple(Level)
NOTHING_NEAR = (
    "nothing near fits all of this: an image for each part of it, or `image solve` with fewer constraints"
)


def selection_of(recipe: Recipe) -> Selection:
    """Return what a recipe and its blocks choose."""
    cuda_image = find_cuda_image(recipe.base)
    selection = Selection(
        base=recipe.base,
        base_like=recipe.base_like,
        build_base=recipe.build_base,
        gpus=recipe.gpus,
        driver=recipe.driver,
        network=recipe.network,
        historical=recipe.historical,
        cuda=cuda_image.version if cuda_image else "",
        is_root=recipe.historical,
        unverified=() if recipe.historical else unverified(recipe.blocks),
        apt_mirror=places_of(recipe.mirrors).apt,
    )
    for block in recipe.blocks.values():
        selection = block.choose(selection)
    return selection


def check(selection: Selection, tables: Tables) -> tuple[Finding, ...]:
    """Return everything that does not fit, worst first; each fault with the nearest set that works."""
    lookup = VersionLookup(selection, tables)
    found = _found(lookup)
    cures: dict[str, str] = {}
    for one in found:
        if one.level in BAD and not one.hint and one.where not in cures:
            cures[one.where] = nearest(lookup, one, clashes) or NOTHING_NEAR
    told = [
        replace(one, hint=cures[one.where]) if one.level in BAD and not one.hint else one for one in found
    ]
    return tuple(sorted(told, key=lambda one: ORDER.index(one.level)))


def clashes(selection: Selection, tables: Tables) -> list[Finding]:
    """Return what does not fit, without looking for what would: the quick part of ``check``."""
    return _found(VersionLookup(selection, tables))


def _found(lookup: VersionLookup) -> list[Finding]:
    found = [finding for rule in RULES for finding in rule(lookup)]
    return list({(one.where, one.what): one for one in found}.values())

"""What fits what: a recipe's choices against the version tables, and what would fit instead. Pure.

The rules are in the modules beside this one. The nearest set that works is as few changes to a selection as
make a finding disappear. ``images.solve`` proposes whole sets by the same rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from itertools import combinations

from ringleader.finding import Finding, Level
from ringleader.images.check.network import NETWORK
from ringleader.images.check.selection import Selection, VersionLookup, selection_of
from ringleader.images.check.system import SYSTEM
from ringleader.images.check.versions import VERSIONS
from ringleader.images.tables import Tables
from ringleader.images.tables.version_order import key, series

__all__ = ["BAD", "NOTHING_NEAR", "Finding", "Level", "Selection", "check", "clashes", "selection_of"]

RULES = (*VERSIONS, *NETWORK, *SYSTEM)
ORDER = tuple(Level)
BAD = (Level.FAULT,)
NOTHING_NEAR = (
    "nothing near fits all of this: an image for each part of it, or `image solve` with fewer constraints"
)
Change = Mapping[str, str]
NAMES = {
    "torch": "PyTorch",
    "torch_variant": "variant",
    "torchvision": "torchvision",
    "tensorflow": "TensorFlow",
    "base": "base",
    "python": "Python",
    "python_source": "Python from",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "rdma": "user space",
}
MOST = 80
"""Single changes, and pairs of them, that are tried at most, the cheapest first: a try takes 0.3 ms."""
VARIANT, PYTHON, BASE, CUDA = 1, 2, 3, 4
"""How far a change leads from what was asked for; a step to the next series of a framework is 1."""


def check(selection: Selection, tables: Tables) -> tuple[Finding, ...]:
    """Return everything that does not fit, worst first; each fault with the nearest set that works."""
    found = clashes(selection, tables)
    cures: dict[str, str] = {}
    for one in found:
        if one.level in BAD and not one.hint and one.where not in cures:
            cures[one.where] = _nearest(selection, tables, one, found) or NOTHING_NEAR
    cured = (
        replace(one, hint=cures[one.where]) if one.level in BAD and not one.hint else one for one in found
    )
    return tuple(sorted(cured, key=lambda one: ORDER.index(one.level)))


def clashes(selection: Selection, tables: Tables) -> list[Finding]:
    """Return what does not fit, without looking for what would: the quick part of ``check``."""
    lookup = VersionLookup(selection, tables)
    found = [finding for rule in RULES for finding in rule(lookup)]
    return list({(one.where, one.what): one for one in found}.values())


def _nearest(selection: Selection, tables: Tables, finding: Finding, found: list[Finding]) -> str:
    """Return what to change so that a finding disappears and no other appears; empty where nothing near does.

    What cures the other findings too comes first, so that all of them propose the same.
    """
    bad = [one for one in found if one.level in BAD]
    rest = {one.where for one in bad} - {finding.where}
    told = {one.where for one in bad if one.hint} - {finding.where}
    changes = sorted(_changes(VersionLookup(selection, tables)), key=lambda change: change[0])
    pairs = [
        (first + second, {**one, **other})
        for (first, one), (second, other) in combinations(changes, 2)
        if not set(one) & set(other)
    ]
    tried = (*changes[:MOST], *sorted(pairs, key=lambda pair: pair[0])[:MOST])
    for may_stay in (told, rest) if told != rest else (rest,):
        for _, change in tried:
            left = clashes(replace(selection, **change), tables)  # type: ignore[arg-type]
            wrong = {one.where for one in left if one.level in BAD}
            if finding.where not in wrong and wrong <= may_stay:
                return _words(selection, change)
    return ""


def _changes(lookup: VersionLookup) -> Iterator[tuple[int, Change]]:
    """Yield single changes with how far they lead: another variant, Python, release, base, CUDA."""
    choice, tables = lookup.selection, lookup.tables
    yield from _torches(lookup)
    if choice.tensorflow:
        for steps, version in _by_distance(choice.tensorflow, tables.known("tensorflow")):
            yield steps, {"tensorflow": version}
    if lookup.base and choice.python:
        yield PYTHON, {"python": ""}
        yield from ((PYTHON, {"python": one}) for one in reversed(lookup.base.pythons))
    yield from _bases(lookup)


def _torches(lookup: VersionLookup) -> Iterator[tuple[int, Change]]:
    choice, tables = lookup.selection, lookup.tables
    if not choice.torch:
        return
    bare = choice.torch.partition("+")[0]
    known = {version: (row, vision) for row in tables.torch for version, vision in row.versions}
    for steps, version in ((0, bare), *_by_distance(bare, list(known))):
        if version not in known:
            continue
        row, vision = known[version]
        kept = {"torchvision": vision} if choice.torchvision else {}
        for wheel in reversed(tables.torch_wheels):
            same_sort = bool(wheel.cuda) == (lookup.torch_variant != "cpu")
            # Where GPUs are asked for: no row that does not say which it serves, unless ours does not either.
            same_sort &= bool(wheel.archs) or not (
                choice.gpus and lookup.torch_wheel and lookup.torch_wheel.archs
            )
            if wheel.series == row.series and same_sort and (steps or wheel.variant != lookup.torch_variant):
                cost = steps + (VARIANT if wheel.variant not in (row.variant, lookup.torch_variant) else 0)
                yield cost, {"torch": version, "torch_variant": wheel.variant, **kept}


def _bases(lookup: VersionLookup) -> Iterator[tuple[int, Change]]:
    as_of = lookup.tables.rules["as-of"].value
    found = lookup.cuda_image
    if found is None:
        for base in reversed(lookup.tables.bases):
            if base.end_of_life > as_of and (lookup.base is None or base.name != lookup.base.name):
                family = lookup.base is not None and base.family == lookup.base.family
                yield BASE if family else BASE + 1, {"base": base.name, "base_like": ""}
        return
    for row in reversed(lookup.tables.cuda):
        for name in reversed(row.bases):
            if not row.deleted:
                flavor = f"{'cudnn-' if found.has_cudnn else ''}{found.flavor}"
                reference = f"nvidia/cuda:{row.tags[-1]}-{flavor}-{name.replace(':', '')}"
                yield CUDA, {"base": reference, "cuda": row.tags[-1]}


def _by_distance(version: str, known: list[str]) -> Iterator[tuple[int, str]]:
    """Yield the other versions with how many series lie between, the next older first."""
    names = sorted({series(one) for one in (*known, version)}, key=key)
    here = names.index(series(version))
    for one in sorted((one for one in known if one != version), key=key, reverse=True):
        steps = abs(names.index(series(one)) - here)
        older = key(one) < key(version)
        yield max(1, 2 * steps - (1 if older else 0)), one


def _words(before: Selection, change: Change) -> str:
    names = [field.name for field in fields(Selection) if field.name in change]
    return ", ".join(
        f"{NAMES.get(name, name)} {change[name] or 'of the base'}"
        for name in names
        if change[name] != getattr(before, name) and name not in ("base_like",)
    )

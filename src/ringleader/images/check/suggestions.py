"""The nearest set that works: as few changes to a selection as make a finding go away. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from itertools import combinations

from ringleader.finding import Finding, Level
from ringleader.images.check.version_lookup import VersionLookup
from ringleader.images.selection import Selection
from ringleader.images.tables import Tables
from ringleader.images.tables.version_order import key, series

Change = Mapping[str, str]
BAD = (Level.FAULT, Level.GONE)
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


def nearest(
    lookup: VersionLookup, finding: Finding, check: Callable[[Selection, Tables], list[Finding]]
) -> str:
    """Return what to change so that a finding goes away and no other comes; empty where nothing near does.

    What cures the other findings too comes first, so that all of them propose the same.
    """
    bad = [one for one in check(lookup.selection, lookup.tables) if one.level in BAD]
    rest = {one.where for one in bad} - {finding.where}
    told = {one.where for one in bad if one.hint} - {finding.where}
    changes = sorted(_changes(lookup), key=lambda change: change[0])
    singles = [change for _, change in changes]
    pairs = sorted(
        (
            (first + second, {**one, **other})
            for (first, one), (second, other) in combinations(changes, 2)
            if not set(one) & set(other)
        ),
        key=lambda pair: pair[0],
    )
    tried = (*singles[:MOST], *(pair for _, pair in pairs[:MOST]))
    for may_stay in (told, rest) if told != rest else (rest,):
        for change in tried:
            if _cures(lookup, change, finding, may_stay, check):
                return _words(lookup.selection, change)
    return ""


def _cures(
    lookup: VersionLookup,
    change: Change,
    finding: Finding,
    rest: set[str],
    check: Callable[[Selection, Tables], list[Finding]],
) -> bool:
    changed = replace(lookup.selection, **change)  # type: ignore[arg-type]
    left = {one.where for one in check(changed, lookup.tables) if one.level in BAD}
    return finding.where not in left and left <= rest


def _changes(lookup: VersionLookup) -> Iterator[tuple[int, Change]]:
    """Yield single changes with how far they lead: another variant, Python, release, base, CUDA."""
    choice, tables = lookup.selection, lookup.tables
    yield from _torches(lookup)
    if choice.tensorflow:
        ordered = [version for row in tables.tensorflow for version in row.versions]
        for steps, version in _by_distance(choice.tensorflow, ordered):
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
                flavour = f"{'cudnn-' if found.has_cudnn else ''}{found.flavour}"
                reference = f"nvidia/cuda:{row.tags[-1]}-{flavour}-{name.replace(':', '')}"
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

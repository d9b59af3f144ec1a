"""One full set of versions that fits some constraints: the newest, and always the same one. Pure."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from ringleader.errors import Fault, RequestError
from ringleader.finding import Cited, Finding
from ringleader.images.check import BAD, clashes
from ringleader.images.selection import Selection
from ringleader.images.solve.candidates import candidates
from ringleader.images.solve.constraints import Constraints
from ringleader.images.tables import Tables
from ringleader.images.tables.version_order import key, matches


def solve(constraints: Constraints, tables: Tables) -> Selection:
    """Return the first set that fits. RequestError: which constraints clash, by which rows, and what fits."""
    found = _first(constraints, tables)
    if found is not None:
        return found
    raise RequestError(_why(constraints, tables))


def _first(constraints: Constraints, tables: Tables) -> Selection | None:
    return next((one for one in candidates(constraints, tables) if not _bad(one, tables)), None)


def _bad(selection: Selection, tables: Tables) -> list[Finding]:
    """Return what speaks against a set: faults, and a second CUDA, which works but nobody asks for."""
    found = clashes(selection, tables)
    return [one for one in found if one.level in BAD or one.where == "image-cuda"]


def _why(constraints: Constraints, tables: Tables) -> Fault:
    """Return the first one, two or three constraints that nothing fits, and what fits without one."""
    given = tuple(constraints.given())
    for count in (1, 2, 3):
        for names in combinations(given, count):
            if _first(_only(constraints, names), tables) is None:
                return _clash(constraints, names, tables)
    return _clash(constraints, given, tables)


def _only(constraints: Constraints, names: tuple[str, ...]) -> Constraints:
    return Constraints(**{name: value for name, value in constraints.given().items() if name in names})


def _clash(constraints: Constraints, names: tuple[str, ...], tables: Tables) -> Fault:
    some = _only(constraints, names)
    words = " and ".join(f"{name}={value}" for name, value in some.given().items())
    what = f"{words} do not go together" if len(names) > 1 else f"nothing fits {words}"
    found = _least_bad(some, tables)
    reasons = dict.fromkeys(one.what for one in found)
    rows = dict.fromkeys(str(row) for one in found for row in one.rows)
    if not found:
        rows = dict.fromkeys(str(row) for row in _framework_rows(some, tables))
    text = f"{what}: {'; '.join(reasons)}" if reasons else what
    lines = "".join(f"\n      {row}" for row in rows)
    return Fault(where="", what=f"{text}{lines}", hint=_without(constraints, names, tables))


def _least_bad(constraints: Constraints, tables: Tables) -> list[Finding]:
    """Return the faults of the candidate with the fewest."""
    found = (_bad(one, tables) for one in candidates(constraints, tables))
    return min(found, key=len, default=[])


def _framework_rows(constraints: Constraints, tables: Tables) -> list[Cited]:
    """Return what the frameworks bring, where the constraints exclude each other before any set is made."""
    found: list[Cited] = []
    if constraints.torch:
        known = [
            row.series
            for row in tables.torch
            if any(matches(one, constraints.torch) for one, _ in row.versions)
        ]
        found += [row.cited() for row in tables.torch_wheels if row.series in known[-1:]]
    if constraints.tensorflow:
        rows = [
            row
            for row in tables.tensorflow
            if any(matches(one, constraints.tensorflow) for one in row.versions)
        ]
        found += [row.cited() for row in rows[-1:]]
    return found


def _without(constraints: Constraints, names: tuple[str, ...], tables: Tables) -> str:
    """Return what fits without one of the constraints that clash, or next to the only one."""
    if len(names) == 1:
        return _next_to(constraints, names[0], tables)
    found: list[str] = []
    for name in reversed(names):
        rest = _first(replace(constraints, **{name: ""}), tables)
        if rest is not None:
            found.append(f"without {name}={getattr(constraints, name)}: {brief(rest)}")
    if not found and set(names) != set(constraints.given()):
        return _without(_only(constraints, names), names, tables)
    return "\n      or ".join(found)


def _next_to(constraints: Constraints, name: str, tables: Tables) -> str:
    """Return the nearest series of a framework that something fits; for others what fits without."""
    lists = {
        "torch": [row.series for row in tables.torch],
        "tensorflow": [row.series for row in tables.tensorflow],
    }
    if name in lists:
        known = lists[name]
        version_asked = getattr(constraints, name)
        places = {one: place for place, one in enumerate(known)}
        here = max((place for one, place in places.items() if key(one) <= key(version_asked)), default=0)
        for one in sorted(known, key=lambda one: abs(places[one] - here)):
            rest = _first(replace(constraints, **{name: one}), tables)
            if rest is not None:
                return f"the nearest that fits is {brief(rest)}"
    rest = _first(replace(constraints, **{name: ""}), tables)
    return f"without it: {brief(rest)}" if rest is not None else ""


def brief(selection: Selection) -> str:
    """Return a set in one line."""
    parts = []
    if selection.torch:
        parts.append(
            f"torch={selection.torch}{f' ({selection.torch_variant})' if selection.torch_variant else ''}"
        )
    if selection.tensorflow:
        parts.append(f"tensorflow={selection.tensorflow}")
    parts.append(f"base={selection.base}")
    if selection.python:
        parts.append(f"python={selection.python}")
    return " ".join(parts)

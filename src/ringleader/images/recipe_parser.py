"""TOML becomes a recipe (``recipe``): every key is checked, all faults are reported at once. Pure."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from typing import Any

from ringleader.errors import Fault, RequestError, did_you_mean
from ringleader.images import base_image
from ringleader.images.blocks import KINDS, conflicts
from ringleader.images.mirrors import names as sets_of_mirrors
from ringleader.images.recipe import (
    Conflict,
    Mirrors,
    Recipe,
    UnfitError,
    is_needed,
    shown,
    typed,
    value_of,
)

DEFAULT_BLOCKS = ("python", "ringleader", "account")
"""What every image has, with defaults where a recipe does not say otherwise."""
BLOCKS: dict[str, type[Any]] = {kind.table: kind for kind in KINDS}
NOT_KEYS = ("blocks", "mirrors", "where")
FROZEN = "images of 2017 to 2019 are kept as Dockerfiles, and no recipe makes others"


def recipe(
    text: str, where: str, settings: Iterable[str] = (), mirrors: Iterable[str] = (), base: str = ""
) -> Recipe:
    """Return the recipe that a TOML text describes, changed by ``block.key=value`` settings.

    ``where`` names the text in messages. RequestError has every fault, with line and key where possible.
    ``mirrors`` are ``cn``, ``pip=https://…`` and the like; ``base`` is another base than the text's.
    """
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # also numbers and nesting beyond Python's limits
        match = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", str(error))
        what, line = (match[1], f":{match[2]}") if match else (str(error), "")
        raise RequestError(f"is not TOML: {what}", where=f"{where}{line}") from None
    reader = _Reader(_Lines(text, where))
    for setting in settings:
        reader.change(document, setting, "--set")
    for mirror in mirrors:
        key, equals, url = mirror.partition("=")
        setting = f"mirrors.{key}={url}" if equals else f"mirrors.set={mirror}"
        reader.change(document, setting, f"--mirror {key}" if equals else "--mirror", whole=True)
    if base:
        reader.change(document, f"base={base}", "--base", whole=True)
    return reader.recipe(document, where)


def key_of(name: str) -> str:
    """Return a field's name as a recipe writes it."""
    return name.replace("_", "-")


def keys_of(kind: type[Any]) -> dict[str, Field[Any]]:
    """Return the keys of a block, of ``Mirrors``, or of a recipe itself, with their fields."""
    return {key_of(field.name): field for field in fields(kind) if field.name not in NOT_KEYS}


def as_toml(recipe_: Recipe) -> list[str]:
    """Return a recipe as lines of TOML, without what has its default; reading them gives the same recipe."""
    tables = {**({"mirrors": recipe_.mirrors} if recipe_.mirrors != Mirrors() else {}), **recipe_.blocks}
    lines = _written(recipe_)
    for name, value in tables.items():
        lines += ["", f"[{name}]", *_written(value)]
    return lines


def _written(value: Any) -> list[str]:
    lines = []
    for key, field in keys_of(type(value)).items():
        found = getattr(value, field.name)
        if found == field.default:
            continue
        text = json.dumps(found, ensure_ascii=False)
        if "names" in field.metadata:
            pairs = (f"{json.dumps(name)} = {json.dumps(one, ensure_ascii=False)}" for name, one in found)
            text = f"{{ {', '.join(pairs)} }}"
        lines.append(f"{key} = {text}")
    return lines


class _Reader:
    """Reads one document and gathers its faults."""

    def __init__(self, lines: _Lines) -> None:
        self.lines = lines
        self.faults: list[Fault] = []

    def recipe(self, document: Mapping[str, Any], where: str) -> Recipe:
        """Return the recipe, or raise RequestError with every fault."""
        heads = keys_of(Recipe)
        known = (*heads, "mirrors", *BLOCKS)
        for key in document:
            if key == "historical" and document[key] is False:
                continue  # what it always was, from when images of 2017 to 2019 had recipes
            if key in ("historical", "tensorflow-source"):
                self._fault((key,), FROZEN, "ringleader image list shows them; image render prints one")
            elif key not in known:
                self._unknown(key, (), known)
        head = self._fields(document, heads, ())
        found = document.get("mirrors", {})
        mirrors = self._values(found, Mirrors, "mirrors")
        wanted = found.get("set") if isinstance(found, dict) else None
        if wanted and isinstance(wanted, str) and wanted not in sets_of_mirrors():
            sets = ", ".join(sets_of_mirrors())
            self._fault(("mirrors", "set"), f"{shown(wanted)} is not a set of mirrors", f"Known: {sets}")
        blocks = self._blocks(document)
        self._conflicts(base_image.conflicts(head))
        if not self.faults:
            self._conflicts(conflicts(blocks, head.get("build_base") or head["base"]))
        if self.faults:
            raise RequestError(self.faults)
        return Recipe(**head, mirrors=mirrors, blocks=blocks, where=where)

    def change(self, document: dict[str, Any], setting: str, option: str, *, whole: bool = False) -> None:
        """Put one ``block.key=value`` into a document; ``whole``: the option names the key already."""
        path, equals, word = setting.partition("=")
        block, _, rest = path.partition(".")
        # A label's name has its own dots.
        keys = (block, rest) if block == "labels" and rest else tuple(path.split("."))
        if not equals or not all(keys):
            what = f"{shown(setting)} is not KEY=VALUE"
            self.faults.append(Fault(where=option, what=what, hint="such as torch.version=2.9.1"))
            return
        self.lines.changed(keys, option, whole=whole)
        table = document
        for key in keys[:-1]:
            below = table.setdefault(key, {})
            if not isinstance(below, dict):
                what = f"{key} has no keys of its own"
                self.faults.append(Fault(where=f"{option} {path}", what=what))
                return
            table = below
        kinds: dict[str, type[Any]] = {"mirrors": Mirrors, **BLOCKS}
        kind = Recipe if len(keys) == 1 else kinds.get(keys[0]) if len(keys) == 2 else None
        field = keys_of(kind).get(keys[-1]) if kind else None
        table[keys[-1]] = typed(field, word) if field else word

    def _blocks(self, document: Mapping[str, Any]) -> dict[str, Any]:
        wanted = {name: document[name] for name in BLOCKS if name in document}
        defaults = (*DEFAULT_BLOCKS, "sshd") if "mpi" in wanted else DEFAULT_BLOCKS
        wanted = {**{name: {} for name in defaults}, **wanted}
        return {
            name: self._values(wanted[name], kind, name) for name, kind in BLOCKS.items() if name in wanted
        }

    def _values(self, found: Any, kind: type[Any], name: str) -> Any:
        """Return one table as a value of its dataclass; None where it has faults."""
        known = keys_of(kind)
        if not isinstance(found, dict):
            self._fault((name,), f"{shown(found)} is not a table", f"write [{name}] and its keys below")
            return None
        before = len(self.faults)
        for key in found:
            if key not in known:
                self._unknown(key, (name,), tuple(known))
        given = self._fields(found, known, (name,))
        return kind(**given) if len(self.faults) == before else None

    def _fields(
        self, found: Mapping[str, Any], known: Mapping[str, Field[Any]], path: tuple[str, ...]
    ) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for key, field in known.items():
            if key in found:
                try:
                    given[field.name] = value_of(field, found[key])
                except UnfitError as fault:
                    self._fault((*path, key, *([fault.key] if fault.key else [])), fault.what, fault.hint)
            elif is_needed(field):
                one_of = field.metadata["one_of"]
                example = one_of[0] if one_of else field.metadata["kind"].example
                self._fault(path, f"{key} is missing", f'write {key} = "{example}"')
        return given

    def _unknown(self, key: str, path: tuple[str, ...], known: tuple[str, ...]) -> None:
        hint = f"{did_you_mean(key, known)} Known: {', '.join(known)}".strip()
        self._fault((*path, key), f"unknown {'block or key' if not path else 'key'}", hint)

    def _conflicts(self, found: Iterable[Conflict]) -> None:
        for one in found:
            self._fault(one.path, one.what, one.hint)

    def _fault(self, path: tuple[str, ...], what: str, hint: str = "") -> None:
        self.faults.append(Fault(where=self.lines.where(path), what=what, hint=hint))


HEADER = re.compile(r"^\s*\[\s*([A-Za-z0-9_.\" -]+?)\s*\]")
KEY = re.compile(
    r"^\s*((?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|\"[^\"]*\"|'[^']*'))*)\s*="
)
PART = re.compile(r"\"([^\"]*)\"|'([^']*)'|([A-Za-z0-9_-]+)")


class _Lines:
    """Where the keys of a text are, which the standard library's parser does not tell.

    What looks like a key inside a long string gives a wrong line.
    """

    def __init__(self, text: str, name: str) -> None:
        """Find the line of each table and key; the first one counts."""
        self.name = name
        self._found: dict[tuple[str, ...], str] = {}
        self._whole: set[tuple[str, ...]] = set()
        table: tuple[str, ...] = ()
        for number, line in enumerate(text.split("\n"), 1):
            header, key = HEADER.match(line), KEY.match(line)
            if header:
                table = _parts(header[1])
            path = table if header else (*table, *_parts(key[1])) if key else ()
            for end in range(len(path) if header else len(table) + 1, len(path) + 1):
                self._found.setdefault(path[:end], f"{name}:{number}")

    def changed(self, path: tuple[str, ...], option: str, *, whole: bool = False) -> None:
        """Remember that a key came from the command line; ``whole``: the option says which key it is."""
        if whole:
            self._whole.add(path)
        for end in range(len(path), 0, -1):
            if end == len(path) or path[:end] not in self._found:
                self._found[path[:end]] = option

    def where(self, path: tuple[str, ...]) -> str:
        """Return ``file:line key``; where the key itself is not found, the line of the table that has it."""
        if path in self._whole:
            return self._found[path]
        for end in range(len(path), 0, -1):
            if path[:end] in self._found:
                return f"{self._found[path[:end]]} {'.'.join(path)}"
        return f"{self.name} {'.'.join(path)}" if path else self.name


def _parts(key: str) -> tuple[str, ...]:
    return tuple(next(filter(None, match.groups()), "") for match in PART.finditer(key))

"""TOML becomes a recipe: every key is checked against blocks' arguments, all faults told at once. Pure."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields
from typing import Any

from ringleader.errors import Fault, RequestError
from ringleader.images.base_image import base_faults
from ringleader.images.blocks import KINDS, conflicts
from ringleader.images.mirrors import names as sets_of_mirrors
from ringleader.images.recipe import Mirrors, Recipe
from ringleader.images.recipe_fields import UnfitError, is_needed, shown, typed, value_of
from ringleader.images.toml_lines import Lines

DEFAULT_BLOCKS = ("python", "ringleader", "account")
"""What every modern image has, with defaults where a recipe does not say otherwise."""
BLOCKS: dict[str, type[Any]] = {kind.table: kind for kind in KINDS}


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
        raise RequestError(_syntax(str(error), where)) from None
    reader = _Reader(Lines(text, where))
    for setting in settings:
        reader.change(document, setting, "--set")
    for mirror in mirrors:
        reader.change_mirror(document, mirror)
    if base:
        reader.change(document, f"base={base}", "--base", whole=True)
    return reader.recipe(document, where)


NOT_KEYS = ("blocks", "mirrors", "where")


def key_of(name: str) -> str:
    """Return a field's name as a recipe writes it."""
    return name.replace("_", "-")


def as_toml(recipe_: Recipe) -> list[str]:
    """Return a recipe as lines of TOML, without what has its default; reading them gives the same recipe."""
    tables = {**({"mirrors": recipe_.mirrors} if recipe_.mirrors != Mirrors() else {}), **recipe_.blocks}
    lines = _keys(recipe_)
    for name, value in tables.items():
        lines += ["", f"[{name}]", *_keys(value)]
    return lines


def _keys(value: Any) -> list[str]:
    """Return the keys of a block, or a recipe's own."""
    lines = []
    for field in fields(value):
        found = getattr(value, field.name)
        if field.name in NOT_KEYS or found == field.default:
            continue
        text = json.dumps(found, ensure_ascii=False)
        if "names" in field.metadata:
            pairs = (f"{json.dumps(name)} = {json.dumps(one, ensure_ascii=False)}" for name, one in found)
            text = f"{{ {', '.join(pairs)} }}"
        lines.append(f"{key_of(field.name)} = {text}")
    return lines


def _syntax(text: str, where: str) -> Fault:
    match = re.fullmatch(r"(.*) \(at line (\d+), column \d+\)", text)
    if match is None:
        return Fault(where=where, what=f"is no TOML: {text}")
    return Fault(where=f"{where}:{match[2]}", what=f"is no TOML: {match[1]}")


class _Reader:
    """Reads one document and gathers its faults."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines
        self.faults: list[Fault] = []

    def recipe(self, document: Mapping[str, Any], where: str) -> Recipe:
        """Return the recipe, or raise RequestError with every fault."""
        heads = {key_of(field.name): field for field in fields(Recipe) if field.name not in NOT_KEYS}
        known = (*heads, "mirrors", *BLOCKS)
        for key in document:
            if key not in known:
                self._unknown(key, (), known)
        head = self._fields(document, heads, ())
        mirrors = self._values(document.get("mirrors", {}), Mirrors, "mirrors")
        self._set_of_mirrors(document.get("mirrors"))
        historical = head.get("historical") is True
        blocks = self._blocks(document, historical)
        self.faults += base_faults(head, self.lines)
        if not self.faults:
            compiled_in = head.get("build_base") or head["base"]
            for one in conflicts(blocks, compiled_in, historical=historical):
                self._fault(one.path, one.what, one.hint)
        if self.faults:
            raise RequestError(self.faults)
        return Recipe(**head, mirrors=mirrors, blocks=blocks, where=where)

    def _blocks(self, document: Mapping[str, Any], historical: bool) -> dict[str, Any]:
        wanted = {name: document[name] for name in BLOCKS if name in document}
        if not historical:
            defaults = (*DEFAULT_BLOCKS, "sshd") if "mpi" in wanted else DEFAULT_BLOCKS
            wanted = {**{name: {} for name in defaults}, **wanted}
        return {
            name: self._values(wanted[name], kind, name) for name, kind in BLOCKS.items() if name in wanted
        }

    def _values(self, found: Any, kind: type[Any], name: str) -> Any:
        """Return one table as a value of its dataclass; None where it has faults."""
        known = {key_of(field.name): field for field in fields(kind)}
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
            if key not in found:
                if is_needed(field):
                    self._fault(path, f"{key} is missing", _example(key, field))
                continue
            try:
                given[field.name] = value_of(field, found[key])
            except UnfitError as fault:
                self._fault((*path, key, *([fault.key] if fault.key else [])), fault.what, fault.hint)
        return given

    def _set_of_mirrors(self, found: Any) -> None:
        wanted = found.get("set") if isinstance(found, dict) else None
        if wanted and isinstance(wanted, str) and wanted not in sets_of_mirrors():
            known = ", ".join(sets_of_mirrors())
            self._fault(("mirrors", "set"), f"{shown(wanted)} is no set of mirrors", f"Known: {known}")

    def change_mirror(self, document: dict[str, Any], mirror: str) -> None:
        """Put ``cn`` or ``pip=https://…`` into a document."""
        key, equals, url = mirror.partition("=")
        setting = f"mirrors.{key}={url}" if equals else f"mirrors.set={mirror}"
        self.change(document, setting, f"--mirror {key}" if equals else "--mirror", whole=True)

    def change(self, document: dict[str, Any], setting: str, option: str, *, whole: bool = False) -> None:
        """Put one ``block.key=value`` into a document."""
        path, equals, word = setting.partition("=")
        block, _, rest = path.partition(".")
        # A label's name has dots of its own.
        keys = (block, rest) if block == "labels" and rest else tuple(path.split("."))
        if not equals or not all(keys):
            what = f"{shown(setting)} is not KEY=VALUE"
            self.faults.append(Fault(where=option, what=what, hint="such as torch.version=2.9.1"))
            return
        self.lines.told(keys, option, whole=whole)
        table = document
        for key in keys[:-1]:
            below = table.setdefault(key, {})
            if not isinstance(below, dict):
                what = f"{key} has no keys of its own"
                self.faults.append(Fault(where=f"{option} {path}", what=what))
                return
            table = below
        field = _field(keys)
        table[keys[-1]] = typed(field, word) if field else word

    def _unknown(self, key: str, path: tuple[str, ...], known: tuple[str, ...]) -> None:
        close = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {close[0]}? " if close else ""
        what = "block or key" if not path else "key"
        self._fault((*path, key), f"unknown {what}", f"{hint}Known: {', '.join(known)}")

    def _fault(self, path: tuple[str, ...], what: str, hint: str = "") -> None:
        self.faults.append(Fault(where=self.lines.where(path), what=what, hint=hint))


def _field(keys: tuple[str, ...]) -> Field[Any] | None:
    """Return the field of a key; None where there is none."""
    kinds: dict[str, type[Any]] = {"mirrors": Mirrors, **BLOCKS}
    kind = Recipe if len(keys) == 1 else kinds.get(keys[0]) if len(keys) == 2 else None
    return next((one for one in fields(kind) if key_of(one.name) == keys[-1]), None) if kind else None


def _example(key: str, field: Field[Any]) -> str:
    sort = field.metadata.get("sort")
    one_of = field.metadata.get("one_of", ())
    return f'write {key} = "{one_of[0] if one_of else sort.example}"' if sort else ""

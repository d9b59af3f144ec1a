"""A recipe as a value, how its keys are declared, and what an image records of it. Pure.

A key is declared once, as a field of a dataclass: ``version: str = needed(VERSION)`` with a docstring below.
Reading, checks, messages, ``--set``, writing TOML and the reference page follow from the field. The classes
of blocks are in ``blocks``; ``recipe_parser`` reads TOML.

A kind of text has a pattern, so that no value leaves its place: a newline would end an instruction of a
Dockerfile, whatever the quotes around it. Paths have no character that a shell, Docker's COPY or Apptainer's
%files would take for anything but itself.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, asdict, dataclass, field
from functools import cached_property
from typing import Any

from ringleader import __version__
from ringleader.images.instructions import Run, shell, write


@dataclass(frozen=True)
class TextKind:
    """A kind of text."""

    what: str
    """For messages: ``must be a version``."""
    regex: str
    example: str

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What the whole of a text must match, compiled when it is first needed."""
        return re.compile(self.regex)


VERSION = TextKind("a version", r"[0-9][0-9A-Za-z.+~:-]*", "2.8.0")
NAME = TextKind("a name", r"[a-z_][a-z0-9_-]{0,31}", "trainer")
VARIANT = TextKind("a variant", r"[a-z0-9]+", "cu128")
APT = TextKind(
    "a Debian package", r"[a-z0-9][a-z0-9.+-]*(:[a-z0-9]+)?(=[0-9A-Za-z.+~:-]+)?", "perftest=4.5-1"
)
REQUIREMENT = TextKind(
    "a requirement of pip",
    r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+(,(==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!-]+)*)?",
    "scikit-learn>=1.5,<2",
)
_LINE = r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]"
_IN_PATH = r"[\w.+@,:=~/ -]"
CONTEXT_PATH = TextKind(
    "a path below the recipe, without quotes and signs that have a meaning elsewhere",
    rf"(?![-/~ ])(?!(.*/)?\.\.?(/|$)){_IN_PATH}+(?<! )",
    "wheels/x.whl",
)
PATH = TextKind(
    "an absolute path, without quotes and signs that have a meaning elsewhere",
    rf"/(?!(.*/)?\.\.(/|$)){_IN_PATH}*(?<! )",
    "/opt/train",
)
URL = TextKind(
    "an http or https URL",
    r"https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?(/[A-Za-z0-9._~%/+-]*)?",
    "https://pypi.org/simple",
)
SHA256 = TextKind("a SHA-256 in hexadecimal", r"[0-9a-f]{64}", "0123456789abcdef" * 4)
FINGERPRINT = TextKind(
    "a fingerprint of an OpenPGP key", r"[0-9A-F]{40}([0-9A-F]{24})?", "0123456789ABCDEF" * 2 + "01234567"
)
LINE = TextKind("one line of text", rf"{_LINE}*", "Digits for everybody")
TEXT = TextKind(
    "one line of text, without blanks at its ends", rf"(?!\s){_LINE}*(?<!\s)", "Digits for everybody"
)
VARIABLE = TextKind("a variable's name", r"[A-Za-z_][A-Za-z0-9_]*", "OMP_NUM_THREADS")
LABEL = TextKind("a label's name", r"[a-z0-9]+([./_-][a-z0-9]+)*", "org.opencontainers.image.version")
IMAGE_NAME = TextKind("an image's name", r"[a-z0-9]+([.-][a-z0-9]+)*", "digits-torch")
GPU = TextKind("a GPU's name", r"[a-z0-9][a-z0-9_.-]*", "h100")
_HOST = r"[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]+)?"
_REPOSITORY = r"[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*"
REGISTRY = TextKind(
    "a registry, with a path where it needs one", rf"{_HOST}(/{_REPOSITORY})*", "registry.example.org/proxy"
)
REFERENCE = TextKind(
    "a reference of an image",
    rf"({_HOST}/)?{_REPOSITORY}(/{_REPOSITORY})*(:[A-Za-z0-9_][A-Za-z0-9_.-]{{0,127}})?(@sha256:[0-9a-f]{{64}})?",
    "ubuntu:24.04",
)


def text(kind: TextKind, default: str = "", *, one_of: tuple[str, ...] = ()) -> Any:
    """Declare a key with one text of a kind. The default may be empty: not given."""
    return field(default=default, metadata={"kind": kind, "one_of": one_of})


def needed(kind: TextKind, *, one_of: tuple[str, ...] = ()) -> Any:
    """Declare a key that a recipe must give."""
    return field(metadata={"kind": kind, "one_of": one_of})


def texts(kind: TextKind, *, one_of: tuple[str, ...] = ()) -> Any:
    """Declare a key with a list of texts."""
    return field(default=(), metadata={"kind": kind, "one_of": one_of})


def number(default: int, *, least: int, most: int) -> Any:
    """Declare a key with an integer from ``least`` to ``most``."""
    return field(default=default, metadata={"least": least, "most": most})


def pairs(kind: TextKind, names: TextKind = VARIABLE) -> Any:
    """Declare a key that is a table of names and texts, as ``tuple[tuple[str, str], ...]``."""
    return field(default=(), metadata={"kind": kind, "names": names})


@dataclass(frozen=True, kw_only=True)
class Mirrors:
    """Where things are fetched from instead of their usual places: the recipe's table ``[mirrors]``."""

    set: str = text(NAME)
    """A named set of mirrors, such as ``cn``; single ones below win over it."""
    registry: str = text(REGISTRY)
    """Prefix for images of public registries: ``registry.example.org/proxy``; then Docker Hub's images are
    ``registry.example.org/proxy/library/debian:12``, those of others ``…/proxy/nvcr.io/nvidia/…``."""
    apt: str = text(URL)
    """Base URL under which ``debian/``, ``debian-security/`` or ``ubuntu/`` lie."""
    pip: str = text(URL)
    """URL of a simple index."""
    conda: str = text(URL)
    """Base URL of channels."""
    keep: bool = False
    """True: the image's own apt and pip use them too. Otherwise no trace of them is left."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What is to be in an image. ``ringleader.images.recipe_parser`` makes it from TOML."""

    name: str = needed(IMAGE_NAME)
    """Name of the image: a-z, 0-9, ``.``, ``-``."""
    about: str = text(TEXT)
    """What it is for, in one sentence."""
    base: str = needed(REFERENCE)
    """The image to begin with: ``ubuntu:24.04``, ``nvidia/cuda:12.8.1-base-ubuntu24.04``; with ``@sha256:…``
    where it is to be pinned."""
    base_like: str = text(REFERENCE)
    """The base of the tables that ``base`` resembles, where its name does not tell: ``debian:12``."""
    build_base: str = text(REFERENCE)
    """The image in which the build stage is done; empty: ``base``."""
    gpus: tuple[str, ...] = texts(GPU)
    """GPUs that the image must run on, as the tables name them: ``h100``. Only checked."""
    driver: str = text(VERSION)
    """The hosts' NVIDIA driver, where it is known: ``550.54``. Only checked."""
    network: str = text(NAME, one_of=("roce", "infiniband", "efa", "erdma", "tcp"))
    """``roce``, ``infiniband``, ``efa``, ``erdma`` or ``tcp``. Only checked."""
    labels: tuple[tuple[str, str], ...] = pairs(TEXT, LABEL)
    """Labels of your own; they win over those that every image has."""
    mirrors: Mirrors = field(default_factory=Mirrors)
    blocks: Mapping[str, Any] = field(default_factory=dict)
    """Name → block (``ringleader.images.blocks``), in the order in which they take effect."""
    where: str = ""
    """File from which it was read; the recipe's own paths are relative to its directory."""

    @property
    def digest(self) -> str:
        """``sha256:…`` of everything in the recipe but the file it came from."""
        values = asdict(self) | {"historical": False}  # which recipes could say once: digests stay the same
        values.pop("where")
        data = json.dumps(values, sort_keys=True, separators=(",", ":")).encode()
        return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass(frozen=True)
class Conflict:
    """One key that cannot have its effect, in this image or beside another block."""

    path: tuple[str, ...]
    """Block and key as a recipe writes them."""
    what: str
    hint: str = ""


# --- what a key holds -------------------------------------------------------------------------------------

TYPES = {
    "str": 'text in quotes: "…"',
    "bool": "true or false",
    "int": "an integer",
    "tuple[str, ...]": 'a list of texts: ["…", "…"]',
    "tuple[tuple[str, str], ...]": 'a table of texts: { NAME = "…" }',
}
"""Type of a field → what a recipe writes there."""


class UnfitError(Exception):
    """A value that does not fit; ``args`` are what is wrong and what to do."""

    def __init__(self, what: str, hint: str = "", key: str = "") -> None:
        """Keep the key of a table in which it is, where the value is one."""
        super().__init__(what, hint)
        self.what, self.hint, self.key = what, hint, key


def is_needed(field: Field[Any]) -> bool:
    """Tell whether a recipe must give the field."""
    return field.default is MISSING and field.default_factory is MISSING


def value_of(field: Field[Any], found: Any) -> Any:
    """Return a field's value from what TOML has there; UnfitError where it is none."""
    kind = str(field.type)
    if kind == "str":
        return _text(field, found)
    if kind == "bool" and isinstance(found, bool):
        return found
    if kind == "int" and isinstance(found, int) and not isinstance(found, bool):
        least, most = field.metadata["least"], field.metadata["most"]
        if not least <= found <= most:
            raise UnfitError(f"{found} is not from {least} to {most}")
        return found
    if kind == "tuple[str, ...]" and isinstance(found, list):
        return tuple(_text(field, one) for one in found)
    if kind == "tuple[tuple[str, str], ...]" and isinstance(found, dict):
        return tuple(_pairs(field, found))
    raise UnfitError(f"{shown(found)} is not {TYPES[kind]}")


def typed(field: Field[Any], word: str) -> Any:
    """Return what TOML would have for a word of the command line: ``--set block.key=WORD``."""
    kind = str(field.type)
    if kind == "bool" and word in ("true", "false"):
        return word == "true"
    if kind == "int" and word.isascii() and word.isdigit() and len(word) < 20:
        return int(word)
    if kind == "tuple[str, ...]":
        return [part.strip() for part in word.split(",") if part.strip()]
    return word


def shown(found: Any) -> str:
    """Return a value as a message shows it: on one line, shortened."""
    if isinstance(found, bool):
        return str(found).lower()
    text = repr(found) if isinstance(found, str) else str(found)
    return text if len(text) <= 80 else f"{text[:77]}…"


def _text(field: Field[Any], found: Any) -> str:
    if not isinstance(found, str):
        hint = f'write "{found}"' if isinstance(found, int | float) and not isinstance(found, bool) else ""
        raise UnfitError(f"{shown(found)} is not {TYPES['str']}", hint)
    if found == "" and field.default == "":
        return found
    _fits(field.metadata["kind"], found)
    one_of: tuple[str, ...] = field.metadata.get("one_of", ())
    if one_of and found not in one_of:
        raise UnfitError(f"{shown(found)} is not one of {', '.join(one_of)}")
    return found


def _pairs(field: Field[Any], found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    for name, one in found.items():
        try:
            _fits(field.metadata["names"], name)
            if not isinstance(one, str):
                hint = 'a name with dots needs quotes: "a.b" = "…"' if isinstance(one, dict) else ""
                raise UnfitError(f"{shown(one)} is not {TYPES['str']}", hint)
            _fits(field.metadata["kind"], one)
        except UnfitError as fault:
            raise UnfitError(fault.what, fault.hint, name) from None
        yield name, one


def _fits(kind: TextKind, found: str) -> None:
    if kind.pattern.fullmatch(found) is None:
        raise UnfitError(f"{shown(found)} is not {kind.what}", f'such as "{kind.example}"')


# --- what an image says of itself -------------------------------------------------------------------------

RECORD = "/usr/share/ringleader/image.json"
"""Where an image has the record of its recipe, which the self-test reads."""


def record(recipe: Recipe) -> dict[str, Any]:
    """Return what the record says, as plain values."""
    return {
        "name": recipe.name,
        "recipe": recipe.digest,
        "base": recipe.base,
        "historical": False,
        "mirrors_kept": recipe.mirrors.keep,
        "blocks": {name: asdict(block) for name, block in recipe.blocks.items()},
        "ringleader": __version__,
    }


def recorded(recipe: Recipe) -> Run:
    """Return the step that writes the record; it is the same for the same recipe."""
    directory = RECORD.rpartition("/")[0]
    line = json.dumps(record(recipe), sort_keys=True, separators=(",", ":"))
    return Run(commands=(shell("mkdir", "-p", directory), write(RECORD, (line,))))

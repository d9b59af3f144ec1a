"""Mirrors: an image is rewritten so that everything it fetches comes from them, and none is left in it. Pure.

Blocks know nothing of mirrors. What a step fetches is seen in its commands: apt-get, pip, conda, URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from ringleader.images.recipe import Mirrors
from ringleader.images.steps import Image, Run, Stage, Step, words, write
from ringleader.images.tables.rows import read, rows

PUBLIC = ("docker.io", "nvcr.io", "quay.io", "ghcr.io", "gcr.io", "registry.k8s.io", "public.ecr.aws")
"""Registries from which anybody may pull. Images of other hosts are somebody's own: they are left alone."""
APT_PLACES = (
    (r"https\?://\(deb\|security\)\.debian\.org/debian-security", "debian-security"),
    (r"https\?://security\.debian\.org/\?\( \|$\)", r"debian-security\1"),
    (r"https\?://\(deb\|ftp\.[a-z]*\|httpredir\)\.debian\.org/debian\>", "debian"),
    (r"https\?://\([a-z.]*archive\|security\)\.ubuntu\.com/ubuntu\>", "ubuntu"),
    (r"https\?://ports\.ubuntu\.com/ubuntu-ports", "ubuntu-ports"),
)
"""Where apt's sources point to (sed's patterns) → directory below a mirror. The first that matches counts."""
SOURCES = r"find /etc/apt -name '*.list' -o -name '*.sources'"
KEPT = ".usual"
"""Suffix of the sources while a step asks mirrors; apt reads no file that ends so."""
USES_APT = re.compile(r"\bapt(-get)? (-\S+ )*(update|install|source|download)\b")
USES_PIP = re.compile(r"\bpip[0-9.]* (download|install|wheel)\b")
USES_CONDA = re.compile(r"\b(conda|mamba) (create|install|update|env)\b")


@dataclass(frozen=True, kw_only=True)
class Row:
    """One mirror of a named set."""

    set: str
    kind: str
    url: str
    of: str = ""
    source: str = ""


@cache
def table() -> tuple[Row, ...]:
    """Return every row of every named set."""
    return rows(Row, read("mirrors")["mirror"])


def names() -> tuple[str, ...]:
    """Return the names of the sets."""
    return tuple(sorted({row.set for row in table()}))


@dataclass(frozen=True, kw_only=True)
class Places:
    """Where everything is fetched from, a named set and single mirrors brought together."""

    registries: tuple[tuple[str, str], ...] = ()
    apt: str = ""
    pip: str = ""
    conda: str = ""
    fetch: tuple[tuple[str, str], ...] = ()
    keep: bool = False


def places_of(mirrors: Mirrors) -> Places:
    """Return the mirrors that a recipe asks for; its own win over those of its set."""
    found = [row for row in table() if row.set == mirrors.set]
    one = {row.kind: row.url for row in found}
    registries = tuple((row.of, row.url) for row in found if row.kind == "registry")
    if mirrors.registry:
        registries = tuple(
            (host, mirrors.registry if host == "docker.io" else f"{mirrors.registry}/{host}")
            for host in PUBLIC
        )
    return Places(
        registries=registries,
        apt=(mirrors.apt or one.get("apt", "")).rstrip("/"),
        pip=mirrors.pip or one.get("pip", ""),
        conda=(mirrors.conda or one.get("conda", "")).rstrip("/"),
        fetch=tuple((row.of, row.url) for row in found if row.kind == "fetch"),
        keep=mirrors.keep,
    )


def mirrored(image: Image, mirrors: Mirrors) -> Image:
    """Return an image whose every fetch asks the mirrors."""
    places = places_of(mirrors)
    stages = tuple(
        Stage(
            name=stage.name,
            base=_reference(stage.base, places),
            steps=tuple(_kept(places) if number == len(image.stages) - 1 and places.keep else ())
            + tuple(_step(step, places) for step in stage.steps),
        )
        for number, stage in enumerate(image.stages)
    )
    return replace(image, stages=stages)


def _reference(reference: str, places: Places) -> str:
    host, slash, path = reference.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", reference if slash else f"library/{reference}"
    for registry, prefix in places.registries:
        if registry == host:
            return f"{prefix}/{path}"
    return reference


def _step(step: Step, places: Places) -> Step:
    if not isinstance(step, Run):
        return step
    commands = [_urls(command, places) for command in step.commands]
    head: list[str] = []
    if places.pip and any(USES_PIP.search(command) for command in commands):
        head.append(f"export PIP_INDEX_URL={words(places.pip)}")
    if places.conda and any(USES_CONDA.search(command) for command in commands):
        head.append(f"export CONDA_CHANNEL_ALIAS={words(places.conda)}")
    first = next((number for number, one in enumerate(commands) if USES_APT.search(one)), None)
    if first is not None and (places.apt or places.fetch) and not places.keep:
        commands = [*commands[:first], _put(places, KEPT), *commands[first:], _taken_back()]
    return replace(step, commands=(*head, *commands))


def _urls(command: str, places: Places) -> str:
    """Return a command that fetches from mirrors; one that writes apt's sources names the usual places."""
    if "/etc/apt/" in command:
        return command
    for usual, mirror in places.fetch:
        command = re.sub(rf"{re.escape(usual)}(?=[/'\"\s]|$)", lambda _: mirror, command)  # noqa: B023
    return command


def _put(places: Places, suffix: str) -> str:
    """Return the command that makes apt's sources point to the mirrors, in both of their styles."""
    rules = [f"s#{pattern}#{places.apt}/{directory}#" for pattern, directory in APT_PLACES if places.apt]
    rules += [f"s#{re.escape(usual)}#{mirror}#" for usual, mirror in places.fetch]
    argv = words("sed", f"--in-place={suffix}" if suffix else "--in-place", *_each(rules))
    return f"{SOURCES} | xargs {argv}"


def _each(rules: list[str]) -> Iterator[str]:
    for rule in rules:
        yield from ("-e", rule)


def _taken_back() -> str:
    return f"""for kept in $(find /etc/apt -name '*{KEPT}'); do mv "$kept" "${{kept%{KEPT}}}"; done"""


def _kept(places: Places) -> Iterator[Run]:
    """Yield the step that makes an image use the mirrors for good."""
    commands = [_put(places, "")] if places.apt or places.fetch else []
    if places.pip:
        commands.append(write("/etc/pip.conf", ["[global]", f"index-url = {places.pip}"]))
    if commands:
        yield Run(commands=tuple(commands), why="This image keeps using the mirrors.")

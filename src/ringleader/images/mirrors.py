"""Mirrors: an image is rewritten so that everything it fetches comes from them, and none is left in it. Pure.

Blocks know nothing of mirrors. What a step fetches is seen in its commands: apt-get, pip, conda, URLs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import urlsplit

from ringleader.images.instructions import Image, Run, Stage, Step, shell, write
from ringleader.images.recipe import Mirrors
from ringleader.images.tables import TableRow, read, rows

PUBLIC = ("docker.io", "nvcr.io", "quay.io", "ghcr.io", "gcr.io", "registry.k8s.io", "public.ecr.aws")
"""Registries from which anybody may pull. Images of other hosts are somebody's own: they are left alone."""
APT_PLACES = {
    "debian": (
        (r"https\?://\(deb\|security\)\.debian\.org/debian-security", "debian-security"),
        (r"https\?://security\.debian\.org/\?\( \|$\)", r"debian-security\1"),
        (r"https\?://\(deb\|httpredir\|ftp\.[a-z.]*\)\.debian\.org/debian\>", "debian"),
    ),
    "ubuntu": (
        (r"https\?://\([a-z.]*archive\|security\)\.ubuntu\.com/ubuntu\>", "ubuntu"),
        (r"https\?://ports\.ubuntu\.com/ubuntu-ports\>", "ubuntu-ports"),
    ),
}
"""Where apt's sources point to (sed's patterns) → directory below a mirror. The first that matches counts."""
SOURCES = ("find", "/etc/apt", "(", "-name", "*.list", "-o", "-name", "*.sources", ")", "-exec")
KEPT = ".usual"
"""Suffix of the sources while a step asks mirrors; apt reads no file that ends so."""
CHANNELS = "https://conda.anaconda.org"
"""Where conda's channels usually are."""
USES_APT = re.compile(r"\bapt(-get)? (-\S+ )*(update|install|source|download)\b")
USES_PIP = re.compile(r"\bpip[0-9.]* (download|install|wheel)\b")
USES_CONDA = re.compile(r"\b(conda|mamba) (create|install|update|env)\b")


@dataclass(frozen=True, kw_only=True)
class Row(TableRow):
    """One mirror of a named set."""

    set: str
    kind: str
    url: str
    of: str = ""
    """Which registry, or the beginning of the URLs, that it stands for."""
    apt: bool = False
    """True: lists of apt may name those URLs."""


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
    """Beginning of URLs → what stands for it."""
    lists: tuple[tuple[str, str], ...] = ()
    """Those of them that apt's lists may name."""
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
        lists=tuple((row.of, row.url) for row in found if row.kind == "fetch" and row.apt),
        keep=mirrors.keep,
    )


def mirrored(image: Image, mirrors: Mirrors, family: str) -> Image:
    """Return an image whose every fetch asks the mirrors. ``family`` is ``debian`` or ``ubuntu``."""
    places = places_of(mirrors)
    rules = tuple(_rules(places, family))
    stages: list[Stage] = []
    for stage in image.stages:
        keeps = places.keep and stage is image.stages[-1]
        kept = tuple(_kept(places, rules)) if keeps else ()
        steps = tuple(_step(step, places, () if keeps else rules) for step in stage.steps)
        own = any(stage.base == earlier.name for earlier in stages)
        base = stage.base if own else _reference(stage.base, places)
        stages.append(replace(stage, base=base, steps=(*kept, *steps)))
    return replace(image, stages=tuple(stages))


def _reference(reference: str, places: Places) -> str:
    host, slash, path = reference.partition("/")
    if not slash or not ("." in host or ":" in host or host == "localhost"):
        host, path = "docker.io", reference if slash else f"library/{reference}"
    for registry, prefix in places.registries:
        if registry == host:
            return f"{prefix}/{path}"
    return reference


def _step(step: Step, places: Places, rules: tuple[str, ...]) -> Step:
    if not isinstance(step, Run):
        return step
    commands = [_urls(command, places) for command in step.commands]
    head: list[str] = []
    if places.pip and any(USES_PIP.search(one) and "--no-index" not in one for one in commands):
        head.append(f"export PIP_INDEX_URL={shell(places.pip)}")
    if places.conda and any(USES_CONDA.search(command) for command in commands):
        head.append(f"export CONDA_CHANNEL_ALIAS={shell(places.conda)}")
        commands.append(_forgotten(places.conda))
    first = next((number for number, one in enumerate(commands) if USES_APT.search(one)), None)
    if first is not None and rules:
        commands = [*commands[:first], _put(rules, KEPT), *commands[first:], _taken_back()]
    return replace(step, commands=(*head, *commands))


def _urls(command: str, places: Places) -> str:
    """Return a command that fetches from mirrors; one that writes apt's sources names the usual places."""
    if "/etc/apt/" in command:
        return command
    for usual, mirror in places.fetch:
        command = mirror.join(re.split(rf"{re.escape(usual)}(?=[/'\"\s]|$)", command))
    return command


def _rules(places: Places, family: str) -> Iterator[str]:
    """Yield sed's rules that make apt's sources point to the mirrors, in both of their styles."""
    if places.apt:
        for pattern, directory in APT_PLACES.get(family, ()):
            yield f"s#{pattern}#{places.apt}/{directory}#"
    for usual, mirror in places.lists:
        yield f"s#{_literal(usual)}#{mirror}#"


def _literal(url: str) -> str:
    """Return a URL as a pattern of sed; Python's own escapes would make ``+`` mean something there."""
    return re.sub(r"[][.*^$\\]", r"\\\g<0>", url)


def _put(rules: tuple[str, ...], suffix: str) -> str:
    edit = (
        "sed",
        f"--in-place={suffix}" if suffix else "--in-place",
        *(f"--expression={rule}" for rule in rules),
    )
    return shell(*SOURCES, *edit, "{}", "+")


def _taken_back() -> str:
    back = f'for kept do mv "$kept" "${{kept%{KEPT}}}" || exit 1; done'
    return shell("find", "/etc/apt", "-name", f"*{KEPT}", "-exec", "sh", "-c", back, "sh", "{}", "+")


def _forgotten(conda: str) -> str:
    """Return the command after which conda's notes on packages name the usual channels."""
    edit = ("sed", "--in-place", f"s#{_literal(conda)}/#{CHANNELS}/#g")
    return shell("find", "/opt", "-path", "*/conda-meta/*", "-type", "f", "-exec", *edit, "{}", "+")


def _kept(places: Places, rules: tuple[str, ...]) -> Iterator[Run]:
    """Yield the step that makes an image use the mirrors for good."""
    commands = [_put(rules, "")] if rules else []
    if places.pip:
        commands.append(write("/etc/pip.conf", ["[global]", f"index-url = {places.pip}"]))
    if places.conda:
        commands.append(write("/etc/condarc", [f"channel_alias: {places.conda}"]))
    if commands:
        yield Run(commands=tuple(commands), why="This image keeps using the mirrors.")


def without_credentials(url: str) -> str:
    """Return a URL without user and password."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl() if parts.netloc else url

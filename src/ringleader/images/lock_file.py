"""A recipe's Python packages, all of them, each with version and hash: what pip is asked, and the lock file.

pip itself decides (``--dry-run --report``): nothing is installed, and the file is right for the recipe's
Python and base alone. A framework with an index of its own comes from that index alone, the rest from the
default one: no package of one can replace another's. Addresses that our own pip is configured with never
reach the file, nor do credentials.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

from ringleader.agents import parent_death, temporary_directory
from ringleader.errors import Fault, RefusedError, RequestError, refuse
from ringleader.images.blocks import steps_of
from ringleader.images.image_assembly import context_of
from ringleader.images.mirrors import places_of, without_credentials
from ringleader.images.processes import answer
from ringleader.images.recipe import Recipe

PYPI = "https://files.pythonhosted.org/"
LEAST_GLIBC = 17
"""Of 2.17: the oldest that manylinux's wheels of today are made for."""
MACHINES = {"": "x86_64", "amd64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
"""Machines as container platforms name them → as wheels do."""
LAST_LINES = 6
PAGE, VERSIONS = "page.html", "versions.txt"
"""What the indexes of frameworks gave, for the question about the rest: links, and the exact versions."""
Items = Sequence[Mapping[str, Any]]
"""Packages as pip's report has them."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What pip is asked."""

    recipe: Recipe
    machine: str
    """``x86_64``."""
    python: str
    """``3.11``."""
    glibc: str
    placed: Mapping[str, tuple[str, ...]]
    """URL of an index → what comes from it alone; empty: the default index."""
    wheels: tuple[str, ...]
    """Directories of the recipe; where there are any, no index is asked."""

    @property
    def indexes(self) -> tuple[str, ...]:
        """The indexes besides the default one."""
        return tuple(index for index in self.placed if index)

    @property
    def own(self) -> frozenset[str]:
        """Names of what must come from those indexes."""
        wanted = chain.from_iterable(self.placed[index] for index in self.indexes)
        return frozenset(_normal(re.split(r"[^\w.-]", one)[0]) for one in wanted)

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platforms whose wheels run in the image, the newest first."""
        newest = int(self.glibc.partition(".")[2] or LEAST_GLIBC)
        many = [f"manylinux_2_{minor}_{self.machine}" for minor in range(newest, LEAST_GLIBC - 1, -1)]
        return (*many, f"manylinux2014_{self.machine}", f"linux_{self.machine}")


def question(recipe: Recipe, *, platform: str = "") -> Question:
    """Return what pip is to be asked about a recipe; RequestError for a platform that is unknown."""
    machine = MACHINES.get(platform.rpartition("/")[2])
    if machine is None:
        hint = "use linux/amd64 or linux/arm64"
        raise RequestError(f"{platform!r} is unknown", where="--platform", hint=hint)
    blocks = dict(recipe.blocks)
    if getattr(blocks.get("packages"), "lock", ""):
        blocks["packages"] = replace(blocks["packages"], lock="")
    context = context_of(replace(recipe, blocks=blocks), machine)
    installs = [one for block in steps_of(context) for one in (*block.build.pip, *block.runtime.pip)]
    placed: dict[str, set[str]] = defaultdict(set)
    for one in installs:  # wheels of the build context, such as our own, cannot be locked
        placed[one.index] |= {wanted for wanted in one.requirements if not wanted.startswith("/")}
    return Question(
        recipe=recipe,
        machine=machine,
        python=context.python_version,
        glibc=context.base.glibc,
        placed={index: tuple(sorted(placed[index])) for index in sorted(placed)},
        wheels=tuple(sorted({one.find_links for one in installs if one.find_links})),
    )


def argv(
    asked: Question, *, python: str, target: str, directory: str, index: str = "", found: str = ""
) -> tuple[str, ...]:
    """Return pip's command line. ``target``: an empty directory; ``directory``: the recipe's.

    ``index``: only its own packages are asked for, of it alone. ``found``: a directory with what such
    questions gave, for the last one, about all packages.
    """
    places = places_of(asked.recipe.mirrors)
    words = [python, "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--no-input"]
    words += ["--disable-pip-version-check", "--retries", "2", "--report", "-", "--target", target]
    words += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", asked.python]
    words += [word for platform in asked.platforms for word in ("--platform", platform)]
    if asked.wheels:
        links = (("--find-links", f"{directory}/{wheels}") for wheels in asked.wheels)
        words += ["--no-index", *(word for link in links for word in link)]
    elif url := _exchanged(index, places.fetch) if index else places.pip:
        words += ["--index-url", url]
    if found:
        words += ["--find-links", f"{found}/{PAGE}", "--constraint", f"{found}/{VERSIONS}"]
    return (*words, *(asked.placed[index] if index else chain.from_iterable(asked.placed.values())))


def _exchanged(url: str, places: Sequence[tuple[str, str]]) -> str:
    for before, after in places:
        if url == before or url.startswith(f"{before}/"):
            return after + url[len(before) :]
    return url


def ask(
    asked: Question, *, environ: Mapping[str, str], directory: Path, seconds: float
) -> tuple[Items, Items]:
    """Return the packages of the frameworks' indexes, and all others.

    RefusedError with pip's own words where it finds no set or has no time left.
    """
    end = time.monotonic() + seconds
    try:
        with temporary_directory.directory("lock") as made:
            # pip's own temporary directories too: a pip that is killed removes none of them.
            target, temporary = made / "target", made / "tmp"
            for place in (target, temporary):
                place.mkdir()
            ours = {**environ, "TMPDIR": str(temporary)}

            def items(index: str = "", found: str = "") -> Items:
                places = {"target": str(target), "directory": str(directory)}
                words = argv(asked, python=sys.executable, **places, index=index, found=found)
                said = answer(
                    parent_death.argv(words, seconds=1.0), environ=ours, seconds=end - time.monotonic()
                )
                if said.code is None:
                    what = f"did not end within {seconds:g} s"
                    raise RefusedError(what, where="pip", hint="--timeout gives it longer")
                return _items(said.out if said.code == 0 else "", said.err or said.out)

            placed = [one for index in asked.indexes for one in items(index)]
            if not placed:
                return [], items()
            links = (_link(one) for one in placed)
            (made / PAGE).write_text("".join(f'<a href="{escape(one)}">{one}</a>\n' for one in links))

            def every(fixed: Items) -> Items:
                (made / VERSIONS).write_text("".join(f"{_pin(one)}\n" for one in fixed))
                return items(found=str(made))

            try:
                found = every(placed)
            except RefusedError:
                own = [one for one in placed if _name(one) in asked.own]
                if own == placed or time.monotonic() > end:
                    raise
                # What a framework needs besides may be newer than its index has.
                found = every(own)
            pins = {_pin(one) for one in found}
            placed = [one for one in placed if _pin(one) in pins]
            pins = {_pin(one) for one in placed}
            return placed, [one for one in found if _pin(one) not in pins]
    except OSError as error:
        hint = "TMPDIR names another place for temporary files"
        what = f"there is no place for pip's files: {error}"
        raise RefusedError(what, where=tempfile.gettempdir(), hint=hint) from None


def _items(report: str, words: str) -> Items:
    try:
        found = json.loads(report)["install"]
    except (ValueError, KeyError, TypeError):
        lines = [line.split() for line in words.splitlines() if line.strip()][-LAST_LINES:]
        shown = (" ".join(map(without_credentials, line)) for line in lines)
        what = "\n    ".join(["it finds no packages that fit:", *shown])
        raise RefusedError(what, where="pip") from None
    return list(found)


def _name(item: Mapping[str, Any]) -> str:
    return _normal(str(item["metadata"]["name"]))


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _version(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["version"])


def _pin(item: Mapping[str, Any]) -> str:
    return f"{_name(item)}=={_version(item)}"


def _sha256(item: Mapping[str, Any]) -> str:
    found = item.get("download_info", {}).get("archive_info", {})
    sha256 = str((found.get("hashes") or {}).get("sha256", ""))
    return sha256 if re.fullmatch(r"[0-9a-f]{64}", sha256) else ""


def _link(item: Mapping[str, Any]) -> str:
    return f"{item['download_info']['url']}#sha256={_sha256(item)}"


def text(asked: Question, placed: Items, others: Items) -> str:
    """Return the file's text from pip's reports; RefusedError where pip gives no hash for a package.

    What comes from a framework's own index is named by its address, so that pip asks no second index.
    """
    lines = [
        f"# Written by `ringleader image lock` for {asked.recipe.name}: change the recipe, not this file.",
        f"# {asked.recipe.digest}, Python {asked.python}, glibc {asked.glibc}, {asked.machine}",
    ]
    faults, found = [], []
    usual = [(mirror, place) for place, mirror in places_of(asked.recipe.mirrors).fetch]
    for item in (*placed, *others):
        name, version, sha256 = _name(item), _version(item), _sha256(item)
        pin, url = _pin(item), str(item["download_info"]["url"])
        if item in placed and not url.startswith(PYPI):
            pin = f"{name} @ {without_credentials(_exchanged(url, usual))}"
        elif item in placed and name in asked.own:
            what = f"{name} {version} would come from PyPI, not from its index: that has no wheel that fits"
            faults.append(Fault(where="pip", what=what, hint="another version, variant or Python"))
        if not sha256:
            what = f"{name} {version} has no hash: the index gives none"
            faults.append(Fault(where="pip", what=what, hint="use an index that lists hashes"))
        found.append(f"{pin} --hash=sha256:{sha256}")
    refuse(faults, RefusedError)
    return "".join(f"{line}\n" for line in [*lines, *sorted(found)])

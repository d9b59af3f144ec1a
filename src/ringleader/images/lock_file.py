"""A recipe's Python packages, all of them, each with version and hash: what is asked, and the file. Pure.

pip itself decides (``--dry-run --report``): nothing is installed, and the file is right for the recipe's
Python and base alone. Addresses that our own pip is configured with never reach the file, nor do credentials.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.images.blocks import steps_of
from ringleader.images.image_assembly import context_of
from ringleader.images.image_record import digest
from ringleader.images.mirrors import places_of
from ringleader.images.recipe import Recipe
from ringleader.images.stage_steps import PipInstall

PYPI = "https://files.pythonhosted.org/"
LEAST_GLIBC = 17
"""Of 2.17: the oldest that manylinux's wheels of today are made for."""
MACHINES = {"": "x86_64", "amd64": "x86_64", "arm64": "aarch64", "aarch64": "aarch64"}
"""Machines as container platforms name them → as wheels do."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What pip is asked."""

    requirements: tuple[str, ...]
    indexes: tuple[str, ...]
    """URLs besides the default index."""
    mirrors: tuple[tuple[str, str], ...]
    """Usual URL → mirror, for this question only."""
    index: str
    """A mirror of the default index; empty: what pip is configured for."""
    placed: tuple[tuple[str, str], ...]
    """Package → the URL of the index that it must come from."""
    wheels: tuple[str, ...]
    """Directories of the recipe; where there are any, no index is asked."""
    python: str
    """``3.11``."""
    glibc: str
    machine: str
    """``x86_64``."""
    recipe: str
    """Digest of the recipe."""
    name: str

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platforms whose wheels run in the image, the newest first."""
        newest = int(self.glibc.partition(".")[2] or LEAST_GLIBC)
        many = [f"manylinux_2_{minor}_{self.machine}" for minor in range(newest, LEAST_GLIBC - 1, -1)]
        return (*many, f"manylinux2014_{self.machine}", f"linux_{self.machine}")


def question(recipe: Recipe, *, platform: str = "") -> Question:
    """Return what pip is to be asked about a recipe; RequestError where a lock means nothing there."""
    machine = MACHINES.get(platform.rpartition("/")[2])
    faults = []
    if machine is None:
        what = f"{platform!r} is unknown"
        faults.append(Fault(where="--platform", what=what, hint="use linux/amd64 or linux/arm64"))
    if recipe.historical:
        what = "its packages are built from source with the tools of then; pip finds no wheels for them"
        faults.append(Fault(where=recipe.name, what=f"a historical recipe is not locked: {what}"))
    if faults:
        raise RequestError(faults)
    blocks = dict(recipe.blocks)
    if getattr(blocks.get("packages"), "lock", ""):
        blocks["packages"] = replace(blocks["packages"], lock="")
    unlocked = replace(recipe, blocks=blocks)
    context = context_of(unlocked)
    installs = [one for block in steps_of(context) for one in (*block.build.pip, *block.runtime.pip)]
    places = places_of(recipe.mirrors)
    return Question(
        requirements=requirements_of(installs),
        indexes=tuple(sorted({one.index for one in installs if one.index})),
        mirrors=places.fetch,
        index=places.pip,
        placed=tuple(
            (requirement.partition("==")[0], one.index)
            for one in installs
            for requirement in one.requirements
            if one.index
        ),
        wheels=tuple(sorted({one.find_links for one in installs if one.find_links})),
        python=context.python_version,
        glibc=context.base.glibc,
        machine=machine or "",
        recipe=digest(recipe),
        name=recipe.name,
    )


def requirements_of(installs: Iterable[PipInstall]) -> tuple[str, ...]:
    """Return every requirement once; wheels of the build context, such as our own, cannot be locked."""
    every = {requirement for one in installs for requirement in one.requirements}
    return tuple(sorted(requirement for requirement in every if not requirement.startswith("/")))


def argv(asked: Question, *, python: str, target: str, directory: str) -> tuple[str, ...]:
    """Return pip's command line. ``target``: an empty directory; ``directory``: the recipe's."""
    words = [python, "-P", "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--no-input"]
    words += ["--disable-pip-version-check", "--retries", "2", "--report", "-", "--target", target]
    words += ["--only-binary", ":all:", "--implementation", "cp", "--python-version", asked.python]
    for platform in asked.platforms:
        words += ["--platform", platform]
    if asked.wheels:
        words.append("--no-index")
        for wheels in asked.wheels:
            words += ["--find-links", f"{directory}/{wheels}"]
    else:
        words += ["--index-url", asked.index] if asked.index else []
        for index in asked.indexes:
            words += ["--extra-index-url", _mirrored(index, asked.mirrors)]
    return (*words, *asked.requirements)


def _mirrored(url: str, mirrors: tuple[tuple[str, str], ...]) -> str:
    for usual, mirror in mirrors:
        if url == usual or url.startswith(f"{usual}/"):
            return mirror + url[len(usual) :]
    return url


def text(asked: Question, report: Mapping[str, Any]) -> str:
    """Return the file's text from pip's report; RefusedError where pip gives no hash for a package."""
    lines = [
        f"# Written by `ringleader image lock` for {asked.name}: change the recipe, not this file.",
        f"# {asked.recipe}, Python {asked.python}, glibc {asked.glibc}, {asked.machine}",
        *(f"--extra-index-url {index}" for index in asked.indexes if not asked.wheels),
    ]
    faults, found = [], []
    for item in report.get("install", ()):
        name = re.sub(r"[-_.]+", "-", str(item["metadata"]["name"])).lower()
        version = str(item["metadata"]["version"])
        info = item.get("download_info", {})
        place = dict(asked.placed).get(name, "")
        if place and str(info.get("url")).startswith(PYPI):
            what = f"{name} {version} would come from PyPI, not from {place}: it has no wheel that fits"
            faults.append(Fault(where="pip", what=what, hint="another version, variant or Python"))
        info = info.get("archive_info", {})
        sha256 = (info.get("hashes") or {}).get("sha256", "")
        if not re.fullmatch(r"[0-9a-f]{64}", sha256):
            what = f"{name} {version} has no hash: the index gives none"
            faults.append(Fault(where="pip", what=what, hint="use an index that lists hashes"))
        found.append(f"{name}=={version} --hash=sha256:{sha256}")
    if faults:
        raise RefusedError(faults)
    return "".join(f"{line}\n" for line in [*lines, *sorted(found)])

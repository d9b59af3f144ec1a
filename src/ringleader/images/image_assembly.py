"""A recipe becomes an image: its blocks' halves in order, hardened as today's images are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from ringleader import __version__
from ringleader.images import image_record
from ringleader.images.base_image import base_of
from ringleader.images.blocks import KINDS
from ringleader.images.blocks.historical import selftest
from ringleader.images.instructions import (
    Command,
    Copy,
    Entrypoint,
    Expose,
    Image,
    Label,
    Run,
    Stage,
    Step,
    User,
    Workdir,
    words,
)
from ringleader.images.mirrors import mirrored
from ringleader.images.recipe import Recipe
from ringleader.images.stage_steps import BUILD, VENV, Half, Halves, PipInstall, Setting
from ringleader.images.tables.bases import find_cuda_image

ENDINGS = (Expose, Workdir, User, Entrypoint, Command)
"""What an image ends with, in this order; the last step of each kind counts."""
SBOM = "/usr/share/doc/ringleader/sbom.cdx.json"
"""Where an image lists what is in it (CycloneDX)."""
OCI = "org.opencontainers.image"
WHEELS = "/tmp/wheels"


def image(recipe: Recipe) -> Image:
    """Return the image that a recipe describes."""
    setting = setting_of(recipe)
    halves = [kind.halves(recipe.blocks[kind.name], setting) for kind in KINDS if kind.name in recipe.blocks]
    stages = []
    build = _stage_steps([one.build for one in halves], setting)
    if build:
        stages.append(Stage(name=BUILD, base=recipe.build_base or recipe.base, steps=build))
    steps = _final(recipe, halves, setting)
    stages.append(Stage(name="image", base=recipe.base, steps=steps))
    made = Image(
        name=recipe.name,
        about=recipe.about,
        stages=tuple(stages),
        context=tuple(_context(stages)),
        test=_test(setting),
    )
    return mirrored(made, recipe.mirrors, setting.base.family)


def setting_of(recipe: Recipe) -> Setting:
    """Return what the blocks of a recipe may know of their image."""
    return Setting(
        base=base_of(recipe),
        blocks=recipe.blocks,
        historical=recipe.historical,
        python=_python(recipe),
        cuda=_cuda(recipe),
    )


def _python(recipe: Recipe) -> str:
    if not recipe.historical:
        return f"{VENV}/bin/python"
    block = recipe.blocks.get("python")
    if block is not None and block.source == "conda":
        return "/opt/conda/bin/python"
    version = ".".join(block.version.split(".")[:2]) if block is not None else ""
    return f"/usr/bin/python{version or '3'}"


def _cuda(recipe: Recipe) -> str:
    block = recipe.blocks.get("cuda")
    found = find_cuda_image(recipe.base)
    return str(block.version) if block is not None else found.version if found is not None else ""


def _final(recipe: Recipe, halves: Sequence[Halves], setting: Setting) -> tuple[Step, ...]:
    steps = _stage_steps([one.runtime for one in halves], setting)
    body: list[Step] = [step for step in steps if not isinstance(step, ENDINGS)]
    if "ringleader" in recipe.blocks:
        body.append(image_record.step(recipe))
        if not recipe.historical:
            body.append(_sbom(setting))
    body.append(Label(labels=tuple(_labels(recipe))))
    for kind in ENDINGS:
        body += [step for step in steps if isinstance(step, kind)][-1:]
    return tuple(body)


def _stage_steps(halves: Sequence[Half], setting: Setting) -> tuple[Step, ...]:
    steps = [step for half in halves for step in half.before]
    apt = sorted({package for half in halves for package in half.apt})
    if apt:
        options = {option: None for half in halves for option in half.apt_options}
        steps.append(_apt(apt, tuple(options)))
    steps += [step for half in halves for step in half.steps]
    steps += _pip([one for half in halves for one in half.pip], setting)
    return tuple(steps + [step for half in halves for step in half.last])


def _apt(packages: Sequence[str], options: Sequence[str]) -> Run:
    install = ("apt-get", "install", "--yes", "--no-install-recommends", *options, *packages)
    return Run(
        commands=(
            "apt-get update",
            f"DEBIAN_FRONTEND=noninteractive {words(*install)}",
            "apt-get clean",
            "rm -rf /var/lib/apt/lists/*",
        )
    )


def _pip(installs: Iterable[PipInstall], setting: Setting) -> Iterator[Step]:
    """Yield one call for the installs that agree in everything but their packages."""
    ordered = sorted(installs, key=_call)
    directories = list(dict.fromkeys(one.find_links for one in ordered if one.find_links))
    places = {directory: f"{WHEELS}/{number}" for number, directory in enumerate(directories)}
    yield from (Copy(sources=(directory,), target=f"{place}/") for directory, place in places.items())
    for (_, index, find_links, options, env), group in groupby(ordered, key=_call):
        wanted = tuple(dict.fromkeys(requirement for one in group for requirement in one.requirements))
        argv = [setting.python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        argv += ["--index-url", index] if index else []
        argv += ["--no-index", "--find-links", places[find_links]] if find_links else []
        call = words(*argv, *options, *wanted)
        yield Run(commands=(" ".join([*(f"{name}={words(value)}" for name, value in env), call]),))
    if places:
        yield Run(commands=(words("rm", "-rf", WHEELS),))


def _call(one: PipInstall) -> tuple[int, str, str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    return one.order, one.index, one.find_links, one.options, one.env


def _test(setting: Setting) -> tuple[str, ...]:
    """Return the self-test's argv. Historical images have a program of their own."""
    if setting.historical:
        return (selftest.PLACE,)
    return _doctor(setting) if "ringleader" in setting.blocks else ()


def _doctor(setting: Setting) -> tuple[str, ...]:
    return (setting.python.rpartition("/")[0] + "/ringleader", "doctor", "--image")


def _sbom(setting: Setting) -> Run:
    return Run(
        commands=(
            words("mkdir", "-p", SBOM.rpartition("/")[0]),
            words(*_doctor(setting)[:-1], "--sbom", SBOM),
        ),
        why="What is in this image, for those who look for known faults.",
    )


def _labels(recipe: Recipe) -> Iterator[tuple[str, str]]:
    """Yield where the image comes from; a recipe's own labels win. A base's own would stand otherwise."""
    digest = image_record.digest(recipe)
    name, _, base_digest = recipe.base.partition("@")
    found = {
        f"{OCI}.title": recipe.name,
        f"{OCI}.description": recipe.about,
        f"{OCI}.version": digest.removeprefix("sha256:")[:12],
        f"{OCI}.ref.name": recipe.name,
        f"{OCI}.base.name": name,
        f"{OCI}.base.digest": base_digest,
        "ringleader.recipe": digest,
        "ringleader.version": __version__,
    }
    yield from (
        (key, value)
        for key, value in {
            **{key: value for key, value in found.items() if value},
            **dict(recipe.labels),
        }.items()
    )


def _context(stages: Iterable[Stage]) -> Iterator[str]:
    """Yield every file or directory of the build context once."""
    seen: dict[str, Any] = {}
    for stage in stages:
        for step in stage.steps:
            if isinstance(step, Copy) and not step.stage:
                seen.update(dict.fromkeys(step.sources))
    yield from seen

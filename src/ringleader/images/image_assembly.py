"""A recipe becomes an image: its blocks' steps in order, hardened as today's images are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from ringleader import __version__
from ringleader.errors import RequestError
from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.blocks import steps_of
from ringleader.images.blocks.block import BUILD, PYTHON, VENV, ImageContext, PipInstall, StageSteps
from ringleader.images.instructions import (
    Command,
    Copy,
    Expose,
    Image,
    Label,
    Run,
    Stage,
    Step,
    User,
    Workdir,
    shell,
)
from ringleader.images.mirrors import mirrored
from ringleader.images.recipe import Recipe, recorded

ENDINGS = (Expose, Workdir, User, Command)
"""What an image ends with, in this order; the last step of each kind counts."""
DOCTOR = (f"{VENV}/bin/ringleader", "doctor", "--image")
"""The self-test of an image that has Ringleader."""
SBOM = "/usr/share/doc/ringleader/sbom.cdx.json"
"""Where an image lists what is in it (CycloneDX)."""
OCI = "org.opencontainers.image"
WHEELS = "/tmp/wheels"


def image(recipe: Recipe, machine: str = "x86_64") -> Image:
    """Return the image that a recipe describes; RequestError where there is none for the machine."""
    context = context_of(recipe, machine)
    if machine != "x86_64" and getattr(recipe.blocks.get("rdma"), "user_space", "") == "erdma":
        what = f"packages of rdma.user-space erdma are for linux/amd64 only, not for {machine}"
        raise RequestError(what, where=recipe.name)
    blocks = steps_of(context)
    stages = []
    build = _stage_steps([one.build for one in blocks])
    if build:
        stages.append(Stage(name=BUILD, base=recipe.build_base or recipe.base, steps=build))
    steps = _final(recipe, _stage_steps([one.runtime for one in blocks]))
    stages.append(Stage(name="image", base=recipe.base, steps=steps))
    copies = (step for stage in stages for step in stage.steps if isinstance(step, Copy))
    made = Image(
        name=recipe.name,
        about=recipe.about,
        stages=tuple(stages),
        context=tuple(dict.fromkeys(source for copy in copies if not copy.stage for source in copy.sources)),
        test=DOCTOR if "ringleader" in recipe.blocks else (),
    )
    return mirrored(made, recipe.mirrors, context.base.family)


def context_of(recipe: Recipe, machine: str = "x86_64") -> ImageContext:
    """Return what the blocks of a recipe may know of their image."""
    base = find_base(recipe.base_like or recipe.base)
    assert base is not None, "a recipe that was read has a known base"
    block, found = recipe.blocks.get("cuda"), find_cuda_image(recipe.base)
    cuda = str(block.version) if block is not None else found.version if found is not None else ""
    return ImageContext(base=base, blocks=recipe.blocks, machine=machine, cuda=cuda)


def _final(recipe: Recipe, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    body: list[Step] = [step for step in steps if not isinstance(step, ENDINGS)]
    if "ringleader" in recipe.blocks:
        listed = (shell("mkdir", "-p", SBOM.rpartition("/")[0]), shell(*DOCTOR[:-1], "--sbom", SBOM))
        why = "What is in this image, for those who look for known faults."
        body += [recorded(recipe), Run(commands=listed, why=why)]
    body.append(Label(labels=tuple(_labels(recipe))))
    for kind in ENDINGS:
        body += [step for step in steps if isinstance(step, kind)][-1:]
    return tuple(body)


def _stage_steps(blocks: Sequence[StageSteps]) -> tuple[Step, ...]:
    steps = [step for stage in blocks for step in stage.before]
    apt = sorted({package for stage in blocks for package in stage.apt})
    if apt:
        options = dict.fromkeys(option for stage in blocks for option in stage.apt_options)
        install = ("apt-get", "install", "--yes", "--no-install-recommends", *options, *apt)
        commands = ("apt-get update", f"DEBIAN_FRONTEND=noninteractive {shell(*install)}")
        steps.append(Run(commands=(*commands, "apt-get clean", "rm -rf /var/lib/apt/lists/*")))
    steps += [step for stage in blocks for step in stage.steps]
    steps += _pip([one for stage in blocks for one in stage.pip])
    return tuple(steps + [step for stage in blocks for step in stage.last])


def _pip(installs: Iterable[PipInstall]) -> Iterator[Step]:
    """Yield one call for the installs that agree in everything but their packages."""
    ordered = sorted(installs, key=_call)
    directories = list(dict.fromkeys(one.find_links for one in ordered if one.find_links))
    places = {directory: f"{WHEELS}/{number}" for number, directory in enumerate(directories)}
    yield from (Copy(sources=(directory,), target=f"{place}/") for directory, place in places.items())
    for (_, index, find_links, options, env), group in groupby(ordered, key=_call):
        wanted = tuple(dict.fromkeys(requirement for one in group for requirement in one.requirements))
        argv = [PYTHON, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        argv += ["--index-url", index] if index else []
        argv += ["--no-index", "--find-links", places[find_links]] if find_links else []
        call = shell(*argv, *options, *wanted)
        yield Run(commands=(" ".join([*(f"{name}={shell(value)}" for name, value in env), call]),))
    if places:
        yield Run(commands=(shell("rm", "-rf", WHEELS),))


def _call(one: PipInstall) -> tuple[int, str, str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    return one.order, one.index, one.find_links, one.options, one.env


def _labels(recipe: Recipe) -> Iterable[tuple[str, str]]:
    """Return where the image comes from; a recipe's own labels win. A base's own would stand otherwise."""
    name, _, base_digest = recipe.base.partition("@")
    found = {
        f"{OCI}.title": recipe.name,
        f"{OCI}.description": recipe.about,
        f"{OCI}.version": recipe.digest.removeprefix("sha256:")[:12],
        f"{OCI}.ref.name": recipe.name,
        f"{OCI}.base.name": name,
        f"{OCI}.base.digest": base_digest,
        "ringleader.recipe": recipe.digest,
        "ringleader.version": __version__,
    }
    return ({name: value for name, value in found.items() if value} | dict(recipe.labels)).items()

"""A recipe becomes an image: its blocks' blocks in order, hardened as today's images are. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby

from ringleader import __version__
from ringleader.errors import Fault, RequestError
from ringleader.images import image_record
from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.blocks import historical_selftest, steps_of
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
    shell,
)
from ringleader.images.mirrors import mirrored
from ringleader.images.recipe import Recipe
from ringleader.images.stage_steps import BUILD, VENV, BlockSteps, ImageContext, PipInstall, StageSteps

ENDINGS = (Expose, Workdir, User, Entrypoint, Command)
"""What an image ends with, in this order; the last step of each kind counts."""
SBOM = "/usr/share/doc/ringleader/sbom.cdx.json"
"""Where an image lists what is in it (CycloneDX)."""
OCI = "org.opencontainers.image"
WHEELS = "/tmp/wheels"


def image(recipe: Recipe, machine: str = "x86_64") -> Image:
    """Return the image that a recipe describes; RequestError where there is none for the machine."""
    context = replace(context_of(recipe), machine=machine)
    if machine != "x86_64" and (recipe.historical or _user_space(recipe) == "erdma"):
        what = "a historical image is" if recipe.historical else "packages of rdma.user-space erdma are"
        raise RequestError(Fault(where=recipe.name, what=f"{what} for linux/amd64 only, not for {machine}"))
    blocks = steps_of(context)
    stages = []
    build = _stage_steps([one.build for one in blocks], context)
    if build:
        stages.append(Stage(name=BUILD, base=recipe.build_base or recipe.base, steps=build))
    steps = _final(recipe, blocks, context)
    stages.append(Stage(name="image", base=recipe.base, steps=steps))
    made = Image(
        name=recipe.name,
        about=recipe.about,
        stages=tuple(stages),
        context=_context(stages),
        test=_test(context),
    )
    return mirrored(made, recipe.mirrors, context.base.family)


def _user_space(recipe: Recipe) -> str:
    return str(getattr(recipe.blocks.get("rdma"), "user_space", ""))


def context_of(recipe: Recipe) -> ImageContext:
    """Return what the blocks of a recipe may know of their image."""
    base = find_base(recipe.base_like or recipe.base)
    assert base is not None, "a recipe that was read has a known base"
    return ImageContext(
        base=base,
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


def _final(recipe: Recipe, blocks: Sequence[BlockSteps], context: ImageContext) -> tuple[Step, ...]:
    steps = _stage_steps([one.runtime for one in blocks], context)
    body: list[Step] = [step for step in steps if not isinstance(step, ENDINGS)]
    if "ringleader" in recipe.blocks:
        body.append(image_record.step(recipe))
        if not recipe.historical:
            body.append(_sbom(context))
    body.append(Label(labels=tuple(_labels(recipe))))
    for kind in ENDINGS:
        body += [step for step in steps if isinstance(step, kind)][-1:]
    return tuple(body)


def _stage_steps(blocks: Sequence[StageSteps], context: ImageContext) -> tuple[Step, ...]:
    steps = [step for stage in blocks for step in stage.before]
    apt = sorted({package for stage in blocks for package in stage.apt})
    if apt:
        options = {option: None for stage in blocks for option in stage.apt_options}
        steps.append(_apt(apt, tuple(options)))
    steps += [step for stage in blocks for step in stage.steps]
    steps += _pip([one for stage in blocks for one in stage.pip], context)
    return tuple(steps + [step for stage in blocks for step in stage.last])


def _apt(packages: Sequence[str], options: Sequence[str]) -> Run:
    install = ("apt-get", "install", "--yes", "--no-install-recommends", *options, *packages)
    return Run(
        commands=(
            "apt-get update",
            f"DEBIAN_FRONTEND=noninteractive {shell(*install)}",
            "apt-get clean",
            "rm -rf /var/lib/apt/lists/*",
        )
    )


def _pip(installs: Iterable[PipInstall], context: ImageContext) -> Iterator[Step]:
    """Yield one call for the installs that agree in everything but their packages."""
    ordered = sorted(installs, key=_call)
    directories = list(dict.fromkeys(one.find_links for one in ordered if one.find_links))
    places = {directory: f"{WHEELS}/{number}" for number, directory in enumerate(directories)}
    yield from (Copy(sources=(directory,), target=f"{place}/") for directory, place in places.items())
    for (_, index, find_links, options, env), group in groupby(ordered, key=_call):
        wanted = tuple(dict.fromkeys(requirement for one in group for requirement in one.requirements))
        argv = [context.python, "-m", "pip", "install", "--no-cache-dir", "--disable-pip-version-check"]
        argv += ["--index-url", index] if index else []
        argv += ["--no-index", "--find-links", places[find_links]] if find_links else []
        call = shell(*argv, *options, *wanted)
        yield Run(commands=(" ".join([*(f"{name}={shell(value)}" for name, value in env), call]),))
    if places:
        yield Run(commands=(shell("rm", "-rf", WHEELS),))


def _call(one: PipInstall) -> tuple[int, str, str, tuple[str, ...], tuple[tuple[str, str], ...]]:
    return one.order, one.index, one.find_links, one.options, one.env


def _test(context: ImageContext) -> tuple[str, ...]:
    """Return the self-test's argv. Historical images have a program of their own."""
    if context.historical:
        return (historical_selftest.PLACE,)
    return _doctor(context) if "ringleader" in context.blocks else ()


def _doctor(context: ImageContext) -> tuple[str, ...]:
    return (context.python.rpartition("/")[0] + "/ringleader", "doctor", "--image")


def _sbom(context: ImageContext) -> Run:
    return Run(
        commands=(
            shell("mkdir", "-p", SBOM.rpartition("/")[0]),
            shell(*_doctor(context)[:-1], "--sbom", SBOM),
        ),
        why="What is in this image, for those who look for known faults.",
    )


def _labels(recipe: Recipe) -> Iterable[tuple[str, str]]:
    """Return where the image comes from; a recipe's own labels win. A base's own would stand otherwise."""
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
    return ({name: value for name, value in found.items() if value} | dict(recipe.labels)).items()


def _context(stages: Iterable[Stage]) -> tuple[str, ...]:
    """Return every file or directory of the build context once."""
    copies = (step for stage in stages for step in stage.steps if isinstance(step, Copy))
    return tuple(dict.fromkeys(source for copy in copies if not copy.stage for source in copy.sources))

"""The block ``packages``: what a user's script needs besides."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import historical
from ringleader.images.blocks.pip_installs import install
from ringleader.images.instructions import Copy, Step
from ringleader.images.recipe_fields import APT, CONTEXT_PATH, NAME, REQUIREMENT, text, texts
from ringleader.images.stage_steps import Half, Halves, PipInstall, Setting

LOCK = "/opt/build/requirements.lock"
"""Where the lock file lies while pip reads it."""


@dataclass(frozen=True, kw_only=True)
class Packages:
    """Arguments of the block."""

    apt: tuple[str, ...] = texts(APT)
    build_apt: tuple[str, ...] = texts(APT)
    """Only for the build half: compilers and headers that packages of pip need."""
    pip: tuple[str, ...] = texts(REQUIREMENT)
    conda: tuple[str, ...] = texts(NAME)
    """Only where ``python.source`` is ``conda``."""
    lock: str = text(CONTEXT_PATH)
    """Requirements with hashes (``ringleader image lock``): pip installs exactly these and nothing else."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context with all wheels that the image needs; no index is asked then."""


def halves(block: Packages, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.packages(block, setting)
    pip: tuple[PipInstall, ...] = ()
    steps: tuple[Step, ...] = ()
    if block.lock:
        steps = (Copy(sources=(block.lock,), target=LOCK),)
        options = ("--require-hashes", "--no-deps", "--requirement", LOCK)
        pip = (PipInstall(requirements=(), options=options, find_links=block.wheels, order=10),)
    elif block.pip:
        pip = install(setting, *block.pip, order=90)
    return Halves(build=Half(apt=block.build_apt, steps=steps, pip=pip), runtime=Half(apt=block.apt))

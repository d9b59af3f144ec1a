"""The system's Python, and the last pip that it can run. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ringleader.images.blocks.historical import selftest
from ringleader.images.blocks.historical.both import both, compiles, wheels_of
from ringleader.images.instructions import Run, words
from ringleader.images.stage_steps import Half, Halves, PipInstall, Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.packages import Packages
    from ringleader.images.blocks.python import Python

PIP = ("pip==20.3.4", "setuptools==44.1.1", "wheel==0.37.1")
"""The last for Python 2.7 and 3.5. The base's pip takes the newest package, whatever Python it is for."""
FIRST = 0
PINS = 5
"""The user's pins before the frameworks (10), that frameworks find them there."""


def python(block: Python, setting: Setting) -> Halves:
    """Return the interpreter with its headers and pip, as ``python``, and the image's self-test."""
    version = ".".join(block.version.split(".")[:2])
    name = f"python{version}" if version else "python3"
    family = "python" if version.startswith("2") else "python3"
    half = Half(
        apt=(name, f"{family}-pip", f"{family}-setuptools"),
        steps=(
            Run(
                commands=(words("ln", "-sf", setting.python, "/usr/bin/python"),),
                why="Scripts of that time say python.",
            ),
        ),
        pip=(PipInstall(requirements=PIP, find_links=wheels_of(setting), order=FIRST),),
    )
    image = replace(half, last=(selftest.step(setting),))
    compilers = ("build-essential", f"{name}-dev")
    if compiles(setting):
        return Halves(build=replace(half, apt=(*half.apt, *compilers)), runtime=image)
    return Halves(runtime=replace(image, apt=(*half.apt, *compilers)))


def packages(block: Packages, setting: Setting) -> Halves:
    """Return a user's packages; pins of pip come before the frameworks, which would bring newer ones."""
    pip = (PipInstall(requirements=block.pip, find_links=block.wheels, order=PINS),) if block.pip else ()
    image = Half(apt=(*block.apt, *block.build_apt), pip=pip)
    return both(setting, image, Half(apt=block.build_apt))

"""The block ``python``: the interpreter, and where packages are installed."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import downloads, historical
from ringleader.images.instructions import Copy, Env, Run, words
from ringleader.images.recipe_fields import NAME, VERSION, text
from ringleader.images.stage_steps import BUILD, VENV, Half, Halves, Setting

PATH = Env(variables=(("PATH", f"{VENV}/bin:${{PATH}}"),))
CONDA = "/opt/conda"
HERE = Copy(sources=(VENV,), target=f"{VENV}/", stage=BUILD)


@dataclass(frozen=True, kw_only=True)
class Python:
    """Arguments of the block."""

    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "conda"))
    """``conda``: Miniforge's, for a version that the base lacks."""


def halves(block: Python, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.python(block, setting)
    return _conda(block, setting) if block.source == "conda" else _base(block, setting)


def _base(block: Python, setting: Setting) -> Halves:
    """Return an environment of the base's Python. PEP 668: the system's own packages are apt's alone."""
    own = block.version in ("", setting.base.python)
    name = "python3" if own else f"python{block.version}"
    return Halves(
        build=Half(
            apt=(name, f"{name}-venv"),
            steps=(
                Run(
                    commands=(words(name, "-m", "venv", VENV),),
                    why="Packages of pip go into an environment of their own, copied whole into the image.",
                ),
                PATH,
            ),
        ),
        runtime=Half(apt=("ca-certificates", name), steps=(HERE, PATH)),
    )


def _conda(block: Python, setting: Setting) -> Halves:
    """Return an environment of conda-forge at the same place, with the packages of conda."""
    release = downloads.release("miniforge")
    installer = f"{downloads.PLACE}/miniforge.sh"
    packages = setting.blocks.get("packages")
    wanted = (f"python={block.version}" if block.version else "python", "pip")
    create = ("create", "--yes", "--prefix", VENV, "--override-channels", "--channel", "conda-forge")
    made = Run(
        commands=(
            *downloads.fetched(release, installer),
            words("bash", installer, "-b", "-p", CONDA),
            words(f"{CONDA}/bin/conda", *create, *wanted, *(packages.conda if packages else ())),
            words("rm", "-rf", CONDA, installer),
        ),
        why=release.why,
    )
    return Halves(
        build=Half(apt=downloads.TOOLS, steps=(made, PATH)),
        runtime=Half(apt=("ca-certificates",), steps=(HERE, PATH)),
    )

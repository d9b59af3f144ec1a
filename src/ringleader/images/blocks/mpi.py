"""The block ``mpi``: the MPI that starts the ranks."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, text
from ringleader.images.blocks.account import account_of
from ringleader.images.halves import Half, Halves, Setting
from ringleader.images.steps import Env, Step

AS_ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
"""Open MPI refuses to run as root unless both say so."""
PACKAGES = {"openmpi": "openmpi-bin", "mpich": "mpich"}


@dataclass(frozen=True, kw_only=True)
class Mpi:
    """Arguments of the block."""

    kind: str = text(NAME, "openmpi", one_of=("openmpi", "mpich"))
    version: str = text(VERSION)
    """Empty: what the base packages."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    """``build``: from the project's release, with the recipe's UCX, libfabric and CUDA."""

    @property
    def prefix(self) -> str:
        """Where it is installed when it is built."""
        return f"/opt/{self.kind}"


def halves(block: Mpi, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    steps: tuple[Step, ...] = ()
    if block.kind == "openmpi" and account_of(setting).is_root:
        steps = (Env(variables=AS_ROOT),)
    name = PACKAGES[block.kind]
    exact = f"{name}={block.version}*" if block.version else name
    return Halves(runtime=Half(apt=(exact,), steps=steps))

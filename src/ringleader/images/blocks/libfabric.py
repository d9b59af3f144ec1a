"""The block ``libfabric``: the transport library below EFA, and of MPICH."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ringleader.images.blocks.block import BuildableBlock
from ringleader.images.blocks.compilation import CUDA, compiled
from ringleader.images.blocks.downloads import Project
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

LIBFABRIC = Project(
    name="libfabric",
    url="https://github.com/ofiwg/libfabric/releases/download/v{version}/libfabric-{version}.tar.bz2",
    source="spack/spack-packages libfabric/package.py",
    sha256={
        "2.4.0": "13f508e1d770c44f872c4117d9bcbfc102dc9d7532d3292455e0e0e5ef7b3bba",
        "2.3.1": "2e939f17ce4d30a999d0445f741d3055b19dfd894eff70450e23470fe774f35a",
        "2.1.0": "97df312779e2d937246d2f46385b700e0958ed796d6fed7aae77e2d18923e19f",
        "1.22.0": "485e6cafa66c9e4f6aa688d2c9526e274c47fda3a783cf1dd8f7c69a07e2d5fe",
    },
)


@dataclass(frozen=True, kw_only=True)
class Libfabric(BuildableBlock):
    """Arguments of the block."""

    table = "libfabric"
    selects = (("libfabric_source", "source"), ("libfabric", "version"))
    projects = (LIBFABRIC,)
    libraries = ("libfabric.so.1",)

    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the base's packages, or what compiles it."""
        if self.source == "base":
            pin = f"={self.version}*" if self.version else ""
            return BlockSteps(runtime=StageSteps(apt=(f"libfabric1{pin}", f"libfabric-bin{pin}")))
        verbs = "--enable-verbs" if "rdma" in image.blocks else "--disable-verbs"
        cuda = (f"--with-cuda={CUDA}", "--enable-cuda-dlopen") if "cuda" in image.blocks else ()
        return compiled(self.release, self.prefix, ("--disable-static", verbs, *cuda), apt=("bzip2",))

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself, where it is compiled beside CUDA."""
        return ("libfabric",) if "cuda" in blocks and self.is_built else ()

"""The block ``ucx``: the transport library below Open MPI and MPICH."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringleader.images.blocks.block import BuildableBlock, Conflict
from ringleader.images.blocks.compilation import CUDA, compiled
from ringleader.images.blocks.downloads import Project
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

UCX = Project(
    name="ucx",
    title="UCX",
    url="https://github.com/openucx/ucx/releases/download/v{version}/ucx-{version}.tar.gz",
    source="spack/spack-packages ucx/package.py",
    sha256={
        "1.20.1": "545c419a7b5e04643cb8bff5a19b3b5071a8f8f0605f1e8efb36f8f3d7bfb9d3",
        "1.20.0": "7c8a6093cada179aa1d851b83625e3b25ed5658966e309de5118c27a038c7ef9",
        "1.19.1": "dea5d821fce05b6ffe175a74e6e148386dd85791409fc71242f3d1369100fd8a",
        "1.19.0": "9af07d55281059542f20c5b411db668643543174e51ac71f53f7ac839164f285",
        "1.18.1": "8018dd75f11b5e8d6e57dcdb5b798d2c1f000982c353efde1f3170025c6c3b4c",
        "1.17.0": "34658e282f99f89ce7a991c542e9727552734ac6ad408c52f22b4c2653b04276",
        "1.16.0": "f73770d3b583c91aba5fb07557e655ead0786e057018bfe42f0ebe8716e9d28c",
        "1.15.0": "4b202087076bc1c98f9249144f0c277a8ea88ad4ca6f404f94baa9cb3aebda6d",
        "1.14.1": "baa0634cafb269a3112f626eb226bcd2ca8c9fcf0fec3b8e2a3553baad5f77aa",
        "1.13.1": "efc37829b68e131d2acc82a3fd4334bfd611156a756837ffeb650ab9a9dd3828",
        "1.12.1": "40b447c8e7da94a253f2828001b2d76021eb4ad39647107d433d62d61e18ae8e",
        "1.9.0": "a7a2c8841dc0d5444088a4373dc9b9cc68dbffcd917c1eba92ca8ed8e5e635fb",
        "1.8.1": "a48820cb8d0761b5ccf3e7ba03a7c8c1dde6276017657178829e07ffc35b556a",
    },
)


@dataclass(frozen=True, kw_only=True)
class Ucx(BuildableBlock):
    """Arguments of the block."""

    table = "ucx"
    selects = (("ucx_source", "source"), ("ucx", "version"))
    projects = (UCX,)
    libraries = ("libucp.so.0",)

    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    cuda: bool = False
    """With GPU memory; needs the block ``cuda`` and ``source = "build"``."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the base's packages, or what compiles it."""
        if self.source == "base":
            pin = f"={self.version}*" if self.version else ""
            return BlockSteps(runtime=StageSteps(apt=(f"libucx0{pin}", f"ucx-utils{pin}")))
        verbs = ("--with-verbs", "--with-rdmacm") if "rdma" in image.blocks else ("--without-verbs",)
        cuda = f"--with-cuda={CUDA}" if self.cuda else "--without-cuda"
        options = ("--enable-mt", *verbs, cuda, "--without-go", "--without-java", "--disable-static")
        return compiled(
            self.release,
            self.prefix,
            options,
            configure="./contrib/configure-release",
            why="Ranks with several threads may use it.",
        )

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself, where it is compiled for GPU memory."""
        return ("UCX",) if "cuda" in blocks and self.is_built and self.cuda else ()

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a checksum and GPU memory of what is not compiled."""
        yield from super().conflicts(blocks, compiled_in)
        if self.cuda and (not self.is_built or "cuda" not in blocks):
            yield Conflict(
                path=("ucx", "cuda"),
                what="the distribution's UCX knows no GPU memory",
                hint='it goes with source = "build" and the block cuda',
            )

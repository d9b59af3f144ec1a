"""The block ``nccl``: the system's NCCL, for Horovod, MXNet and nccl-tests; PyTorch's wheel has its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.blocks.block import BuildableBlock, Conflict
from ringleader.images.blocks.compilation import CUDA, copied, linked, trimmed
from ringleader.images.blocks.downloads import TOOLS, Project, unpacked
from ringleader.images.blocks.nvidia_repository import (
    KEYRING,
    PINNED,
    historical_packages,
    no_cuda,
    repository,
    revision_of,
    system_name,
)
from ringleader.images.instructions import Run, Step, shell
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, needed, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

TESTS = "/opt/nccl-tests"
NCCL = Project(
    name="nccl",
    title="NCCL",
    url="https://github.com/NVIDIA/nccl/archive/v{version}-1.tar.gz",
    source="spack/spack-packages nccl/package.py",
    sha256={
        "2.27.7": "98e6262bd55932c51e7c8ffc50cc764f019e4b94a8fd6694d839ae828ec8d128",
        "2.27.5": "e8a8972fc7f7517703510ef23608d41f6484db5331fca37827b4af3f66995344",
        "2.27.3": "97cde99265d0b76004b96e258deea6365df18ff9a292b8588f648e59c3ce1f2e",
        "2.26.2": "74c6ab40c864d79c2139508e9419de5970cb406ec85f001d5f834d5f5c0c4f3b",
        "2.21.5": "1923596984d85e310b5b6c52b2c72a1b93da57218f2bc5a5c7ac3d59297a3303",
        "2.3.7": "e6eff80d9d2db13c61f8452e1400ca2f098d2dfe42857cb23413ce081c5b9e9b",
    },
)
NCCL_TESTS = Project(
    name="nccl-tests",
    url="https://github.com/NVIDIA/nccl-tests/archive/v{version}.tar.gz",
    source="spack/spack-packages nccl_tests/package.py",
    sha256={
        "2.17.6": "38974e70342150ede0e3fb8fd24bfe60ccbde90fa20241716ba8bb338e6b61a0",
        "2.16.3": "ec373552e216c0df03414718bd588585a1719971b20a5939a2f9488c8ce767eb",
        "2.13.6": "52b472a58a4918d3221a9b8c4bd9335382643d7e241983918b64692d685cc3d1",
    },
)


@dataclass(frozen=True, kw_only=True)
class Nccl(BuildableBlock):
    """Arguments of the block."""

    table = "nccl"
    selects = (("nccl", "version"),)
    projects = (NCCL, NCCL_TESTS, KEYRING)
    libraries = ("libnccl.so.2",)

    version: str = needed(VERSION)
    source: str = text(NAME, "apt", one_of=("apt", "build"))
    dev: bool = False
    """With headers, in the image too."""
    tests: bool = False
    """With nccl-tests, built in the build stage."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack; only for ``build``."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return NVIDIA's packages, or what compiles it; and nccl-tests."""
        tested: tuple[Step, ...] = (self._tests(image),) if self.tests else ()
        brought: tuple[Step, ...] = (copied(TESTS),) if self.tests else ()
        tools = ("build-essential", *TOOLS) if self.tests or self.is_built else ()
        apt = (*tools, *self._mpi_headers(image))
        if self.is_built:
            last = tested if self.dev else (*tested, trimmed(self.prefix))
            return BlockSteps(
                build=StageSteps(apt=apt, steps=(self._compiled(),), last=last),
                runtime=StageSteps(steps=(copied(self.prefix), linked(self.prefix), *brought)),
            )
        library, headers = self._pinned("libnccl2", image), self._pinned("libnccl-dev", image)
        keys_first, keys_over = repository(image)
        wanted = (library, headers) if self.tests or "horovod" in image.blocks else ()
        return BlockSteps(
            build=StageSteps(
                before=keys_first,
                apt=(*apt, *wanted),
                apt_options=PINNED if wanted else (),
                last=tested,
            ),
            runtime=StageSteps(
                before=keys_over,
                apt=(library, headers) if self.dev else (library,),
                apt_options=PINNED,
                steps=brought,
            ),
        )

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return ``libnccl2``, with its headers where something is compiled with them."""
        with_headers = self.dev or "horovod" in image.blocks
        names = ("libnccl2", "libnccl-dev")
        return historical_packages(self.table, self.version, names, image, with_headers=with_headers)

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself where it is compiled, and its tests."""
        return (*(("NCCL",) if self.is_built else ()), *(("nccl-tests",) if self.tests else ()))

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a checksum of what is not compiled, and a base for which NVIDIA has no packages."""
        yield from super().conflicts(blocks, compiled_in)
        system = find_base(compiled_in)
        if self.source != "apt" or system is None or find_cuda_image(compiled_in) is not None:
            return
        if system_name(system) not in KEYRING.sha256:
            yield Conflict(
                path=("nccl",),
                what=f"no repository of NVIDIA for {system.name} is known",
                hint="a base nvidia/cuda:…, or leave the block out: PyTorch's wheel has its own NCCL",
            )

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield that the base has no CUDA, and what packages do not have."""
        yield from no_cuda(self.table, blocks, compiled_in)
        given = (("source", self.source != "apt"), ("tests", self.tests), ("sha256", self.sha256))
        for key, is_given in given:
            if is_given:
                what = "historical images have NCCL's packages only"
                yield Conflict(path=("nccl", key), what=what, hint="leave it out")

    def _pinned(self, package: str, image: ImageContext) -> str:
        """Return a package at our version, built for the image's major CUDA, if it has one."""
        if "+" in self.version:
            return f"{package}={self.version}"
        major = f"{image.cuda.partition('.')[0]}." if image.cuda else ""
        return f"{package}={revision_of(self.version)}+cuda{major}*"

    def _compiled(self) -> Run:
        place = self.release.directory
        return Run(
            commands=(
                *unpacked(self.release),
                f'make -j "$(nproc)" -C {place} src.build CUDA_HOME={CUDA}',
                f"make -C {place} src.install CUDA_HOME={CUDA} PREFIX={self.prefix}",
                shell("rm", "-rf", place),
            ),
            why=f"{self.release.why} For every GPU that this CUDA knows.",
        )

    def _mpi_headers(self, image: ImageContext) -> tuple[str, ...]:
        mpi = image.blocks.get("mpi")
        return (f"lib{mpi.kind}-dev",) if self.tests and mpi is not None and mpi.source == "base" else ()

    def _tests(self, image: ImageContext) -> Run:
        """Return what compiles nccl-tests: with MPI where the image has one, against this NCCL."""
        release = NCCL_TESTS.release()
        place = release.directory
        values = [f"CUDA_HOME={CUDA}"]
        if self.is_built:
            values.append(f"NCCL_HOME={self.prefix}")
        mpi = image.blocks.get("mpi")
        if mpi is not None:
            packaged = f"/usr/lib/{image.machine}-linux-gnu/{mpi.kind}"
            values += ["MPI=1", f"MPI_HOME={mpi.prefix if mpi.source == 'build' else packaged}"]
        return Run(
            commands=(
                *unpacked(release),
                f'make -j "$(nproc)" -C {place} {shell(*values)}',
                shell("mkdir", "-p", f"{TESTS}/bin"),
                f"find {place}/build -maxdepth 1 -name '*_perf' -exec cp '{{}}' {TESTS}/bin/ ';'",
                shell("rm", "-rf", place),
            ),
            why=release.why,
        )

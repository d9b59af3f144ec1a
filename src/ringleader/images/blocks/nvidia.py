"""The blocks cuda, cudnn and nccl, and NVIDIA's repository of packages. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ringleader.images.base_image import find_base, find_cuda_image
from ringleader.images.blocks.block import Block, BlockSteps, BuildableBlock, ImageContext, StageSteps
from ringleader.images.blocks.downloads import (
    CUDA,
    KEYRINGS,
    PLACE,
    TOOLS,
    copied,
    fetched,
    handed_over,
    linked,
    projects,
    release,
    tools_first,
    trimmed,
    unpacked,
)
from ringleader.images.instructions import Env, Run, Step, shell, write
from ringleader.images.recipe import NAME, SHA256, VERSION, Conflict, needed, text
from ringleader.images.tables import Base

KEYRING = "cuda-keyring"
"""One file for each system: the project's version is the name of NVIDIA's directory."""
KEYRING_FILE = f"{KEYRINGS}/cuda-archive-keyring.gpg"
PINNED = ("--allow-downgrades", "--allow-change-held-packages")
"""NVIDIA's images hold other versions of the same packages."""
SERVER = "https://developer.download.nvidia.com/compute"
BEFORE_CUDA_NAMES = ("5", "6", "7", "8")
"""Majors of cuDNN whose versions end with ``+cuda11.8``. Since 9 the packages' names tell CUDA's major."""
TESTS = "/opt/nccl-tests"


@dataclass(frozen=True, kw_only=True)
class Cuda(Block):
    """CUDA from NVIDIA's images, below frameworks that do not bring their own.

    The base is then one of NVIDIA's images of the same version.
    """

    table = "cuda"

    version: str = needed(VERSION)

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return nothing: libraries, paths and variables are in NVIDIA's images already."""
        return BlockSteps()


def gpu_access(image: ImageContext) -> tuple[Step, ...]:
    """Return what asks NVIDIA's runtime for GPUs and driver, where the base does not ask yet."""
    if image.cuda or "cuda" in image.blocks:
        return ()
    wanted = (("NVIDIA_VISIBLE_DEVICES", "all"), ("NVIDIA_DRIVER_CAPABILITIES", "compute,utility"))
    return (Env(variables=wanted),)


@dataclass(frozen=True, kw_only=True)
class Cudnn(Block):
    """cuDNN from NVIDIA's repository, for frameworks that do not bring their own."""

    table = "cudnn"

    version: str = needed(VERSION)
    dev: bool = False
    """With headers, in the image too."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return its packages: headers only where something is compiled.

        NVIDIA's images, which have the repository, are the base: `image check` says where they are not.
        """
        packages = self._packages(image)
        if self.dev:
            return BlockSteps(runtime=StageSteps(apt=packages))
        compiled = packages if "horovod" in image.blocks else ()
        return BlockSteps(build=StageSteps(apt=compiled), runtime=StageSteps(apt=packages[:1]))

    def _packages(self, image: ImageContext) -> tuple[str, str]:
        """Return the packages of the library and of its headers."""
        major, revision = self.version.partition(".")[0], _revision(self.version)
        if major not in BEFORE_CUDA_NAMES:
            cuda = image.cuda.partition(".")[0]
            return f"libcudnn{major}-cuda-{cuda}={revision}", f"libcudnn{major}-dev-cuda-{cuda}={revision}"
        cuda = ".".join(image.cuda.split(".")[:2])
        return f"libcudnn{major}={revision}+cuda{cuda}", f"libcudnn{major}-dev={revision}+cuda{cuda}"


@dataclass(frozen=True, kw_only=True)
class Nccl(BuildableBlock):
    """The system's NCCL, for Horovod, MXNet and nccl-tests; PyTorch's wheel has its own."""

    table = "nccl"
    projects = ("nccl", "nccl-tests", KEYRING)
    libraries = ("libnccl.so.2",)

    version: str = needed(VERSION)
    """``2.27.7``; for packages with a revision and CUDA where it matters: ``2.27.7-1+cuda12.9``."""
    source: str = text(NAME, "apt", one_of=("apt", "build"))
    """``apt``: NVIDIA's packages; ``build``: from the project's release, for every GPU that CUDA knows."""
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
        mpi = image.blocks.get("mpi")
        mpi_headers = (f"lib{mpi.kind}-dev",) if self.tests and mpi is not None and not mpi.is_built else ()
        apt = (*tools, *mpi_headers)
        if self.is_built:
            last = tested if self.dev else (*tested, trimmed(self.prefix))
            return BlockSteps(
                build=StageSteps(apt=apt, steps=(self._compiled(),), last=last),
                runtime=StageSteps(steps=(copied(self.prefix), linked(self.prefix), *brought)),
            )
        library, headers = self._pinned("libnccl2", image), self._pinned("libnccl-dev", image)
        keys_first, keys_over = _repository(image)
        wanted = (library, headers) if self.tests or "horovod" in image.blocks else ()
        options = PINNED if wanted else ()
        return BlockSteps(
            build=StageSteps(before=keys_first, apt=(*apt, *wanted), apt_options=options, last=tested),
            runtime=StageSteps(
                before=keys_over,
                apt=(library, headers) if self.dev else (library,),
                apt_options=PINNED,
                steps=brought,
            ),
        )

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself where it is compiled, and its tests."""
        return (*(("NCCL",) if self.is_built else ()), *(("nccl-tests",) if self.tests else ()))

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a checksum of what is not compiled, and a base for which NVIDIA has no packages."""
        yield from super().conflicts(blocks, compiled_in)
        system = find_base(compiled_in)
        if self.source != "apt" or system is None or find_cuda_image(compiled_in) is not None:
            return
        if _system_name(system) not in projects()[KEYRING].known:
            hint = "a base nvidia/cuda:…, or leave the block out: PyTorch's wheel has its own NCCL"
            yield Conflict(("nccl",), f"no repository of NVIDIA for {system.name} is known", hint)

    def _pinned(self, package: str, image: ImageContext) -> str:
        """Return a package at our version, built for the image's major CUDA, if it has one."""
        if "+" in self.version:
            return f"{package}={self.version}"
        major = f"{image.cuda.partition('.')[0]}." if image.cuda else ""
        return f"{package}={_revision(self.version)}+cuda{major}*"

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

    def _tests(self, image: ImageContext) -> Run:
        """Return what compiles nccl-tests: with MPI where the image has one, against this NCCL."""
        found = release("nccl-tests")
        place = found.directory
        values = [f"CUDA_HOME={CUDA}"]
        if self.is_built:
            values.append(f"NCCL_HOME={self.prefix}")
        mpi = image.blocks.get("mpi")
        if mpi is not None:
            packaged = f"/usr/lib/{image.machine}-linux-gnu/{mpi.kind}"
            values += ["MPI=1", f"MPI_HOME={mpi.prefix if mpi.is_built else packaged}"]
        return Run(
            commands=(
                *unpacked(found),
                f'make -j "$(nproc)" -C {place} {shell(*values)}',
                shell("mkdir", "-p", f"{TESTS}/bin"),
                f"find {place}/build -maxdepth 1 -name '*_perf' -exec cp '{{}}' {TESTS}/bin/ ';'",
                shell("rm", "-rf", place),
            ),
            why=found.why,
        )


def _system_name(base: Base) -> str:
    """Return a base as NVIDIA's repositories name it: ``ubuntu2404``."""
    return base.name.replace(":", "").replace(".", "")


def _repository(image: ImageContext) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return what adds the repository in each stage; the bases of NVIDIA have it already."""
    if image.cuda:
        return (), ()
    system = _system_name(image.base)
    package, listed = f"{PLACE}/cuda-keyring.deb", f"/etc/apt/sources.list.d/cuda-{system}-x86_64.list"
    commands = [*fetched(release(KEYRING, system), package), shell("dpkg", "--install", package)]
    if image.machine == "aarch64":
        # One key signs the repositories of all machines; the list in the package is that of x86_64.
        other, place = listed.replace("x86_64", "sbsa"), f"{SERVER}/cuda/repos/{system}/sbsa/"
        commands += [shell("rm", listed), write(other, (f"deb [signed-by={KEYRING_FILE}] {place} /",))]
        listed = other
    added = Run(commands=tuple(commands), why="NVIDIA's repository and the key that signs it.")
    return (tools_first(), added), handed_over(KEYRING_FILE, listed)


def _revision(version: str) -> str:
    """Return a package's version with its revision: 1 unless the version has one."""
    return version if "-" in version else f"{version}-1"

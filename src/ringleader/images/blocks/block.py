"""What a block of a recipe is, and what it gives to an image: steps of the build stage and of the image.

What blocks fetch and compile is in ``downloads``, the blocks themselves are in the modules beside it. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ringleader.images.blocks.downloads import (
    TOOLS,
    Release,
    copied,
    linked,
    on_path,
    release,
    trimmed,
    unpacked,
)
from ringleader.images.instructions import Run, Step, shell
from ringleader.images.recipe import NAME, SHA256, VERSION, Conflict, text
from ringleader.images.tables import Base

BUILD = "build"
"""Name of the stage that compiles and installs; nothing of it but what is copied reaches the image."""
VENV = "/opt/venv"
"""The virtual environment: made in the build stage, copied whole into the image."""
PYTHON = f"{VENV}/bin/python"
"""The interpreter whose pip installs, and that runs training scripts."""


@dataclass(frozen=True, kw_only=True)
class PipInstall:
    """Packages that pip installs. Installs with the same index and the same options become one call."""

    requirements: tuple[str, ...]
    index: str = ""
    """URL of the only index to ask; empty: the default one."""
    find_links: str = ""
    """Directory of wheels in the build context; only it is asked then, no index."""
    order: int = 50
    """Calls are made in this order: frameworks (10), what depends on them (50), the user's own (90)."""
    options: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    """Variables of this call only, such as what a build from source asks for."""


@dataclass(frozen=True, kw_only=True)
class StageSteps:
    """What one block does in one stage."""

    apt: tuple[str, ...] = ()
    """Debian packages, possibly ``name=version``: all blocks' packages of a stage are one apt-get call."""
    apt_options: tuple[str, ...] = ()
    """Such as ``--allow-downgrades``, ``--allow-change-held-packages`` where pinned packages need them."""
    before: tuple[Step, ...] = ()
    """Steps before that apt-get call: keys and lists of further repositories."""
    pip: tuple[PipInstall, ...] = ()
    steps: tuple[Step, ...] = ()
    """Steps after it."""
    last: tuple[Step, ...] = ()
    """Steps after those of all blocks: what an image ends with (ldconfig, self-test, user)."""


@dataclass(frozen=True, kw_only=True)
class BlockSteps:
    """What one block does. One that only installs packages does nothing in the stage that builds."""

    build: StageSteps = field(default_factory=StageSteps)
    runtime: StageSteps = field(default_factory=StageSteps)


@dataclass(frozen=True, kw_only=True)
class ImageContext:
    """What a block may know of the image that it becomes part of."""

    base: Base
    """The operating system below, by the tables."""
    blocks: Mapping[str, Any]
    """Name → block, of every block of the recipe, with defaults filled in."""
    machine: str = "x86_64"
    """What the image is for, as wheels name it: ``x86_64``, ``aarch64``."""
    cuda: str = ""
    """CUDA version of the image, such as ``12.8``; empty: none, or only what wheels bring."""

    @property
    def python_version(self) -> str:
        """Major and minor version of the interpreter."""
        block = self.blocks.get("python")
        version = block.version if block is not None else ""
        return ".".join((version or self.base.python).split(".")[:2])

    def install(
        self, *requirements: str, order: int, index: str = "", wheels: str = ""
    ) -> tuple[PipInstall, ...]:
        """Return the install of some packages; nothing where a lock file already names every package.

        ``wheels``: the block's own directory of wheels. That of ``packages`` has every wheel of the image, so
        that it can be made without any index.
        """
        packages = self.blocks.get("packages")
        if packages is not None and packages.lock:
            return ()
        links = wheels or (packages.wheels if packages is not None else "")
        index = "" if links else index
        return (PipInstall(requirements=requirements, index=index, find_links=links, order=order),)

    def built(self, name: str) -> bool:
        """Tell whether a block is there and compiled from its release."""
        return getattr(self.blocks.get(name), "source", "") == "build"


class Block:
    """One block. Its fields are the keys of its table in a recipe; what follows from them are its methods."""

    table: ClassVar[str]
    """Its table in a recipe."""
    projects: ClassVar[tuple[str, ...]] = ()
    """Whose releases it may fetch (``downloads.projects``)."""
    python_packages: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Packages that the self-test imports, each with the names under which it may be installed."""
    framework: ClassVar[str] = ""
    """The framework that it brings, as scripts import it; empty: none."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Shared libraries that the self-test loads."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return what it does in the stage that builds and in the image."""
        raise NotImplementedError

    def releases(self) -> tuple[Release, ...]:
        """Return the releases that it fetches in the version that the recipe names."""
        return ()

    def bin_directories(self) -> tuple[str, ...]:
        """Return the directories of its programs that are not on the system's PATH."""
        return ()

    def uses_verbs(self) -> bool:
        """Tell whether it compiles against the libraries of NICs."""
        return False

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return what of it is compiled by CUDA's compiler, as people call it."""
        return ()

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield keys that cannot have their effect.

        ``compiled_in``: reference of the image in which blocks are compiled.
        """
        yield from ()

    def unused_checksum(
        self, is_unused: bool, hint: str = 'it goes with source = "build"'
    ) -> Iterator[Conflict]:
        """Yield that a recipe's checksum verifies nothing."""
        if is_unused:
            what = "nothing is fetched that it could verify: apt verifies its packages itself"
            yield Conflict((self.table, "sha256"), what, hint)

    def unknown_releases(self) -> Iterator[Conflict]:
        """Yield releases that nobody has seen: one that does not exist would be noticed amid a build."""
        for one in self.releases():
            known = one.project.known
            if not one.sha256 and one.version not in known:
                more = "" if one.project.is_repository else "; another with its sha256 beside it"
                what = f"no checksum of {one.title} {one.version} is known, nor that there is one"
                yield Conflict((self.table, "version"), what, f"known: {', '.join(known[:8])}{more}")


@dataclass(frozen=True, kw_only=True)
class BuildableBlock(Block):
    """A block that is packaged, or compiled from its project's release where ``source`` is ``build``."""

    compiled_for_cuda: ClassVar[str] = ""
    """How people call what is compiled by CUDA's compiler where the recipe has the block ``cuda``."""

    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    """``build``: from the project's release, with the recipe's RDMA user space, UCX, libfabric and CUDA."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    @property
    def is_built(self) -> bool:
        """Tell whether it is compiled."""
        return self.source == "build"

    @property
    def project(self) -> str:
        """The project whose release is compiled."""
        return self.projects[0]

    @property
    def release(self) -> Release:
        """The release that is compiled."""
        return release(self.project, self.version, sha256=self.sha256)

    @property
    def prefix(self) -> str:
        """Where it is installed when it is compiled."""
        return f"/opt/{self.project}"

    def releases(self) -> tuple[Release, ...]:
        """Return the release that is compiled."""
        return (self.release,) if self.is_built else ()

    def bin_directories(self) -> tuple[str, ...]:
        """Return the prefix's, where it is compiled."""
        return (f"{self.prefix}/bin",) if self.is_built else ()

    def uses_verbs(self) -> bool:
        """Tell whether it is compiled."""
        return self.is_built

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself, where it is compiled beside CUDA."""
        is_compiled = self.is_built and "cuda" in blocks
        return (self.compiled_for_cuda,) if is_compiled and self.compiled_for_cuda else ()

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a checksum of what is not compiled."""
        yield from self.unused_checksum(bool(self.sha256) and not self.is_built)

    def pinned(self, *packages: str) -> tuple[str, ...]:
        """Return the base's packages, of the version that the recipe names."""
        return tuple(f"{one}={self.version}*" for one in packages) if self.version else packages

    def compiled(
        self, *options: str, configure: str = "./configure", apt: tuple[str, ...] = (), why: str = ""
    ) -> BlockSteps:
        """Return the steps of a release with a ``configure``.

        ``apt``: packages of the build stage besides the compilers. ``why``: said besides what is fetched.
        """
        prefix, place = self.prefix, self.release.directory
        run = Run(
            commands=(
                *unpacked(self.release),
                shell("env", f"--chdir={place}", configure, f"--prefix={prefix}", *options),
                f'make -j "$(nproc)" -C {place}',
                f"make -C {place} install",
                shell("rm", "-rf", place),
            ),
            why=f"{self.release.why} {why}".strip(),
        )
        return BlockSteps(
            build=StageSteps(
                apt=("build-essential", *TOOLS, *apt), steps=(run, linked(prefix)), last=(trimmed(prefix),)
            ),
            runtime=StageSteps(steps=(copied(prefix), linked(prefix), on_path(prefix))),
        )

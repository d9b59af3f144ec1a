"""What every block of a recipe says of itself: its steps, what it fetches, what it cannot go with. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

from ringleader.images.blocks.downloads import Project, Release
from ringleader.images.selection import Selection
from ringleader.images.stage_steps import BlockSteps, ImageContext


@dataclass(frozen=True, kw_only=True)
class Conflict:
    """One key that cannot have its effect, in this image or beside another block."""

    path: tuple[str, ...]
    """Block and key as a recipe writes them."""
    what: str
    hint: str = ""


def no_python(table: str) -> Conflict:
    """Return that pip cannot install a block."""
    hint = 'a block of its own: [python], version = "3.5" or "2.7"'
    return Conflict(path=(table,), what="pip installs it, and the image has no Python", hint=hint)


class Block:
    """One block. Its fields are the keys of its table in a recipe; what follows from them are its methods."""

    table: ClassVar[str]
    """Its table in a recipe."""
    selects: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Field of ``Selection`` → key of the block that it is; the first tells whether there is the block."""
    projects: ClassVar[tuple[Project, ...]] = ()
    """Whose releases it may fetch, with their URLs and checksums."""
    python_packages: ClassVar[tuple[tuple[str, ...], ...]] = ()
    """Packages that the self-test imports, each with the names under which it may be installed."""
    framework: ClassVar[str] = ""
    """The framework that it brings, as scripts import it; empty: none."""
    installed_by_pip: ClassVar[bool] = False
    """True: it cannot be without a Python."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Shared libraries that the self-test loads."""
    compiles_apart: ClassVar[bool] = False
    """True: a historical image has a stage for it that only compiles. Others are made in the image itself."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return what it does in the stage that builds and in the image."""
        raise NotImplementedError

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return what it does in an image as it was made in 2017 to 2019."""
        return self.steps(image)

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
        """Yield what cannot have its effect in a modern image.

        ``compiled_in``: reference of the image in which blocks are compiled.
        """
        yield from ()

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield what cannot have its effect in a historical image."""
        yield from ()

    def unused_checksum(
        self, is_unused: bool, hint: str = 'it goes with source = "build"'
    ) -> Iterator[Conflict]:
        """Yield that a recipe's checksum verifies nothing."""
        if is_unused:
            what = "nothing is fetched that it could verify: apt verifies its packages itself"
            yield Conflict(path=(self.table, "sha256"), what=what, hint=hint)

    def unknown_releases(self) -> Iterator[Conflict]:
        """Yield releases that nobody has seen: one that does not exist would be noticed amid a build."""
        for one in self.releases():
            known = one.project.known
            if not one.sha256 and one.version not in known:
                more = "" if one.project.is_repository else "; another with its sha256 beside it"
                what = f"no checksum of {one.title} {one.version} is known, nor that there is one"
                yield Conflict(
                    path=(self.table, "version"), what=what, hint=f"known: {', '.join(known[:8])}{more}"
                )

    def choose(self, selection: Selection) -> Selection:
        """Return a selection with what this block chooses, as far as it must fit together."""
        return replace(selection, **{name: getattr(self, key) for name, key in self.selects})

    @classmethod
    def chosen(cls, selection: Selection) -> Self | None:
        """Return the block that a selection needs; ``None``: it needs none, or the default one."""
        found = {key: getattr(selection, name) for name, key in cls.selects}
        return cls(**found) if next(iter(found.values()), None) else None

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Yield what a historical image's self-test asks besides the framework: lines of its script."""
        yield from ()


class BuildableBlock(Block):
    """A block that is packaged, or compiled from its project's release where ``source`` is ``build``."""

    version: str
    source: str
    sha256: str

    @property
    def is_built(self) -> bool:
        """Tell whether it is compiled."""
        return self.source == "build"

    @property
    def release(self) -> Release:
        """The release that is compiled."""
        return self.projects[0].release(self.version, sha256=self.sha256)

    @property
    def prefix(self) -> str:
        """Where it is installed when it is compiled."""
        return f"/opt/{self.release.project.name}"

    def releases(self) -> tuple[Release, ...]:
        """Return the release that is compiled."""
        return (self.release,) if self.is_built else ()

    def bin_directories(self) -> tuple[str, ...]:
        """Return the prefix's, where it is compiled."""
        return (f"{self.prefix}/bin",) if self.is_built else ()

    def uses_verbs(self) -> bool:
        """Tell whether it is compiled."""
        return self.is_built

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a checksum of what is not compiled."""
        yield from self.unused_checksum(bool(self.sha256) and not self.is_built)

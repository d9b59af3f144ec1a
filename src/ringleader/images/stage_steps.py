"""What a block gives to an image: a build half and a run-time half. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringleader.images.instructions import Step
from ringleader.images.tables.bases import Base

BUILD = "build"
"""Name of the stage that compiles and installs; nothing of it but what is copied reaches the image."""
VENV = "/opt/venv"
"""The virtual environment of modern images: made in the build half, copied whole into the image."""


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
class Half:
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
class Halves:
    """A block's two halves. A block that only installs packages has an empty build half."""

    build: Half = field(default_factory=Half)
    runtime: Half = field(default_factory=Half)


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a block may know of the image that it becomes part of."""

    base: Base
    """The operating system below, by the tables."""
    blocks: Mapping[str, Any]
    """Name → arguments, of every block of the recipe, with defaults filled in."""
    historical: bool = False
    """True: an image as it was then. Packages go into the system's Python, in one root account."""
    python: str = f"{VENV}/bin/python"
    """The interpreter whose pip installs, and that runs training scripts."""
    cuda: str = ""
    """CUDA version of the image, such as ``12.8``; empty: none, or only what wheels bring."""

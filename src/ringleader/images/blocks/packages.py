"""The block ``packages``: what a user's script needs besides."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import APT, CONTEXT_PATH, NAME, REQUIREMENT, text, texts
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Packages:
    """Arguments of the block."""

    apt: tuple[str, ...] = texts(APT)
    build_apt: tuple[str, ...] = texts(APT)
    """Only for the build half: compilers and headers that packages of pip need."""
    pip: tuple[str, ...] = texts(REQUIREMENT)
    conda: tuple[str, ...] = texts(NAME)
    """Only where ``python.source`` is ``conda``."""
    lock: str = text(CONTEXT_PATH)
    """Requirements with hashes (``ringleader image lock``): pip installs exactly these and nothing else."""
    wheels: str = text(CONTEXT_PATH)
    """Directory of the build context in which pip looks for wheels before it asks an index."""


def halves(block: Packages, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError

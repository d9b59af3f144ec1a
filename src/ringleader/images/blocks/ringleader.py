"""The block ``ringleader``: Ringleader itself, with the self-test."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import CONTEXT_PATH, NAME, text, texts
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Ringleader:
    """Arguments of the block."""

    wheel: str = text(CONTEXT_PATH)
    """The wheel in the build context; empty: the one that ``ringleader image build`` makes of itself and puts
    there (``ringleader-VERSION-py3-none-any.whl``)."""
    extras: tuple[str, ...] = texts(NAME, (), one_of=("torch", "report", "kubernetes"))


def halves(block: Ringleader, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError

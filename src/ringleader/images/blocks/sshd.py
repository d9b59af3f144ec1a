"""The block ``sshd``: what mpirun reaches the image's containers by."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, number, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Sshd:
    """Arguments of the block. Keys are never part of an image; they are mounted, or made at the start."""

    port: int = number(2222, least=1, most=65535)
    """Above 1023 it needs no privilege; 22 is the host's own on host networks."""
    keys: str = text(NAME, "mounted", one_of=("mounted", "in-image"))
    """``in-image``: one key pair for all containers, made while the image is built, as images of 2018 had it.
    Only in historical images: whoever has the image has the key."""


def halves(block: Sshd, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError

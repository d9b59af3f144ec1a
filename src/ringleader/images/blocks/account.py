"""The block ``account``: who runs the containers."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, number, text
from ringleader.images.halves import Halves, Setting


@dataclass(frozen=True, kw_only=True)
class Account:
    """Arguments of the block. Without it modern images make ``trainer`` with number 1000."""

    name: str = text(NAME, "trainer")
    """``root``: no account is made. Locked memory by IPC_LOCK works for root only, unless the runtime's limit
    is raised."""
    uid: int = number(1000, least=1, most=60000)


def halves(block: Account, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError

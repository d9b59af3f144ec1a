"""The block ``rdma``: the user space of RDMA NICs. One only: they replace each other's libraries."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, needed, text
from ringleader.images.halves import Halves, Setting

USER_SPACES = ("rdma-core", "doca-ofed", "mlnx-ofed", "efa", "erdma")


@dataclass(frozen=True, kw_only=True)
class Rdma:
    """Arguments of the block. Kernel modules are the host's; an image carries the user space only."""

    user_space: str = needed(NAME, one_of=USER_SPACES)
    version: str = text(VERSION)
    """Empty: the base's for ``rdma-core``, the tables' newest for the others."""
    tools: bool = False
    """With ibv_devinfo, ib_write_bw and the like."""


def halves(block: Rdma, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    raise NotImplementedError

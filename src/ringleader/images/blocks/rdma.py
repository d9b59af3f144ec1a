"""The block ``rdma``: the user space of RDMA NICs. One only: they replace each other's libraries."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.arguments import NAME, VERSION, needed, text
from ringleader.images.halves import Half, Halves, Setting

USER_SPACES = ("rdma-core", "doca-ofed", "mlnx-ofed", "efa", "erdma")

LIBRARIES = ("libibverbs1", "ibverbs-providers", "libibumad3")
TOOLS = ("ibverbs-utils", "rdmacm-utils", "perftest", "infiniband-diags")
BEFORE_TIME64 = (
    *("debian:11", "debian:12"),
    *("ubuntu:16.04", "ubuntu:18.04", "ubuntu:20.04", "ubuntu:22.04"),
)
"""Releases whose librdmacm is not yet named for its 64-bit time."""


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
    manager = "librdmacm1" if setting.base.name in BEFORE_TIME64 else "librdmacm1t64"
    return Halves(runtime=Half(apt=(*LIBRARIES, manager, *(TOOLS if block.tools else ()))))

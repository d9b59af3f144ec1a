"""The user space of RDMA NICs in images on Ubuntu 16.04 and 18.04. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.blocks import downloads
from ringleader.images.blocks.historical.both import both
from ringleader.images.instructions import Run, words
from ringleader.images.stage_steps import Half, Halves, Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.rdma import Rdma

MLNX_OFED = "4.5-1.0.1.0"
"""Of 2018, for Ubuntu 16.04 and 18.04 alike."""
LIBRARIES = {
    "ubuntu:16.04": ("libibverbs1", "libmlx4-1", "libmlx5-1", "librdmacm1"),
}
"""Before rdma-core was packaged as one, each provider had its own package."""
PROVIDERS = ("ibverbs-providers", "libibverbs1", "librdmacm1")
HEADERS = ("libibverbs-dev", "librdmacm-dev")
TOOLS = ("ibverbs-utils", "perftest", "rdmacm-utils")
OPTIONS = ("--user-space-only", "--without-fw-update", "--force", "-q")
INSTALLER_NEEDS = (
    *(*downloads.TOOLS, "ethtool", "libnl-3-200", "libnl-route-3-200", "libnuma1", "lsb-release"),
    *("pciutils", "perl", "python", "python-libxml2"),
)


def rdma(block: Rdma, setting: Setting) -> Halves:
    """Return the libraries; with headers in a stage that compiles against them. One user space in both."""
    if block.user_space == "mlnx-ofed":
        return both(setting, _ofed(block, setting))
    libraries = (*LIBRARIES.get(setting.base.name, PROVIDERS), *(TOOLS if block.tools else ()))
    return both(setting, Half(apt=libraries), Half(apt=(*libraries, *HEADERS)))


def _ofed(block: Rdma, setting: Setting) -> Half:
    system = f"{setting.base.family}{setting.base.version}"
    version = block.version or MLNX_OFED
    release = downloads.release("mlnx-ofed", version, sha256=block.sha256, system=system)
    installer = f"{downloads.source_of(release)}/mlnxofedinstall"
    installed = Run(
        commands=(
            *downloads.unpacked(release),
            "apt-get update",
            f"DEBIAN_FRONTEND=noninteractive {words(installer, *OPTIONS)}",
            words("rm", "-rf", downloads.PLACE),
            "rm -rf /var/lib/apt/lists/*",
        ),
        why=f"In place of the base's libraries; the kernel's part is the host's. {release.why}",
    )
    return Half(apt=INSTALLER_NEEDS, steps=(installed,))

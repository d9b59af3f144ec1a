"""The block ``rdma``: the user space of RDMA NICs. One only: they replace each other's libraries."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import downloads, historical
from ringleader.images.instructions import Env, Run, Step, words
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, needed, text
from ringleader.images.stage_steps import Half, Halves, Setting

USER_SPACES = ("rdma-core", "doca-ofed", "mlnx-ofed", "efa", "erdma")

LIBRARIES = ("libibverbs1", "ibverbs-providers", "libibumad3")
HEADERS = ("libibverbs-dev", "librdmacm-dev", "libibumad-dev")
TOOLS = ("ibverbs-utils", "rdmacm-utils", "perftest", "infiniband-diags")
BEFORE_TIME64 = (
    *("debian:11", "debian:12"),
    *("ubuntu:16.04", "ubuntu:18.04", "ubuntu:20.04", "ubuntu:22.04"),
)
"""Releases whose librdmacm is not yet named for its 64-bit time. The vendors' never are."""
MELLANOX = "https://linux.mellanox.com/public/repo/doca"
ALIBABA = "https://mirrors.aliyun.com/erdma"
AMAZON = "/opt/amazon/efa"


@dataclass(frozen=True, kw_only=True)
class Rdma:
    """Arguments of the block. Kernel modules are the host's; an image carries the user space only."""

    user_space: str = needed(NAME, one_of=USER_SPACES)
    version: str = text(VERSION)
    """Empty: the base's for ``rdma-core``, the tables' newest for the others."""
    tools: bool = False
    """With ibv_devinfo, ib_write_bw and the like."""
    sha256: str = text(SHA256)
    """Of the installer of ``mlnx-ofed`` or ``efa``, for a version that the tables lack."""


def halves(block: Rdma, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.rdma(block, setting)
    if block.user_space == "efa":
        return _efa(block, setting)
    if block.user_space == "mlnx-ofed":
        return _mlnx_ofed(block, setting)
    headers = HEADERS if downloads.headers_needed(setting) else ()
    first, over = _repository(block, setting)
    return Halves(
        build=Half(before=first, apt=headers),
        runtime=Half(before=over, apt=_packages(block, setting)),
    )


def _packages(block: Rdma, setting: Setting) -> tuple[str, ...]:
    distribution = block.user_space == "rdma-core"
    time64 = distribution and setting.base.name not in BEFORE_TIME64
    manager = "librdmacm1t64" if time64 else "librdmacm1"
    libraries: tuple[str, ...] = (*LIBRARIES, manager)
    if distribution and block.version:
        libraries = tuple(f"{name}={block.version}*" for name in libraries)
    return (*libraries, *(TOOLS if block.tools else ()))


def _repository(block: Rdma, setting: Setting) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return what adds the vendor's repository in each half; nothing for the distribution's own packages."""
    if block.user_space == "rdma-core":
        return (), ()
    base = setting.base
    if block.user_space == "doca-ofed":
        name, key = "doca", f"{MELLANOX}/GPG-KEY-Mellanox.pub"
        release = downloads.release("doca", block.version, system=f"{base.family}{base.version}")
        line = f"deb [signed-by={{key}}] {release.url} ./"
    else:
        name, key = "erdma", f"{ALIBABA}/GPGKEY"
        line = f"deb [signed-by={{key}} arch=amd64] {ALIBABA}/apt/{base.family} {base.codename}/erdma main"
    added = downloads.repository(name, key, (line,))
    over = downloads.handed_over(f"{downloads.KEYRINGS}/{name}.asc", downloads.list_of(name))
    return (downloads.tools_first(), added), over


def _efa(block: Rdma, setting: Setting) -> Halves:
    """Return Amazon's libfabric, rdma-core and plugin for NCCL, in each half that needs them.

    The kernel module and the limits are the host's. Where the recipe has an MPI, Amazon's stays out.
    """
    release = downloads.release("efa", block.version, sha256=block.sha256)
    place = f"{downloads.PLACE}/efa"
    options = ["-y", "--skip-kmod", "--skip-limit-conf", "--no-verify"]
    if "mpi" in setting.blocks:
        options.append("--skip-mpi")
    install = words("env", f"--chdir={place}", "./efa_installer.sh", *options)
    why = f"EFA's user space by Amazon's installer. {release.why}"
    installed = Run(commands=(*_by_installer(release, install), "ldconfig"), why=why)
    needs = (*downloads.TOOLS, "pciutils")
    path = Env(variables=(("PATH", f"{AMAZON}/bin:${{PATH}}"),))
    build = Half(apt=needs, steps=(installed,)) if downloads.headers_needed(setting) else Half()
    return Halves(
        build=build, runtime=Half(apt=(*needs, *(TOOLS if block.tools else ())), steps=(installed, path))
    )


def _mlnx_ofed(block: Rdma, setting: Setting) -> Halves:
    """Return MLNX_OFED's user space by its installer: in each half that needs it."""
    base = setting.base
    system = f"{base.family}{base.version}"
    release = downloads.release("mlnx-ofed", block.version, sha256=block.sha256, system=system)
    place = downloads.source_of(release)
    install = words(f"{place}/mlnxofedinstall", "--user-space-only", "--without-fw-update", "--force")
    why = f"MLNX_OFED's user space by its installer. {release.why}"
    installed = Run(commands=_by_installer(release, install), why=why)
    half = Half(apt=(*downloads.TOOLS, "lsb-release", "perl"), steps=(installed,))
    return Halves(build=half if downloads.headers_needed(setting) else Half(), runtime=half)


def _by_installer(release: downloads.Release, install: str) -> tuple[str, ...]:
    """Return the commands that fetch a vendor's installer, run it, and leave only what it installs."""
    return (
        *downloads.unpacked(release),
        "apt-get update",
        f"DEBIAN_FRONTEND=noninteractive {install}",
        words("rm", "-rf", downloads.PLACE),
        "apt-get clean",
        "rm -rf /var/lib/apt/lists/*",
    )

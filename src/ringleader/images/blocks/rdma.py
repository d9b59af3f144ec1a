"""The block ``rdma``: the user space of RDMA NICs. One only: they replace each other's libraries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ringleader.images.blocks.block import Block, Conflict
from ringleader.images.blocks.compilation import on_path
from ringleader.images.blocks.downloads import PLACE, TOOLS, Project, Release, repository, unpacked
from ringleader.images.instructions import Run, Step, shell
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, needed, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

USER_SPACES = ("rdma-core", "doca-ofed", "mlnx-ofed", "efa", "erdma")

LIBRARIES = ("libibverbs1", "ibverbs-providers", "libibumad3")
HEADERS = ("libibverbs-dev", "librdmacm-dev", "libibumad-dev")
PROGRAMS = ("ibverbs-utils", "rdmacm-utils", "perftest", "infiniband-diags")
BEFORE_TIME64 = (
    *("debian:11", "debian:12"),
    *("ubuntu:16.04", "ubuntu:18.04", "ubuntu:20.04", "ubuntu:22.04"),
)
"""Releases whose librdmacm is not yet named for its 64-bit time. The vendors' never are."""
MELLANOX = "https://linux.mellanox.com/public/repo/doca"
ALIBABA = "https://mirrors.aliyun.com/erdma"
AMAZON = "/opt/amazon/efa"
DOCA = Project(
    name="doca",
    title="DOCA",
    url="https://linux.mellanox.com/public/repo/doca/{version}/{system}/",
    source="NVIDIA/hpc-container-maker doca_ofed block (layout); 3.3.0 and 2.10.0 there, "
    "the others in the Dockerfiles of third parties",
    versions=(
        "3.3.0",
        "3.2.0",
        "3.1.0",
        "2.10.0",
        "2.9.2",
    ),
    is_repository=True,
)
MLNX_OFED = Project(
    name="mlnx-ofed",
    title="MLNX_OFED",
    url="https://content.mellanox.com/ofed/MLNX_OFED-{version}/MLNX_OFED_LINUX-{version}-{system}.tgz",
    source="NVIDIA's download page of MLNX_OFED; 24.10 is its last series, DOCA-OFED follows it",
    versions=(
        "24.10-3.2.5.0",
        "4.5-1.0.1.0",
    ),
)
"""No checksums of it are public."""
EFA = Project(
    name="efa",
    title="EFA installer",
    url="https://efa-installer.amazonaws.com/aws-efa-installer-{version}.tar.gz",
    source="ai-dynamo/dynamo, recipes/nemotron-3.5-lightning",
    sha256={
        "1.49.0": "cf2e9281a2328a243c76f911a490faed43ca0fecfe4733c25e34b2e92a32c309",
    },
)
PROJECTS = {"efa": EFA, "mlnx-ofed": MLNX_OFED, "doca-ofed": DOCA}
"""User space → what is fetched for it."""

HISTORICAL_OFED = "4.5-1.0.1.0"
"""Of 2018, for Ubuntu 16.04 and 18.04 alike."""
HISTORICAL_LIBRARIES = {"ubuntu:16.04": ("libibverbs1", "libmlx4-1", "libmlx5-1", "librdmacm1")}
"""Before rdma-core was packaged as one, each provider had its own package."""
PROVIDERS = ("ibverbs-providers", "libibverbs1", "librdmacm1")
INSTALLER_NEEDS = (
    *(*TOOLS, "ethtool", "libnl-3-200", "libnl-route-3-200", "libnuma1", "lsb-release"),
    *("pciutils", "perl", "python", "python-libxml2"),
)


@dataclass(frozen=True, kw_only=True)
class Rdma(Block):
    """Arguments of the block. Kernel modules are the host's; an image carries the user space only."""

    table = "rdma"
    selects = (("rdma", "user_space"), ("rdma_version", "version"))
    projects = tuple(PROJECTS.values())
    libraries = ("libibverbs.so.1", "librdmacm.so.1")

    user_space: str = needed(NAME, one_of=USER_SPACES)
    version: str = text(VERSION)
    """Empty: the base's for ``rdma-core``, the tables' newest for the others."""
    tools: bool = False
    """With ibv_devinfo, ib_write_bw and the like."""
    sha256: str = text(SHA256)
    """Of the installer of ``mlnx-ofed`` or ``efa``, for a version that the tables lack; of the key of the
    repository of ``doca-ofed`` or ``erdma``."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the user space; with headers in the build stage where a block compiles against them."""
        is_compiled_with = any(block.uses_verbs() for block in image.blocks.values())
        if self.user_space in ("efa", "mlnx-ofed"):
            installed = self._efa(image) if self.user_space == "efa" else self._mlnx_ofed(image)
            build = replace(installed, steps=installed.steps[:1], apt=self._installer_needs())
            return BlockSteps(build=build if is_compiled_with else StageSteps(), runtime=installed)
        first, over = self._repository(image)
        return BlockSteps(
            build=StageSteps(before=first, apt=HEADERS if is_compiled_with else ()),
            runtime=StageSteps(before=over, apt=self._packages(image)),
        )

    def _packages(self, image: ImageContext) -> tuple[str, ...]:
        distribution = self.user_space == "rdma-core"
        time64 = distribution and image.base.name not in BEFORE_TIME64
        manager = "librdmacm1t64" if time64 else "librdmacm1"
        libraries: tuple[str, ...] = (*LIBRARIES, manager)
        if distribution and self.version:
            libraries = tuple(f"{name}={self.version}*" for name in libraries)
        return (*libraries, *(PROGRAMS if self.tools else ()))

    def _repository(self, image: ImageContext) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Return what adds the vendor's repository in each stage; nothing for the distribution's packages."""
        base = image.base
        if self.user_space == "rdma-core":
            return (), ()
        if self.user_space == "doca-ofed":
            machine = "arm64-sbsa" if image.machine == "aarch64" else image.machine
            url = DOCA.release(self.version, system=f"{base.family}{base.version}/{machine}").url
            key = f"{MELLANOX}/GPG-KEY-Mellanox.pub"
            return repository("doca", key, f"deb [signed-by={{key}}] {url} ./", sha256=self.sha256)
        line = f"deb [signed-by={{key}} arch=amd64] {ALIBABA}/apt/{base.family} {base.codename}/erdma main"
        return repository("erdma", f"{ALIBABA}/GPGKEY", line, sha256=self.sha256)

    def _installer_needs(self) -> tuple[str, ...]:
        return (*TOOLS, "pciutils") if self.user_space == "efa" else (*TOOLS, "lsb-release", "perl")

    def _efa(self, image: ImageContext) -> StageSteps:
        """Return Amazon's libfabric, rdma-core and plugin for NCCL.

        The kernel module and the limits are the host's. Where the recipe has an MPI, Amazon's stays out.
        """
        release = EFA.release(self.version, sha256=self.sha256)
        options = ["-y", "--skip-kmod", "--skip-limit-conf", "--no-verify"]
        options += ["--skip-mpi"] if "mpi" in image.blocks else []
        install = shell("env", f"--chdir={release.directory}", "./efa_installer.sh", *options)
        why = f"EFA's user space by Amazon's installer. {release.why}"
        installed = Run(commands=(*_by_installer(release, install), "ldconfig"), why=why)
        apt = (*self._installer_needs(), *(PROGRAMS if self.tools else ()))
        return StageSteps(apt=apt, steps=(installed, on_path(AMAZON)))

    def _mlnx_ofed(self, image: ImageContext) -> StageSteps:
        """Return MLNX_OFED's user space by its installer."""
        release = _ofed_release(self.version, self.sha256, image)
        installer = f"{release.directory}/mlnxofedinstall"
        install = shell(installer, "--user-space-only", "--without-fw-update", "--force")
        why = f"MLNX_OFED's user space by its installer. {release.why}"
        installed = Run(commands=_by_installer(release, install), why=why)
        return StageSteps(apt=self._installer_needs(), steps=(installed,))

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return the libraries; with headers in a stage that compiles. One user space in both."""
        if self.user_space == "mlnx-ofed":
            return image.in_both_stages(self._historical_ofed(image))
        names = HISTORICAL_LIBRARIES.get(image.base.name, PROVIDERS)
        libraries = (*names, *(PROGRAMS[:3] if self.tools else ()))
        headers = StageSteps(apt=(*libraries, *HEADERS[:2]))
        return image.in_both_stages(StageSteps(apt=libraries), headers)

    def _historical_ofed(self, image: ImageContext) -> StageSteps:
        release = _ofed_release(self.version or HISTORICAL_OFED, self.sha256, image)
        options = ("--user-space-only", "--without-fw-update", "--force", "-q")
        installed = Run(
            commands=(
                *unpacked(release),
                "apt-get update",
                f"DEBIAN_FRONTEND=noninteractive {shell(f'{release.directory}/mlnxofedinstall', *options)}",
                shell("rm", "-rf", PLACE),
                "rm -rf /var/lib/apt/lists/*",
            ),
            why=f"In place of the base's libraries; the kernel's part is the host's. {release.why}",
        )
        return StageSteps(apt=INSTALLER_NEEDS, steps=(installed,))

    def releases(self) -> tuple[Release, ...]:
        """Return the vendor's installer, or its repository."""
        project = PROJECTS.get(self.user_space)
        return (project.release(self.version, sha256=self.sha256),) if project is not None else ()

    def bin_directories(self) -> tuple[str, ...]:
        """Return Amazon's."""
        return (f"{AMAZON}/bin",) if self.user_space == "efa" else ()

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield versions and checksums that mean nothing, and a second libfabric."""
        yield from self.unused_checksum(
            bool(self.sha256) and self.user_space == "rdma-core",
            hint="it goes with the vendors' user spaces",
        )
        if self.version and self.user_space == "erdma":
            what = "Alibaba's repository has one version"
            yield Conflict(path=("rdma", "version"), what=what, hint="leave it out")
        if self.user_space == "efa" and "libfabric" in blocks:
            what = "EFA brings a libfabric of its own"
            yield Conflict(path=("libfabric",), what=what, hint="leave the block out")

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield user spaces and versions that the bases of then had not."""
        if self.user_space not in ("rdma-core", "mlnx-ofed"):
            what = f"there was no {self.user_space} for the bases of historical images"
            yield Conflict(path=("rdma", "user-space"), what=what, hint="rdma-core or mlnx-ofed")
        elif self.user_space == "rdma-core":
            for key in ("version", "sha256"):
                if getattr(self, key):
                    what = "the distribution has one version of it"
                    yield Conflict(path=("rdma", key), what=what, hint="it goes with mlnx-ofed")


def _ofed_release(version: str, sha256: str, image: ImageContext) -> Release:
    system = f"{image.base.family}{image.base.version}-{image.machine}"
    return MLNX_OFED.release(version, sha256=sha256, system=system)


def _by_installer(release: Release, install: str) -> tuple[str, ...]:
    """Return the commands that fetch a vendor's installer, run it, and leave only what it installs."""
    return (
        *unpacked(release),
        "apt-get update",
        f"DEBIAN_FRONTEND=noninteractive {install}",
        shell("rm", "-rf", PLACE),
        "apt-get clean",
        "rm -rf /var/lib/apt/lists/*",
    )

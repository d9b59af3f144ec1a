"""The blocks of what carries bytes between hosts: RDMA user space, libfabric, UCX, and the MPI. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ringleader.images.blocks.block import Block, BlockSteps, BuildableBlock, ImageContext, StageSteps
from ringleader.images.blocks.downloads import (
    CUDA,
    PLACE,
    TOOLS,
    Release,
    on_path,
    release,
    repository,
    unpacked,
)
from ringleader.images.blocks.system import account_of
from ringleader.images.instructions import Env, Run, Step, shell
from ringleader.images.recipe import FINGERPRINT, NAME, SHA256, VERSION, Conflict, needed, text

USER_SPACES = {"rdma-core": "", "doca-ofed": "doca", "mlnx-ofed": "mlnx-ofed", "efa": "efa", "erdma": ""}
"""User space → the project that is fetched for it."""
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


@dataclass(frozen=True, kw_only=True)
class Rdma(Block):
    """The user space of RDMA NICs. One only: they replace each other's libraries.

    Kernel modules are the host's; an image carries the user space only.
    """

    table = "rdma"
    projects = ("efa", "mlnx-ofed", "doca")
    libraries = ("libibverbs.so.1", "librdmacm.so.1")

    user_space: str = needed(NAME, one_of=tuple(USER_SPACES))
    version: str = text(VERSION)
    """Empty: the base's for ``rdma-core``, the tables' newest for the others."""
    tools: bool = False
    """With ibv_devinfo, ib_write_bw and the like."""
    sha256: str = text(SHA256)
    """Of the installer of ``mlnx-ofed`` or ``efa``, for a version that the tables lack; of the key of the
    repository of ``doca-ofed`` or ``erdma``."""
    fingerprint: str = text(FINGERPRINT)
    """Of the key that signs the repository of ``doca-ofed`` or ``erdma``: no other key may be in its file."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the user space; with headers in the build stage where a block compiles against them."""
        is_compiled_with = any(block.uses_verbs() for block in image.blocks.values())
        if self.user_space in ("efa", "mlnx-ofed"):
            installed, needs = self._efa(image) if self.user_space == "efa" else self._mlnx_ofed(image)
            build = replace(installed, steps=installed.steps[:1], apt=needs)
            return BlockSteps(build=build if is_compiled_with else StageSteps(), runtime=installed)
        first, over = self._repository(image)
        return BlockSteps(
            build=StageSteps(before=first, apt=HEADERS if is_compiled_with else ()),
            runtime=StageSteps(before=over, apt=self._packages(image)),
        )

    def _packages(self, image: ImageContext) -> tuple[str, ...]:
        distribution = self.user_space == "rdma-core"
        time64 = distribution and image.base.name not in BEFORE_TIME64
        libraries: tuple[str, ...] = (*LIBRARIES, "librdmacm1t64" if time64 else "librdmacm1")
        if distribution and self.version:
            libraries = tuple(f"{name}={self.version}*" for name in libraries)
        return (*libraries, *(PROGRAMS if self.tools else ()))

    def _repository(self, image: ImageContext) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
        """Return what adds the vendor's repository in each stage; nothing for the distribution's packages."""
        base = image.base
        if self.user_space == "rdma-core":
            return (), ()
        known = {"sha256": self.sha256, "fingerprint": self.fingerprint}
        if self.user_space == "doca-ofed":
            machine = "arm64-sbsa" if image.machine == "aarch64" else image.machine
            url = release("doca", self.version, system=f"{base.family}{base.version}/{machine}").url
            key = f"{MELLANOX}/GPG-KEY-Mellanox.pub"
            return repository("doca", key, f"deb [signed-by={{key}}] {url} ./", **known)
        line = f"deb [signed-by={{key}} arch=amd64] {ALIBABA}/apt/{base.family} {base.codename}/erdma main"
        return repository("erdma", f"{ALIBABA}/GPGKEY", line, **known)

    def _efa(self, image: ImageContext) -> tuple[StageSteps, tuple[str, ...]]:
        """Return Amazon's libfabric, rdma-core and plugin for NCCL, and what its installer needs.

        The kernel module and the limits are the host's. Where the recipe has an MPI, Amazon's stays out.
        """
        found = release("efa", self.version, sha256=self.sha256)
        options = ["-y", "--skip-kmod", "--skip-limit-conf", "--no-verify"]
        options += ["--skip-mpi"] if "mpi" in image.blocks else []
        install = shell("env", f"--chdir={found.directory}", "./efa_installer.sh", *options)
        why = f"EFA's user space by Amazon's installer. {found.why}"
        installed = Run(commands=(*_by_installer(found, install), "ldconfig"), why=why)
        needs = (*TOOLS, "pciutils")
        apt = (*needs, *(PROGRAMS if self.tools else ()))
        return StageSteps(apt=apt, steps=(installed, on_path(AMAZON))), needs

    def _mlnx_ofed(self, image: ImageContext) -> tuple[StageSteps, tuple[str, ...]]:
        """Return MLNX_OFED's user space, and what its installer needs."""
        system = f"{image.base.family}{image.base.version}-{image.machine}"
        found = release("mlnx-ofed", self.version, sha256=self.sha256, system=system)
        installer = f"{found.directory}/mlnxofedinstall"
        install = shell(installer, "--user-space-only", "--without-fw-update", "--force")
        why = f"MLNX_OFED's user space by its installer. {found.why}"
        needs = (*TOOLS, "lsb-release", "perl")
        return StageSteps(apt=needs, steps=(Run(commands=_by_installer(found, install), why=why),)), needs

    def releases(self) -> tuple[Release, ...]:
        """Return the vendor's installer, or its repository."""
        name = USER_SPACES[self.user_space]
        return (release(name, self.version, sha256=self.sha256),) if name else ()

    def bin_directories(self) -> tuple[str, ...]:
        """Return Amazon's."""
        return (f"{AMAZON}/bin",) if self.user_space == "efa" else ()

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield versions and checksums that mean nothing, and a second libfabric."""
        yield from self.unused_checksum(
            bool(self.sha256) and self.user_space == "rdma-core",
            hint="it goes with the vendors' user spaces",
        )
        if self.fingerprint and self.user_space not in ("doca-ofed", "erdma"):
            what, hint = "no repository is added whose key it could verify", "leave it out"
            yield Conflict(("rdma", "fingerprint"), what, hint)
        if self.version and self.user_space == "erdma":
            yield Conflict(("rdma", "version"), "Alibaba's repository has one version", "leave it out")
        if self.user_space == "efa" and "libfabric" in blocks:
            yield Conflict(("libfabric",), "EFA brings its own libfabric", "leave the block out")


def _by_installer(one: Release, install: str) -> tuple[str, ...]:
    """Return the commands that fetch a vendor's installer, run it, and leave only what it installs."""
    return (
        *unpacked(one),
        "apt-get update",
        f"DEBIAN_FRONTEND=noninteractive {install}",
        shell("rm", "-rf", PLACE),
        "apt-get clean",
        "rm -rf /var/lib/apt/lists/*",
    )


@dataclass(frozen=True, kw_only=True)
class Libfabric(BuildableBlock):
    """The transport library below EFA, and of MPICH."""

    table = "libfabric"
    projects = ("libfabric",)
    libraries = ("libfabric.so.1",)
    compiled_for_cuda = "libfabric"

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the base's packages, or what compiles it."""
        if not self.is_built:
            return BlockSteps(runtime=StageSteps(apt=self.pinned("libfabric1", "libfabric-bin")))
        verbs = "--enable-verbs" if "rdma" in image.blocks else "--disable-verbs"
        cuda = (f"--with-cuda={CUDA}", "--enable-cuda-dlopen") if "cuda" in image.blocks else ()
        return self.compiled("--disable-static", verbs, *cuda, apt=("bzip2",))


@dataclass(frozen=True, kw_only=True)
class Ucx(BuildableBlock):
    """The transport library below Open MPI and MPICH."""

    table = "ucx"
    projects = ("ucx",)
    compiled_for_cuda = "UCX"
    libraries = ("libucp.so.0",)

    cuda: bool = False
    """With GPU memory; needs the block ``cuda`` and ``source = "build"``."""

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the base's packages, or what compiles it."""
        if not self.is_built:
            return BlockSteps(runtime=StageSteps(apt=self.pinned("libucx0", "ucx-utils")))
        verbs = ("--with-verbs", "--with-rdmacm") if "rdma" in image.blocks else ("--without-verbs",)
        cuda = f"--with-cuda={CUDA}" if self.cuda else "--without-cuda"
        return self.compiled(
            *("--enable-mt", *verbs, cuda, "--without-go", "--without-java", "--disable-static"),
            configure="./contrib/configure-release",
            why="Ranks with several threads may use it.",
        )

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself, where it is compiled for GPU memory."""
        return super().needs_nvcc(blocks) if self.cuda else ()

    def conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield a checksum and GPU memory of what is not compiled."""
        yield from super().conflicts(blocks, compiled_in)
        if self.cuda and (not self.is_built or "cuda" not in blocks):
            hint = 'it goes with source = "build" and the block cuda'
            yield Conflict(("ucx", "cuda"), "the distribution's UCX knows no GPU memory", hint)


AS_ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
"""Open MPI refuses to run as root unless both say so."""
PACKAGES = {"openmpi": "openmpi-bin", "mpich": "mpich"}


@dataclass(frozen=True, kw_only=True)
class Mpi(BuildableBlock):
    """The MPI that starts the ranks."""

    table = "mpi"
    projects = ("openmpi", "mpich")
    compiled_for_cuda = "the MPI"

    kind: str = text(NAME, "openmpi", one_of=("openmpi", "mpich"))

    @property
    def project(self) -> str:
        """The project whose release is compiled: the kind."""
        return self.kind

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the base's package, or what compiles it."""
        root = self.kind == "openmpi" and account_of(image).is_root
        as_root: tuple[Step, ...] = (Env(variables=AS_ROOT),) if root else ()
        if not self.is_built:
            return BlockSteps(runtime=StageSteps(apt=self.pinned(PACKAGES[self.kind]), steps=as_root))
        options = _openmpi(self.release.version, image) if self.kind == "openmpi" else _mpich(image)
        headers = ((name, f"lib{name}-dev") for name in ("ucx", "libfabric"))
        packaged = (package for name, package in headers if name in image.blocks and not image.built(name))
        built = self.compiled(*options, apt=("bzip2", *packaged))
        return BlockSteps(
            build=replace(built.build, steps=(*built.build.steps, on_path(self.prefix))),
            runtime=replace(built.runtime, steps=(*built.runtime.steps, *as_root)),
        )


def _transport(name: str, image: ImageContext) -> str:
    """Return where a transport library lies: its prefix, ``yes`` for the base's, empty for none."""
    if name in image.blocks:
        return f"/opt/{name}" if image.built(name) else "yes"
    rdma = image.blocks.get("rdma")
    return AMAZON if name == "libfabric" and rdma is not None and rdma.user_space == "efa" else ""


def _openmpi(version: str, image: ImageContext) -> tuple[str, ...]:
    """Return configure's options.

    With a prefix by default remote daemons are found without PATH. Libraries that it brings are taken from
    it, so that the image needs no package besides.
    """
    new = int(version.partition(".")[0]) >= 5
    ucx, ofi = _transport("ucx", image), _transport("libfabric", image)
    cuda = (f"--with-cuda={CUDA}", *([f"--with-cuda-libdir={CUDA}/lib64/stubs"] if new else []))
    return (
        "--enable-prte-prefix-by-default" if new else "--enable-orterun-prefix-by-default",
        "--enable-mpi-fortran=no",
        *(f"--with-{name}=internal" for name in ("hwloc", "libevent", "pmix")),
        f"--with-ucx={ucx}" if ucx else "--without-ucx",
        f"--with-ofi={ofi}" if ofi else "--without-ofi",
        "--with-prrte=internal" if new else "--without-verbs",
        *(cuda if "cuda" in image.blocks else ()),
    )


def _mpich(image: ImageContext) -> tuple[str, ...]:
    """Return configure's options: UCX, else libfabric, else the one that MPICH brings."""
    ucx, ofi = _transport("ucx", image), _transport("libfabric", image)
    options = ["--disable-fortran", "--with-hwloc=embedded"]
    if ucx:
        options += ["--with-device=ch4:ucx", *([f"--with-ucx={ucx}"] if ucx != "yes" else [])]
    else:
        options += ["--with-device=ch4:ofi", *([f"--with-libfabric={ofi}"] if "/" in ofi else [])]
    return (*options, f"--with-cuda={CUDA}" if "cuda" in image.blocks else "--without-cuda")

"""The block ``mpi``: the MPI that starts the ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from ringleader.images.blocks.account import account_of
from ringleader.images.blocks.block import BuildableBlock, Conflict
from ringleader.images.blocks.compilation import CUDA, compiled, on_path
from ringleader.images.blocks.downloads import PLACE, TOOLS, Project, Release, unpacked
from ringleader.images.instructions import Env, Run, Step, shell, write
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, text
from ringleader.images.stage_steps import BlockSteps, ImageContext, StageSteps

AS_ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
"""Open MPI refuses to run as root unless both say so."""
PACKAGES = {"openmpi": "openmpi-bin", "mpich": "mpich"}
HISTORICAL_PREFIX = "/usr/local"
PARAMETERS = (
    "hwloc_base_binding_policy = none",
    "rmaps_base_mapping_policy = slot",
    "btl_tcp_if_exclude = lo,docker0",
)
"""One process per GPU, not bound to one core; and no network that only one host has."""
WRAPPER = ("#!/bin/sh", f'exec {HISTORICAL_PREFIX}/bin/mpirun.real --allow-run-as-root "$@"')
OPENMPI = Project(
    name="openmpi",
    title="Open MPI",
    url="https://download.open-mpi.org/release/open-mpi/v{series}/openmpi-{version}.tar.bz2",
    source="spack/spack-packages openmpi/package.py; 5.0.9: Homebrew's formula open-mpi",
    sha256={
        "5.0.9": "dfb72762531170847af3e4a0f21d77d7b23cf36f67ce7ce9033659273677d80b",
        "5.0.8": "53131e1a57e7270f645707f8b0b65ba56048f5b5ac3f68faabed3eb0d710e449",
        "5.0.7": "119f2009936a403334d0df3c0d74d5595a32d99497f9b1d41e90019fee2fc2dd",
        "5.0.6": "bd4183fcbc43477c254799b429df1a6e576c042e74a2d2f8b37d537b2ff98157",
        "5.0.5": "6588d57c0a4bd299a24103f4e196051b29e8b55fbda49e11d5b3d32030a32776",
        "5.0.3": "990582f206b3ab32e938aa31bbf07c639368e4405dca196fabe7f0f76eeda90b",
        "5.0.0": "9d845ca94bc1aeb445f83d98d238cd08f6ec7ad0f73b0f79ec1668dbfdacd613",
        "4.1.8": "466f68e3132a1dc02710cc2011fafced8336d98359fa2dae4dddcfd5719f12a9",
        "4.1.7": "54a33cb7ad81ff0976f15a6cc8003c3922f0f3d8ceed14e1813ef3603f22cd34",
        "4.1.6": "f740994485516deb63b5311af122c265179f5328a0d857a567b85db00b11e415",
        "4.1.5": "a640986bc257389dd379886fdae6264c8cfa56bc98b71ce3ae3dfbd8ce61dbe3",
        "4.1.4": "92912e175fd1234368c8730c03f4996fe5942e7479bb1d10059405e7f2b3930d",
        "4.1.2": "9b78c7cf7fc32131c5cf43dd2ab9740149d9d87cadb2e2189f02685749a6b527",
        "4.1.0": "73866fb77090819b6a8c85cb8539638d37d6877455825b74e289d647a39fd5b5",
        "4.0.7": "7d3ecc8389161eb721982c855f89c25dca289001577a01a439ae97ce872be997",
        "4.0.3": "1402feced8c3847b3ab8252165b90f7d1fa28c23b6b2ca4632b6e4971267fd03",
        "4.0.0": "2f0b8a36cfeb7354b45dda3c5425ef8393c9b04115570b615213faaa3f97366b",
        "3.1.6": "50131d982ec2a516564d74d5616383178361c2f08fdd7d1202b80bdf66a0d279",
        "3.1.2": "c654ed847f34a278c52a15c98add40402b4a90f0c540779f1ae6c489af8a76c5",
        "3.0.0": "f699bff21db0125d8cccfe79518b77641cd83628725a1e1ed3e45633496a82d7",
    },
)
MPICH = Project(
    name="mpich",
    title="MPICH",
    url="https://www.mpich.org/static/downloads/{version}/mpich-{version}.tar.gz",
    source="spack/spack-packages mpich/package.py",
    sha256={
        "5.0.1": "8c1832a13ddacf071685069f5fadfd1f2877a29e1a628652892c65211b1f3327",
        "4.3.2": "47d774587a7156a53752218c811c852e70ac44db9c502dc3f399b4cb817e3818",
        "4.3.1": "acc11cb2bdc69678dc8bba747c24a28233c58596f81f03785bf2b7bb7a0ef7dc",
        "4.2.3": "7a019180c51d1738ad9c5d8d452314de65e828ee240bcb2d1f80de9a65be88a8",
        "4.2.1": "23331b2299f287c3419727edc2df8922d7e7abbb9fd0ac74e03b9966f9ad42d7",
        "4.2.0": "a64a66781b9e5312ad052d32689e23252f745b27ee8818ac2ac0c8209bc0b90e",
        "4.0.2": "5a42f1a889d4a2d996c26e48cbf9c595cbf4316c6814f7c181e3320d21dedd42",
        "4.0": "df7419c96e2a943959f7ff4dc87e606844e736e30135716971aba58524fbff64",
        "3.4.1": "8836939804ef6d492bcee7d54abafd6477d2beca247157d92688654d13779727",
        "3.3.2": "4bfaf8837a54771d3e4922c84071ef80ffebddbb6971a006038d91ee7ef959b9",
        "3.2": "0778679a6b693d7b7caff37ff9d2856dc2bfc51318bf8373859bfa74253da3dc",
    },
)
PROJECTS = {"openmpi": OPENMPI, "mpich": MPICH}


@dataclass(frozen=True, kw_only=True)
class Mpi(BuildableBlock):
    """Arguments of the block."""

    table = "mpi"
    selects = (("mpi", "kind"), ("mpi_version", "version"), ("mpi_source", "source"))
    projects = (OPENMPI, MPICH)

    kind: str = text(NAME, "openmpi", one_of=("openmpi", "mpich"))
    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    """``build``: from the project's release, with the recipe's UCX, libfabric and CUDA."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    @property
    def release(self) -> Release:
        """The release that is compiled, of the kind that the recipe names."""
        return PROJECTS[self.kind].release(self.version, sha256=self.sha256)

    def steps(self, image: ImageContext) -> BlockSteps:
        """Return the base's package, or what compiles it."""
        root = self.kind == "openmpi" and account_of(image).is_root
        as_root: tuple[Step, ...] = (Env(variables=AS_ROOT),) if root else ()
        if self.source == "base":
            name = PACKAGES[self.kind]
            exact = f"{name}={self.version}*" if self.version else name
            return BlockSteps(runtime=StageSteps(apt=(exact,), steps=as_root))
        options = _openmpi(self.release.version, image) if self.kind == "openmpi" else _mpich(image)
        built = compiled(self.release, self.prefix, options, apt=("bzip2", *_headers(image)))
        path = on_path(self.prefix)
        return BlockSteps(
            build=replace(built.build, steps=(*built.build.steps, path)),
            runtime=replace(built.runtime, steps=(*built.runtime.steps, *as_root)),
        )

    def historical_steps(self, image: ImageContext) -> BlockSteps:
        """Return Open MPI in /usr/local; its ``mpirun`` runs as root and tells hosts where it lies."""
        if not self.is_built:
            names = ("openmpi-bin", "libopenmpi-dev")
            exact = tuple(f"{name}={self.version}*" if self.version else name for name in names)
            return BlockSteps(runtime=StageSteps(apt=exact))
        return BlockSteps(
            runtime=StageSteps(
                apt=("build-essential", "bzip2", *TOOLS),
                steps=(_compiled_in_place(self.release), _runs_as_root()),
            )
        )

    def needs_nvcc(self, blocks: Mapping[str, object]) -> tuple[str, ...]:
        """Return itself, where it is compiled beside CUDA."""
        return ("the MPI",) if "cuda" in blocks and self.is_built else ()

    def historical_conflicts(self, blocks: Mapping[str, object], compiled_in: str) -> Iterator[Conflict]:
        """Yield what only modern images can have, and a release that is not named."""
        if self.kind != "openmpi":
            what = "historical images have Open MPI only"
            yield Conflict(path=("mpi", "kind"), what=what, hint="leave it out")
        if self.is_built and not self.version:
            what = "which release is compiled is not said"
            yield Conflict(path=("mpi", "version"), what=what, hint='version = "3.0.0"')
        yield from self.conflicts(blocks, compiled_in)

    def shell_checks(self, image: ImageContext) -> Iterator[str]:
        """Start two processes."""
        yield "check mpirun timeout {deadline} mpirun -np 2 --oversubscribe hostname"


def _headers(image: ImageContext) -> tuple[str, ...]:
    """Return the packages with headers of transport libraries that the base packages."""
    wanted = {"ucx": "libucx-dev", "libfabric": "libfabric-dev"}
    blocks = ((image.blocks.get(name), package) for name, package in wanted.items())
    return tuple(package for block, package in blocks if block is not None and block.source == "base")


def _transport(name: str, image: ImageContext) -> str:
    """Return where a transport library lies: its prefix, ``yes`` for the base's, empty for none."""
    block = image.blocks.get(name)
    if block is None:
        rdma = image.blocks.get("rdma")
        amazon = name == "libfabric" and rdma is not None and rdma.user_space == "efa"
        return "/opt/amazon/efa" if amazon else ""
    return f"/opt/{name}" if block.source == "build" else "yes"


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


def _compiled_in_place(release: Release) -> Run:
    place = shell(release.directory)
    configure = shell("./configure", f"--prefix={HISTORICAL_PREFIX}", "--enable-orterun-prefix-by-default")
    return Run(
        commands=(
            *unpacked(release),
            f"(cd {place} && {configure})",
            f'make -C {place} -j "$(nproc)" all',
            f"make -C {place} install",
            "ldconfig",
            shell("rm", "-rf", PLACE),
        ),
        why=f"{release.why} Hosts find each other's orted by its prefix, not by PATH.",
    )


def _runs_as_root() -> Run:
    mpirun = f"{HISTORICAL_PREFIX}/bin/mpirun"
    return Run(
        commands=(
            shell("mv", mpirun, f"{mpirun}.real"),
            write(mpirun, WRAPPER),
            shell("chmod", "0755", mpirun),
            write(f"{HISTORICAL_PREFIX}/etc/openmpi-mca-params.conf", PARAMETERS, append=True),
        ),
        why="All is root here, and Open MPI refuses that unless told.",
    )

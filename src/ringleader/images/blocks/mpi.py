"""The block ``mpi``: the MPI that starts the ranks."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import downloads, historical
from ringleader.images.blocks.account import account_of
from ringleader.images.instructions import Env, Run, Step, words
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, text
from ringleader.images.stage_steps import Half, Halves, Setting

AS_ROOT = (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"))
"""Open MPI refuses to run as root unless both say so."""
PACKAGES = {"openmpi": "openmpi-bin", "mpich": "mpich"}
CUDA = "/usr/local/cuda"


@dataclass(frozen=True, kw_only=True)
class Mpi:
    """Arguments of the block."""

    kind: str = text(NAME, "openmpi", one_of=("openmpi", "mpich"))
    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    """``build``: from the project's release, with the recipe's UCX, libfabric and CUDA."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    @property
    def prefix(self) -> str:
        """Where it is installed when it is built."""
        return f"/opt/{self.kind}"


def halves(block: Mpi, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.mpi(block, setting)
    return _built(block, setting) if block.source == "build" else _packaged(block, setting)


def _as_root(block: Mpi, setting: Setting) -> tuple[Step, ...]:
    root = block.kind == "openmpi" and account_of(setting).is_root
    return (Env(variables=AS_ROOT),) if root else ()


def _packaged(block: Mpi, setting: Setting) -> Halves:
    name = PACKAGES[block.kind]
    exact = f"{name}={block.version}*" if block.version else name
    return Halves(runtime=Half(apt=(exact,), steps=_as_root(block, setting)))


def _built(block: Mpi, setting: Setting) -> Halves:
    release = downloads.release(block.kind, block.version, sha256=block.sha256)
    options = _openmpi(release.version, setting) if block.kind == "openmpi" else _mpich(setting)
    place = downloads.source_of(release)
    compiled = Run(
        commands=(
            *downloads.unpacked(release),
            words("env", f"--chdir={place}", "./configure", f"--prefix={block.prefix}", *options),
            f'make -j "$(nproc)" -C {place}',
            f"make -C {place} install",
            words("rm", "-rf", place),
        ),
        why=release.why,
    )
    path = Env(variables=(("PATH", f"{block.prefix}/bin:${{PATH}}"),))
    return Halves(
        build=Half(
            apt=("build-essential", "bzip2", *downloads.TOOLS, *_headers(setting)),
            steps=(compiled, downloads.linked(block.prefix), path),
            last=(downloads.trimmed(block.prefix),),
        ),
        runtime=Half(
            steps=(
                downloads.here(block.prefix),
                downloads.linked(block.prefix),
                path,
                *_as_root(block, setting),
            )
        ),
    )


def _headers(setting: Setting) -> tuple[str, ...]:
    """Return the packages with headers of transport libraries that the base packages."""
    wanted = {"ucx": "libucx-dev", "libfabric": "libfabric-dev"}
    blocks = ((setting.blocks.get(name), package) for name, package in wanted.items())
    return tuple(package for block, package in blocks if block is not None and block.source == "base")


def transport(name: str, setting: Setting) -> str:
    """Return where a transport library lies: its prefix, ``yes`` for the base's, empty for none."""
    block = setting.blocks.get(name)
    if block is None:
        rdma = setting.blocks.get("rdma")
        amazon = name == "libfabric" and rdma is not None and rdma.user_space == "efa"
        return "/opt/amazon/efa" if amazon else ""
    return f"/opt/{name}" if block.source == "build" else "yes"


def _openmpi(version: str, setting: Setting) -> tuple[str, ...]:
    """Return configure's options.

    With a prefix by default remote daemons are found without PATH. Libraries that it brings are taken from
    it, so that the image needs no package besides.
    """
    new = int(version.partition(".")[0]) >= 5
    ucx, ofi = transport("ucx", setting), transport("libfabric", setting)
    options = [
        "--enable-prte-prefix-by-default" if new else "--enable-orterun-prefix-by-default",
        "--enable-mpi-fortran=no",
        *(f"--with-{name}=internal" for name in ("hwloc", "libevent", "pmix")),
        f"--with-ucx={ucx}" if ucx else "--without-ucx",
        f"--with-ofi={ofi}" if ofi else "--without-ofi",
    ]
    if new:
        options.append("--with-prrte=internal")
    else:
        options.append("--without-verbs")
    if "cuda" in setting.blocks:
        options.append(f"--with-cuda={CUDA}")
        options += [f"--with-cuda-libdir={CUDA}/lib64/stubs"] if new else []
    return tuple(options)


def _mpich(setting: Setting) -> tuple[str, ...]:
    """Return configure's options: UCX, else libfabric, else the one that MPICH brings."""
    ucx, ofi = transport("ucx", setting), transport("libfabric", setting)
    options = ["--disable-fortran", "--with-hwloc=embedded"]
    if ucx:
        options += ["--with-device=ch4:ucx", *([f"--with-ucx={ucx}"] if ucx != "yes" else [])]
    else:
        options += ["--with-device=ch4:ofi", f"--with-libfabric={ofi}" if "/" in ofi else ""]
    options.append(f"--with-cuda={CUDA}" if "cuda" in setting.blocks else "--without-cuda")
    return tuple(option for option in options if option)

"""The block ``nccl``: the system's NCCL, for Horovod, MXNet and nccl-tests; PyTorch's wheel has its own."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import downloads, historical
from ringleader.images.instructions import Run, Step, words
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, needed, text
from ringleader.images.stage_steps import Half, Halves, Setting

PREFIX = "/opt/nccl"
TESTS = "/opt/nccl-tests"
CUDA = "/usr/local/cuda"
KEYRING = "/usr/share/keyrings/cuda-archive-keyring.gpg"
PINNED = ("--allow-downgrades", "--allow-change-held-packages")
"""NVIDIA's images come with another NCCL, held."""


@dataclass(frozen=True, kw_only=True)
class Nccl:
    """Arguments of the block."""

    version: str = needed(VERSION)
    source: str = text(NAME, "apt", one_of=("apt", "build"))
    dev: bool = False
    """With headers, in the image too."""
    tests: bool = False
    """With nccl-tests, built in the build half."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack; only for ``build``."""


def halves(block: Nccl, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if setting.historical:
        return historical.nccl(block, setting)
    compiled: tuple[Step, ...] = (_compiled(block),) if block.source == "build" else ()
    tested: tuple[Step, ...] = (_tests(block, setting),) if block.tests else ()
    brought: tuple[Step, ...] = (downloads.here(TESTS),) if block.tests else ()
    tools = ("build-essential", *downloads.TOOLS) if compiled or tested else ()
    if block.source == "build":
        last = () if block.dev else (downloads.trimmed(PREFIX),)
        return Halves(
            build=Half(apt=(*tools, *_mpi_headers(block, setting)), steps=compiled, last=(*tested, *last)),
            runtime=Half(steps=(downloads.here(PREFIX), downloads.linked(PREFIX), *brought)),
        )
    library, headers = pinned("libnccl2", block, setting), pinned("libnccl-dev", block, setting)
    keys_first, keys_over = _repository(setting)
    compiled_with = block.tests or "horovod" in setting.blocks
    wanted = (library, headers) if compiled_with else ()
    return Halves(
        build=Half(
            before=keys_first,
            apt=(*tools, *wanted, *_mpi_headers(block, setting)),
            apt_options=PINNED if wanted else (),
            last=tested,
        ),
        runtime=Half(
            before=keys_over,
            apt=(library, headers) if block.dev else (library,),
            apt_options=PINNED,
            steps=brought,
        ),
    )


def pinned(package: str, block: Nccl, setting: Setting) -> str:
    """Return a package at the block's version, built for the image's major CUDA, if it has one."""
    if "+" in block.version:
        return f"{package}={block.version}"
    revision = block.version if "-" in block.version else f"{block.version}-1"
    major = f"{setting.cuda.partition('.')[0]}." if setting.cuda else ""
    return f"{package}={revision}+cuda{major}*"


def _repository(setting: Setting) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return what adds NVIDIA's repository in each half; the bases of NVIDIA have it already."""
    if setting.cuda:
        return (), ()
    system = downloads.nvidia_name(setting.base)
    keyring = downloads.release("cuda-keyring", system)
    package = f"{downloads.PLACE}/cuda-keyring.deb"
    listed = f"/etc/apt/sources.list.d/cuda-{system}-x86_64.list"
    added = Run(
        commands=(*downloads.fetched(keyring, package), words("dpkg", "--install", package)),
        why="NVIDIA's repository and the key that signs it.",
    )
    return (downloads.tools_first(), added), downloads.handed_over(KEYRING, listed)


def _compiled(block: Nccl) -> Run:
    release = downloads.release("nccl", block.version, sha256=block.sha256)
    place = downloads.source_of(release)
    made = f'make -j "$(nproc)" -C {place}'
    return Run(
        commands=(
            *downloads.unpacked(release),
            f"{made} src.build {words(f'CUDA_HOME={CUDA}')}",
            words("make", "-C", place, "src.install", f"CUDA_HOME={CUDA}", f"PREFIX={PREFIX}"),
            words("rm", "-rf", place),
        ),
        why=f"{release.why} For every GPU that this CUDA knows.",
    )


def _mpi_headers(block: Nccl, setting: Setting) -> tuple[str, ...]:
    mpi = setting.blocks.get("mpi")
    if not block.tests or mpi is None or mpi.source != "base":
        return ()
    return ("libopenmpi-dev",) if mpi.kind == "openmpi" else ("libmpich-dev",)


def _tests(block: Nccl, setting: Setting) -> Run:
    """Return what compiles nccl-tests: with MPI where the image has one, against this NCCL."""
    release = downloads.release("nccl-tests")
    place = downloads.source_of(release)
    values = [f"CUDA_HOME={CUDA}"]
    if block.source == "build":
        values.append(f"NCCL_HOME={PREFIX}")
    mpi = setting.blocks.get("mpi")
    if mpi is not None:
        packaged = f"/usr/lib/x86_64-linux-gnu/{mpi.kind}"
        values += ["MPI=1", f"MPI_HOME={mpi.prefix if mpi.source == 'build' else packaged}"]
    return Run(
        commands=(
            *downloads.unpacked(release),
            f'make -j "$(nproc)" -C {place} {words(*values)}',
            words("mkdir", "-p", f"{TESTS}/bin"),
            f"find {place}/build -maxdepth 1 -name '*_perf' -exec cp '{{}}' {TESTS}/bin/ ';'",
            words("rm", "-rf", place),
        ),
        why=release.why,
    )

"""Open MPI compiled in the image itself, from its release. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.halves import Half, Halves, Setting
from ringleader.images.steps import Run, words, write

if TYPE_CHECKING:
    from ringleader.images.blocks.mpi import Mpi

SERVER = "https://download.open-mpi.org/release/open-mpi"
SHA256 = {
    "3.0.0": "f699bff21db0125d8cccfe79518b77641cd83628725a1e1ed3e45633496a82d7",
    "4.0.0": "2f0b8a36cfeb7354b45dda3c5425ef8393c9b04115570b615213faaa3f97366b",
}
"""Of the archives ``openmpi-VERSION.tar.bz2``, as Homebrew and Spack have them."""
PREFIX = "/usr/local"
PARAMETERS = (
    "hwloc_base_binding_policy = none",
    "rmaps_base_mapping_policy = slot",
    "btl_tcp_if_exclude = lo,docker0",
)
"""One process per GPU, not bound to one core; and no network that only one host has."""
WRAPPER = ("#!/bin/sh", f'exec {PREFIX}/bin/mpirun.real --allow-run-as-root "$@"')


def mpi(block: Mpi, setting: Setting) -> Halves:
    """Return Open MPI in /usr/local, with a ``mpirun`` that runs as root and tells hosts where it lies."""
    if block.source != "build":
        return Halves(runtime=Half(apt=("openmpi-bin", "libopenmpi-dev")))
    return Halves(
        runtime=Half(
            apt=("build-essential", "bzip2", "ca-certificates", "curl"),
            steps=(_compiled(block.version), _as_root()),
        )
    )


def _compiled(version: str) -> Run:
    series = ".".join(version.split(".")[:2])
    archive = f"openmpi-{version}.tar.bz2"
    tree = f"/tmp/openmpi-{version}"
    checksum = SHA256.get(version)
    checks = (
        (
            write("/tmp/openmpi.sha256", (f"{checksum}  /tmp/{archive}",)),
            words("sha256sum", "-c", "/tmp/openmpi.sha256"),
        )
        if checksum
        else ()
    )
    configure = words("./configure", f"--prefix={PREFIX}", "--enable-orterun-prefix-by-default")
    return Run(
        commands=(
            words("curl", "-fsSL", "-o", f"/tmp/{archive}", f"{SERVER}/v{series}/{archive}"),
            *checks,
            words("tar", "-xjf", f"/tmp/{archive}", "-C", "/tmp"),
            f"(cd {words(tree)} && {configure})",
            f'make -C {words(tree)} -j "$(nproc)" all',
            words("make", "-C", tree, "install"),
            "ldconfig",
            words("rm", "-rf", tree, f"/tmp/{archive}", "/tmp/openmpi.sha256"),
        ),
        why="Open MPI from its release; hosts find each other's orted by the prefix, not by PATH."
        + ("" if checksum else " No checksum of this release is known here."),
    )


def _as_root() -> Run:
    return Run(
        commands=(
            words("mv", f"{PREFIX}/bin/mpirun", f"{PREFIX}/bin/mpirun.real"),
            write(f"{PREFIX}/bin/mpirun", WRAPPER),
            words("chmod", "0755", f"{PREFIX}/bin/mpirun"),
            write(f"{PREFIX}/etc/openmpi-mca-params.conf", PARAMETERS, append=True),
        ),
        why="All is root here, and Open MPI refuses that unless told.",
    )

"""Open MPI compiled in the image itself, from its release. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringleader.images.blocks import downloads
from ringleader.images.instructions import Run, words, write
from ringleader.images.stage_steps import Half, Halves, Setting

if TYPE_CHECKING:
    from ringleader.images.blocks.mpi import Mpi

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
        names = ("openmpi-bin", "libopenmpi-dev")
        exact = tuple(f"{name}={block.version}*" if block.version else name for name in names)
        return Halves(runtime=Half(apt=exact))
    return Halves(
        runtime=Half(
            apt=("build-essential", "bzip2", *downloads.TOOLS),
            steps=(_compiled(block), _as_root()),
        )
    )


def _compiled(block: Mpi) -> Run:
    release = downloads.release("openmpi", block.version, sha256=block.sha256)
    place = downloads.source_of(release)
    configure = words("./configure", f"--prefix={PREFIX}", "--enable-orterun-prefix-by-default")
    return Run(
        commands=(
            *downloads.unpacked(release),
            f"(cd {words(place)} && {configure})",
            f'make -C {words(place)} -j "$(nproc)" all',
            words("make", "-C", place, "install"),
            "ldconfig",
            words("rm", "-rf", downloads.PLACE),
        ),
        why=f"{release.why} Hosts find each other's orted by its prefix, not by PATH.",
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

"""The block ``libfabric``: the transport library below EFA, and of MPICH."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import downloads
from ringleader.images.instructions import Env, Run, words
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, text
from ringleader.images.stage_steps import Half, Halves, Setting

PREFIX = "/opt/libfabric"


@dataclass(frozen=True, kw_only=True)
class Libfabric:
    """Arguments of the block."""

    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    @property
    def prefix(self) -> str:
        """Where it is installed when it is built."""
        return PREFIX


def halves(block: Libfabric, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if block.source == "base":
        pin = f"={block.version}*" if block.version else ""
        return Halves(runtime=Half(apt=(f"libfabric1{pin}", f"libfabric-bin{pin}")))
    path = Env(variables=(("PATH", f"{PREFIX}/bin:${{PATH}}"),))
    return Halves(
        build=Half(
            apt=("build-essential", "bzip2", *downloads.TOOLS),
            steps=(_compiled(block, setting), downloads.linked(PREFIX)),
            last=(downloads.trimmed(PREFIX),),
        ),
        runtime=Half(steps=(downloads.here(PREFIX), downloads.linked(PREFIX), path)),
    )


def _compiled(block: Libfabric, setting: Setting) -> Run:
    release = downloads.release("libfabric", block.version, sha256=block.sha256)
    place = downloads.source_of(release)
    options = [f"--prefix={PREFIX}", "--disable-static"]
    options += ["--enable-verbs"] if "rdma" in setting.blocks else ["--disable-verbs"]
    if "cuda" in setting.blocks:
        options += ["--with-cuda=/usr/local/cuda", "--enable-cuda-dlopen"]
    return Run(
        commands=(
            *downloads.unpacked(release),
            words("env", f"--chdir={place}", "./configure", *options),
            f'make -j "$(nproc)" -C {place}',
            f"make -C {place} install",
            words("rm", "-rf", place),
        ),
        why=release.why,
    )

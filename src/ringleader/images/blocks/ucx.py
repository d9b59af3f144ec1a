"""The block ``ucx``: the transport library below Open MPI and MPICH."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.images.blocks import downloads
from ringleader.images.instructions import Env, Run, words
from ringleader.images.recipe_fields import NAME, SHA256, VERSION, text
from ringleader.images.stage_steps import Half, Halves, Setting

PREFIX = "/opt/ucx"


@dataclass(frozen=True, kw_only=True)
class Ucx:
    """Arguments of the block."""

    version: str = text(VERSION)
    """Empty: what the base packages; for ``build`` the newest that the tables have."""
    source: str = text(NAME, "base", one_of=("base", "build"))
    cuda: bool = False
    """With GPU memory; needs the block ``cuda`` and ``source = "build"``."""
    sha256: str = text(SHA256)
    """Of the release, for a version that the tables lack."""

    @property
    def prefix(self) -> str:
        """Where it is installed when it is built."""
        return PREFIX


def halves(block: Ucx, setting: Setting) -> Halves:
    """Return what the block gives to the build and to the image."""
    if block.source == "base":
        pin = f"={block.version}*" if block.version else ""
        return Halves(runtime=Half(apt=(f"libucx0{pin}", f"ucx-utils{pin}")))
    path = Env(variables=(("PATH", f"{PREFIX}/bin:${{PATH}}"),))
    return Halves(
        build=Half(
            apt=("build-essential", *downloads.TOOLS),
            steps=(_compiled(block, setting), downloads.linked(PREFIX)),
            last=(downloads.trimmed(PREFIX),),
        ),
        runtime=Half(steps=(downloads.here(PREFIX), downloads.linked(PREFIX), path)),
    )


def _compiled(block: Ucx, setting: Setting) -> Run:
    release = downloads.release("ucx", block.version, sha256=block.sha256)
    place = downloads.source_of(release)
    verbs = ("--with-verbs", "--with-rdmacm") if "rdma" in setting.blocks else ("--without-verbs",)
    options = (
        f"--prefix={PREFIX}",
        "--enable-mt",
        *verbs,
        "--with-cuda=/usr/local/cuda" if block.cuda else "--without-cuda",
        *("--without-go", "--without-java", "--disable-static"),
    )
    return Run(
        commands=(
            *downloads.unpacked(release),
            words("env", f"--chdir={place}", "./contrib/configure-release", *options),
            f'make -j "$(nproc)" -C {place}',
            f"make -C {place} install",
            words("rm", "-rf", place),
        ),
        why=f"{release.why} Ranks with several threads may use it.",
    )

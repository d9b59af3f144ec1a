"""What is compiled below a prefix of its own in the build stage, and copied into the image. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from ringleader.images.blocks.downloads import TOOLS, Release, unpacked
from ringleader.images.instructions import Copy, Env, Run, shell, write
from ringleader.images.stage_steps import BlockSteps, StageSteps

CUDA = "/usr/local/cuda"


def compiled(
    release: Release,
    prefix: str,
    options: Iterable[str],
    *,
    configure: str = "./configure",
    apt: tuple[str, ...] = (),
    why: str = "",
) -> BlockSteps:
    """Return the steps of a release with a ``configure``.

    ``apt``: packages of the build stage besides the compilers. ``why``: said besides what is fetched.
    """
    place = release.directory
    run = Run(
        commands=(
            *unpacked(release),
            shell("env", f"--chdir={place}", configure, f"--prefix={prefix}", *options),
            f'make -j "$(nproc)" -C {place}',
            f"make -C {place} install",
            shell("rm", "-rf", place),
        ),
        why=f"{release.why} {why}".strip(),
    )
    return BlockSteps(
        build=StageSteps(
            apt=("build-essential", *TOOLS, *apt),
            steps=(run, linked(prefix)),
            last=(trimmed(prefix),),
        ),
        runtime=StageSteps(steps=(copied(prefix), linked(prefix), on_path(prefix))),
    )


def on_path(prefix: str) -> Env:
    """Return what makes the programs below a prefix known."""
    return Env(variables=(("PATH", f"{prefix}/bin:${{PATH}}"),))


def linked(prefix: str) -> Run:
    """Return what makes the libraries below a prefix known to every program, without LD_LIBRARY_PATH.

    Sessions of ssh see no variable of the image.
    """
    name = prefix.strip("/").replace("/", "-")
    return Run(commands=(write(f"/etc/ld.so.conf.d/{name}.conf", (f"{prefix}/lib",)), "ldconfig"))


def trimmed(prefix: str) -> Run:
    """Return what takes headers, static libraries and manuals away, after everything has been compiled."""
    parts = ("include", "share/man", "share/doc")
    return Run(
        commands=(
            shell("rm", "-rf", *(f"{prefix}/{part}" for part in parts)),
            shell("find", f"{prefix}/lib", "-name", "*.la", "-delete", "-o", "-name", "*.a", "-delete"),
        )
    )


def copied(prefix: str) -> Copy:
    """Return what copies a prefix out of the build stage."""
    return Copy(sources=(prefix,), target=f"{prefix}/", stage="build")

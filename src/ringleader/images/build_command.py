"""What a builder is called with, and how its steps are isolated. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from ringleader.errors import Fault, RequestError
from ringleader.images.builders import Builder
from ringleader.option_fields import flag, many, option

DOCKERFILE = "Dockerfile"
CONTEXT = "context"
ID_FILE = "image-id"
"""Names in the directory that a build is done from."""


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How an image is to be built, as far as the builder is told; options of ``ringleader image build``."""

    tag: str = option("[default: the recipe's name, latest]", default="", metavar="NAME:TAG")
    platform: str = option("[default: the builder's own]", default="", metavar="OS/ARCH")
    isolation: str = option(
        "How buildah and podman isolate steps. [default: what works here]",
        default="",
        choices=["oci", "rootless", "chroot"],
    )
    arguments: tuple[str, ...] = many(
        "A further word for the builder. Again for more.", "--builder-arg", metavar="WORD"
    )
    pull: str = option(
        "When base images are fetched.", default="missing", choices=["missing", "always", "never"]
    )
    no_cache: bool = flag("Use no layer of an earlier build.")
    timestamp: int | None = option(
        "Date of everything in the image, since 1970, so that the same recipe gives the same image. "
        "[default: SOURCE_DATE_EPOCH, else the time of the build]",
        least=0,
        unit="seconds",
        metavar="SECONDS",
    )


@dataclass(frozen=True, kw_only=True)
class BuildEnvironment:
    """What decides how steps can be isolated here."""

    root: bool
    may_raise_limits: bool
    """The capability CAP_SYS_RESOURCE, without which OCI runtimes can't set up a container as root."""
    in_container: bool
    runtime: str
    """Path of an OCI runtime (crun, runc); empty: there is none."""
    chosen: str = ""
    """What the environment variable BUILDAH_ISOLATION says; the builder follows it by itself."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """How steps are isolated."""

    value: str
    """Empty: the builder's default."""
    reason: str = ""
    """Why, where we chose it."""


def isolation(asked: str, builder: Builder, environment: BuildEnvironment) -> Isolation:
    """Choose: what was asked for, else ``chroot`` where nothing but that can work."""
    if asked:
        return Isolation(value=asked)
    if builder.name == "docker" or environment.chosen:
        return Isolation(value=environment.chosen if builder.name != "docker" else "")
    if not environment.runtime:
        return Isolation(value="chroot", reason="no OCI runtime (crun, runc) is installed")
    if environment.root and not environment.may_raise_limits:
        return Isolation(value="chroot", reason="root lacks CAP_SYS_RESOURCE here")
    if environment.in_container:
        return Isolation(value="chroot", reason="we are in a container")
    return Isolation(value="")


def faults(options: BuildOptions, builder: Builder) -> list[Fault]:
    """Return what the builder cannot do."""
    found = []
    if builder.name == "docker":
        if options.isolation:
            what = "docker's daemon decides how steps are isolated"
            found.append(Fault(where="--isolation", what=what, hint="leave it out, or use --builder buildah"))
        if options.pull == "never":
            what = "docker has no way to forbid that a missing base is fetched"
            found.append(Fault(where="--pull", what=what, hint="use --pull missing, or --builder buildah"))
    return found


def argv(options: BuildOptions, builder: Builder, *, directory: str, isolated: Isolation) -> tuple[str, ...]:
    """Return the builder's command line; RequestError where it cannot do what is asked for.

    ``directory``: has the Dockerfile and the context, and gets the file with the image's id.
    """
    wrong = faults(options, builder)
    if wrong:
        raise RequestError(wrong)
    docker = builder.name == "docker"
    words = [builder.program, *builder.global_options, "bud" if builder.name == "buildah" else "build"]
    words += [
        "--file",
        f"{directory}/{DOCKERFILE}",
        "--tag",
        options.tag,
        "--iidfile",
        f"{directory}/{ID_FILE}",
    ]
    if builder.name == "buildah":
        words.append("--layers")  # the others keep layers for the next build unasked
    if isolated.value and not docker:
        words += ["--isolation", isolated.value]
    if options.platform:
        words += ["--platform", options.platform]
    words += _pull(options.pull, docker=docker)
    if options.no_cache:
        words.append("--no-cache")
    if options.timestamp is not None:
        words += _timestamp(options.timestamp, docker=docker)
    return (*words, *options.arguments, f"{directory}/{CONTEXT}")


def _pull(pull: str, *, docker: bool) -> list[str]:
    if docker:
        return ["--pull"] if pull == "always" else []
    return [{"missing": "--pull=false", "always": "--pull=always", "never": "--pull=never"}[pull]]


def _timestamp(seconds: int, *, docker: bool) -> list[str]:
    # BuildKit knows the argument by this name without any declaration in the Dockerfile.
    return ["--build-arg", f"SOURCE_DATE_EPOCH={seconds}"] if docker else ["--timestamp", str(seconds)]


def tag_of(tag: str, name: str) -> str:
    """Return the complete tag: ``NAME:latest`` where only a name, or nothing, was given."""
    whole = tag or name
    return whole if ":" in whole.rpartition("/")[2] else f"{whole}:latest"

"""Which program builds images here, the first of buildah, podman and docker that answers, and its words."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ringleader.errors import Fault, RefusedError, refuse
from ringleader.images.processes import answer
from ringleader.images.recipe import REFERENCE
from ringleader.option_fields import WrongValueError, flag, many, option

NAMES = ("buildah", "podman", "docker")
"""In the order in which they are asked."""
QUESTIONS: dict[str, str] = {
    "buildah": "{{.store.GraphDriverName}}",
    "podman": "{{.Store.GraphDriverName}}",
    "docker": "{{.ServerVersion}}",
}
"""What only a builder that works can answer (``info``): its storage's driver, its daemon's version."""
ANSWER_SECONDS = 15.0
DOCKERFILE, CONTEXT, ID_FILE = "Dockerfile", "context", "image-id"
"""Names in the directory that a build is done from."""
CAP_SYS_RESOURCE = 1 << 24


def _tag(text: str) -> str:
    if text and ("@" in text or REFERENCE.pattern.fullmatch(text) is None):
        hint = "lower-case letters, such as example.org/team/train:1"
        raise WrongValueError(f"{text!r} is not NAME:TAG", hint)
    return text


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """How an image is to be built, as far as builders need to know; options of ``ringleader image build``."""

    tag: str = option(
        "Name of the image. [default: the recipe's name, latest]", default="", read=_tag, metavar="NAME:TAG"
    )
    platform: str = option(
        "Platform of the image. [default: the builder's]",
        default="",
        choices=["", "linux/amd64", "linux/arm64"],
        metavar="OS/ARCH",
    )
    isolation: str = option(
        "How buildah and podman isolate steps. [default: what works here]",
        default="",
        choices=["oci", "rootless", "chroot"],
    )
    arguments: tuple[str, ...] = many(
        "Pass one more argument to the builder. Can be repeated.", "--builder-arg", metavar="WORD"
    )
    pull: str = option("When to pull base images.", default="missing", choices=["missing", "always", "never"])
    no_cache: bool = flag("Do not use layers of earlier builds.")
    timestamp: int | None = option(
        "Unix timestamp to set on all files in the image, for reproducible builds. [default: "
        "SOURCE_DATE_EPOCH, else the time of the build]",
        least=0,
        unit="seconds",
        metavar="SECONDS",
    )


@dataclass(frozen=True, kw_only=True)
class Builder:
    """A program that builds images and has answered."""

    name: str
    """``buildah``, ``podman`` or ``docker``."""
    program: str
    """Its absolute path."""
    version: str
    """As it says it, for people."""
    global_options: tuple[str, ...] = ()
    """Before each sub-command: where the images are kept."""

    def words(self, *words: str) -> tuple[str, ...]:
        """Return the command line of a sub-command."""
        return (self.program, *self.global_options, *words)

    def build_words(self, options: BuildOptions, *, directory: str, isolation: str) -> tuple[str, ...]:
        """Return the command line of a build; RequestError where the builder cannot do what is asked for.

        ``directory``: has the Dockerfile and the context, and gets the file with the image's id.
        """
        docker, buildah = self.name == "docker", self.name == "buildah"
        faults = []
        if docker and options.isolation:
            what = "docker's daemon decides how steps are isolated"
            faults.append(
                Fault(where="--isolation", what=what, hint="leave it out, or use --builder buildah")
            )
        if docker and options.pull == "never":
            what = "docker has no way to forbid that a missing base is fetched"
            faults.append(Fault(where="--pull", what=what, hint="use --pull missing, or --builder buildah"))
        refuse(faults)
        words = ["bud" if buildah else "build", "--file", f"{directory}/{DOCKERFILE}"]
        words += ["--tag", options.tag, "--iidfile", f"{directory}/{ID_FILE}"]
        words += ["--layers"] if buildah else []  # the others keep layers for the next build unasked
        words += ["--isolation", isolation] if isolation and not docker else []
        words += ["--platform", options.platform] if options.platform else []
        if not docker:
            words.append(f"--pull={'false' if options.pull == 'missing' else options.pull}")
        elif options.pull == "always":
            words.append("--pull")
        words += ["--no-cache"] if options.no_cache else []
        if options.timestamp is not None:
            # BuildKit knows the argument by this name without any declaration in the Dockerfile.
            epoch = ["--build-arg", f"SOURCE_DATE_EPOCH={options.timestamp}"]
            words += epoch if docker else ["--timestamp", str(options.timestamp)]
        return self.words(*words, *options.arguments, f"{directory}/{CONTEXT}")


def tag_of(tag: str, name: str) -> str:
    """Return the complete tag: ``NAME:latest`` where only a name, or nothing, was given."""
    whole = tag or name
    return whole if ":" in whole.rpartition("/")[2] else f"{whole}:latest"


def find(
    wanted: str = "",
    *,
    environ: Mapping[str, str],
    storage_driver: str = "",
    seconds: float = ANSWER_SECONDS,
) -> Builder:
    """Return the builder ``wanted``, or where that is empty the first one that answers.

    ``seconds``: what each one may take. Raises RefusedError with the reason of each one that was asked.
    """
    faults = []
    for name in (wanted,) if wanted else NAMES:
        if storage_driver and name == "docker":
            what = "its daemon decides on the storage driver"
            faults.append(Fault(where=name, what=what, hint="leave --storage-driver out"))
            continue
        options = ("--storage-driver", storage_driver) if storage_driver else ()
        found = _asked(name, options, environ=environ, seconds=seconds)
        if isinstance(found, Builder):
            return found
        faults.append(found)
    raise RefusedError(faults)


def _asked(
    name: str, options: tuple[str, ...], *, environ: Mapping[str, str], seconds: float
) -> Builder | Fault:
    program = shutil.which(name, path=environ.get("PATH", os.defpath))
    if program is None:
        hint = f"apt-get install {'docker.io' if name == 'docker' else name}"
        return Fault(where=name, what="is not installed (looked for it on PATH)", hint=hint)
    question = (program, *options, "info", "--format", QUESTIONS[name])
    said = answer(question, environ=environ, seconds=seconds)
    if said.code is None:
        return Fault(where=name, what=f"{program} did not answer within {seconds:g} s")
    # A docker client without a daemon prints an empty answer; some of its versions end with 0 all the same.
    if said.code != 0 or not said.out.strip():
        reason = said.words[-300:] or "nothing"
        hint = "is its daemon running?" if name == "docker" else ""
        return Fault(where=name, what=f"{program} does not work here: it says {reason!r}", hint=hint)
    known = answer((program, "--version"), environ=environ, seconds=seconds)
    lines = known.out.strip().splitlines() if known.code == 0 else []
    return Builder(name=name, program=program, version=lines[0] if lines else name, global_options=options)


# --- how steps are isolated -------------------------------------------------------------------------------


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


def build_environment(environ: Mapping[str, str]) -> BuildEnvironment:
    """Read what decides how a builder can isolate its steps here."""
    path = environ.get("PATH", os.defpath) + ":/usr/sbin:/usr/local/sbin"
    runtime = next((found for name in ("crun", "runc") if (found := shutil.which(name, path=path))), "")
    marks = ("/.dockerenv", "/run/.containerenv")
    return BuildEnvironment(
        root=os.geteuid() == 0,
        may_raise_limits=bool(_capabilities() & CAP_SYS_RESOURCE),
        in_container="container" in environ or any(Path(mark).exists() for mark in marks),
        runtime=runtime,
        chosen=environ.get("BUILDAH_ISOLATION", ""),
    )


def _capabilities() -> int:
    """Return our effective capabilities as Linux counts them; all of them where it does not tell."""
    try:
        for line in Path("/proc/self/status").read_text(encoding="utf-8").splitlines():
            if line.startswith("CapEff:"):
                return int(line.split()[1], 16)
    except (OSError, ValueError):
        pass
    return -1

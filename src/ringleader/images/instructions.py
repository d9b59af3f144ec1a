"""What happens while an image is built, as values that a Dockerfile and an Apptainer definition say. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Run:
    """Commands that must all succeed, in one layer."""

    commands: tuple[str, ...]
    """Lines of POSIX shell, each complete; values of users come into them through ``shell`` and ``write``."""
    why: str = ""
    """A comment above them; empty: they speak for themselves."""


@dataclass(frozen=True, kw_only=True)
class Env:
    """Variables of this and all later steps, and of the containers."""

    variables: tuple[tuple[str, str], ...]
    """A value may refer to an earlier variable as ``${NAME}``; every other ``$`` is taken literally."""


@dataclass(frozen=True, kw_only=True)
class Copy:
    """Files of the build context, or of an earlier stage, into the image."""

    sources: tuple[str, ...]
    """Paths relative to the context, or absolute ones of the stage ``stage``."""
    target: str
    """Absolute; ends with / where it is a directory."""
    stage: str = ""
    """Name of an earlier stage; empty: the build context."""
    owner: str = ""
    """``user:group``; empty: root."""


@dataclass(frozen=True, kw_only=True)
class User:
    """Who runs what follows, and the container."""

    name: str


@dataclass(frozen=True, kw_only=True)
class Workdir:
    """Where what follows, and the container, begins."""

    path: str


@dataclass(frozen=True, kw_only=True)
class Label:
    """Facts about the image that tools read (OCI annotations' names)."""

    labels: tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class Expose:
    """A TCP port on which the container listens."""

    port: int


@dataclass(frozen=True, kw_only=True)
class Command:
    """What a container runs unless told otherwise."""

    argv: tuple[str, ...]


Step = Run | Env | Copy | User | Workdir | Label | Expose | Command


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One image on the way, or the last one."""

    name: str
    base: str
    """Reference of an image, or the name of an earlier stage."""
    steps: tuple[Step, ...]


@dataclass(frozen=True, kw_only=True)
class Image:
    """A complete image: what is emitted. The last stage is the image; earlier ones only build."""

    name: str
    about: str
    """One sentence for a comment at the top of the file."""
    stages: tuple[Stage, ...]
    context: tuple[str, ...] = ()
    """Files of the build context that its steps copy, in the order of their first use."""
    test: tuple[str, ...] = ()
    """The self-test's argv inside the image; empty: it carries none."""
    kept: tuple[str, str] = ("", "")
    """Dockerfile and Apptainer definition of an image that is kept as text and has no stages."""


def shell(*argv: str) -> str:
    """Return a command line with every word quoted for the shell."""
    return shlex.join(argv)


def write(path: str, lines: Iterable[str]) -> str:
    """Return a command that writes lines to a file: no here-document, which older builders do not know."""
    quoted = " ".join("'" + line.replace("'", "'\\''") + "'" for line in lines)
    return f"printf '%s\\n' {quoted} > {shlex.quote(path)}"

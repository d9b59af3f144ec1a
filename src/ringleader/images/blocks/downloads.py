"""What blocks fetch besides packages, how it is verified, what is compiled below its own prefix. Pure.

Projects, their URLs and checksums are rows of ``tables/data/projects.toml``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from ringleader.images.instructions import Copy, Env, Run, Step, shell, write
from ringleader.images.tables import TableRow, read, rows_by

TOOLS = ("ca-certificates", "curl")
"""Debian packages with which things are fetched."""
PLACE = "/opt/build"
"""Where the build stage fetches and compiles; nothing of it reaches the image."""
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
KEYRINGS = "/usr/share/keyrings"
CUDA = "/usr/local/cuda"


@dataclass(frozen=True, kw_only=True)
class Project(TableRow):
    """One project's releases."""

    name: str
    title: str = ""
    """As people write it, where that is not the name."""
    url: str
    """With ``{version}``, ``{series}`` (its first two numbers), ``{system}`` (as vendors name the base)."""
    sha256: tuple[tuple[str, str], ...] = ()
    """Version → checksum, the newest first: the one that is taken where a recipe names none."""
    versions: tuple[str, ...] = ()
    """Versions whose checksum is not public, the newest first."""
    is_repository: bool = False
    """True: a repository of packages, each of which apt verifies by the repository's key."""

    @property
    def known(self) -> tuple[str, ...]:
        """Every version that somebody has seen, those with a checksum first."""
        return (*dict(self.sha256), *self.versions)


@dataclass(frozen=True, kw_only=True)
class Release:
    """One file of one version."""

    project: Project
    version: str
    url: str
    sha256: str
    """Empty: no checksum is known, so nothing verifies the file but TLS."""

    @property
    def title(self) -> str:
        """What people call the project."""
        return self.project.title or self.project.name

    @property
    def why(self) -> str:
        """What a comment in the rendered file says of it."""
        unverified = " Unverified: no checksum is known; a recipe may give it (sha256)."
        return f"{self.title} {self.version}.{'' if self.sha256 else unverified}"

    @property
    def directory(self) -> str:
        """Where its sources lie while they are compiled."""
        return f"{PLACE}/{self.project.name}"


@cache
def projects() -> Mapping[str, Project]:
    """Return every project by its name."""
    return rows_by("name", Project, read("projects")["project"])


def release(name: str, version: str = "", *, sha256: str = "", system: str = "") -> Release:
    """Return a project's release to fetch; without a version the newest one.

    ``sha256`` is what the recipe gives, for versions whose checksum we lack; it wins over ours.
    """
    project = projects()[name]
    version = version or project.known[0]
    url = project.url.format(version=version, series=".".join(version.split(".")[:2]), system=system)
    checksum = sha256 or dict(project.sha256).get(version, "")
    return Release(project=project, version=version, url=url, sha256=checksum)


def fetched(one: Release, target: str) -> tuple[str, ...]:
    """Return the commands that bring a release's file to an absolute path, and verify it."""
    commands = [
        shell("mkdir", "-p", target.rpartition("/")[0]),
        shell("curl", "-fsSL", "--retry", "3", "-o", target, one.url),
    ]
    if one.sha256:
        commands += [
            write(f"{target}.sha256", (f"{one.sha256}  {target}",)),
            shell("sha256sum", "--check", "--strict", f"{target}.sha256"),
        ]
    return tuple(commands)


def unpacked(one: Release) -> tuple[str, ...]:
    """Return the commands that bring a release's sources to its directory."""
    archive = f"{PLACE}/{one.url.rpartition('/')[2]}"
    return (
        *fetched(one, archive),
        shell("mkdir", "-p", one.directory),
        shell("tar", "-xf", archive, "-C", one.directory, "--strip-components", "1"),
        shell("rm", "-f", archive, f"{archive}.sha256"),
    )


# --- repositories of packages: in the build stage, and handed over to the image ---------------------------


def tools_first(*more: str) -> Run:
    """Return what installs the tools to fetch with, before a stage's own packages."""
    install = shell("apt-get", "install", "--yes", "--no-install-recommends", *TOOLS, *more)
    return Run(
        commands=(
            "apt-get update",
            f"DEBIAN_FRONTEND=noninteractive {install}",
            "rm -rf /var/lib/apt/lists/*",
        )
    )


def repository(
    name: str, key: str, line: str, *, sha256: str = "", fingerprint: str = ""
) -> tuple[tuple[Step, ...], tuple[Step, ...]]:
    """Return what adds a repository of packages, whose key is at a URL, in the build stage and in the image.

    ``line`` is that of its list; ``{key}`` in it is the path of the key. The file of the key must have the
    checksum ``sha256``; the only key in it must have the ``fingerprint``.
    """
    project = Project(name=name, url=key, source=name)
    path, listed = f"{KEYRINGS}/{name}.asc", f"/etc/apt/sources.list.d/{name}.list"
    first = "awk -F: '/^pub/ {n = 1} /^fpr/ && n {print $10; n = 0}'"
    only = f"gpg --show-keys --with-colons {path} | {first}"
    checks = (f'test "$({only})" = {fingerprint}',) if fingerprint else ()
    added = Run(
        commands=(
            *fetched(Release(project=project, version="key", url=key, sha256=sha256), path),
            *checks,
            write(listed, (line.format(key=path),)),
        ),
        why=f"The repository of {name}; its key is trusted for it alone."
        + ("" if sha256 or fingerprint else " Unverified: a recipe may give the key's fingerprint."),
    )
    return (tools_first(*(("gnupg",) if fingerprint else ())), added), handed_over(path, listed)


def handed_over(*paths: str) -> tuple[Step, ...]:
    """Return what brings keys and lists from the build stage, and the authorities by which https is trusted.

    So an image needs no tool to fetch with.
    """
    return tuple(Copy(sources=(path,), target=path, stage="build") for path in (AUTHORITIES, *paths))


# --- what is compiled below a prefix in the build stage, and copied into the image ------------------------


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

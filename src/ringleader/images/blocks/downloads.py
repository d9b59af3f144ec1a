"""What blocks fetch besides packages: where from, and how it is verified. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from ringleader.images.instructions import Copy, Run, Step, words, write
from ringleader.images.stage_steps import Setting
from ringleader.images.tables.bases import Base
from ringleader.images.tables.toml_rows import read, rows

TOOLS = ("ca-certificates", "curl")
"""Debian packages with which things are fetched."""
PLACE = "/opt/build"
"""Where the build half fetches and compiles; nothing of it reaches the image."""
AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt"
KEYRINGS = "/usr/share/keyrings"


@dataclass(frozen=True, kw_only=True)
class Download:
    """One project's releases: a row of ``tables/data/downloads.toml``."""

    name: str
    url: str
    source: str
    title: str = ""
    """As people write it, where that is not the name."""
    sha256: tuple[tuple[str, str], ...] = ()
    """Version → checksum, the newest first."""
    versions: tuple[str, ...] = ()
    """Versions whose checksum is not public, the newest first."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One file of one version."""

    name: str
    title: str
    version: str
    url: str
    sha256: str
    """Empty: no checksum is known, so nothing verifies the file but TLS."""

    @property
    def why(self) -> str:
        """What a comment in the rendered file says of it."""
        if self.sha256:
            return f"{self.title} {self.version}."
        return (
            f"{self.title} {self.version}. Unverified: no checksum is known; a recipe may give it (sha256)."
        )


@cache
def downloads() -> tuple[Download, ...]:
    """Return all rows."""
    return rows(Download, read("downloads")["download"])


def release(name: str, version: str = "", *, sha256: str = "", system: str = "") -> Release:
    """Return a release to fetch; without a version the newest one of the table.

    ``sha256`` is what the recipe gives, for versions that the table lacks; it wins over the table's.
    """
    found = next(one for one in downloads() if one.name == name)
    version = version or [*dict(found.sha256), *found.versions][0]
    series = ".".join(version.split(".")[:2])
    url = found.url.format(version=version, series=series, system=system)
    known = sha256 or dict(found.sha256).get(version, "")
    return Release(name=name, title=found.title or name, version=version, url=url, sha256=known)


def nvidia_name(base: Base) -> str:
    """Return a base as NVIDIA's repositories name it: ``ubuntu2404``."""
    return base.name.replace(":", "").replace(".", "")


def fetched(one: Release, target: str) -> tuple[str, ...]:
    """Return the commands that bring a release's file to an absolute path, and verify it."""
    commands = [
        words("mkdir", "-p", target.rpartition("/")[0]),
        words("curl", "-fsSL", "--retry", "3", "-o", target, one.url),
    ]
    if one.sha256:
        commands += [
            write(f"{target}.sha256", (f"{one.sha256}  {target}",)),
            words("sha256sum", "--check", "--strict", f"{target}.sha256"),
        ]
    return tuple(commands)


def unpacked(one: Release) -> tuple[str, ...]:
    """Return the commands that bring a release's sources to ``source_of(one)``."""
    archive = f"{PLACE}/{one.url.rpartition('/')[2]}"
    place = source_of(one)
    return (
        *fetched(one, archive),
        words("mkdir", "-p", place),
        words("tar", "-xf", archive, "-C", place, "--strip-components", "1"),
        words("rm", "-f", archive, f"{archive}.sha256"),
    )


def source_of(one: Release) -> str:
    """Return the directory of a release's sources."""
    return f"{PLACE}/{one.name}"


def tools_first() -> Run:
    """Return what installs the tools to fetch with, before a stage's own packages."""
    install = words("apt-get", "install", "--yes", "--no-install-recommends", *TOOLS)
    return Run(
        commands=(
            "apt-get update",
            f"DEBIAN_FRONTEND=noninteractive {install}",
            "rm -rf /var/lib/apt/lists/*",
        )
    )


def repository(name: str, key: str, lines: tuple[str, ...]) -> Run:
    """Return what adds a repository of packages whose key is at a URL, in the build half.

    ``lines`` are those of its list; ``{key}`` is the path of the key.
    """
    path = f"{KEYRINGS}/{name}.asc"
    return Run(
        commands=(
            words("mkdir", "-p", KEYRINGS),
            words("curl", "-fsSL", "--retry", "3", "-o", path, key),
            write(list_of(name), [line.format(key=path) for line in lines]),
        ),
        why=f"The repository of {name}; its key is trusted for it alone.",
    )


def list_of(name: str) -> str:
    """Return the path of a repository's list."""
    return f"/etc/apt/sources.list.d/{name}.list"


def handed_over(*paths: str) -> tuple[Step, ...]:
    """Return what brings keys and lists from the build half, and the authorities by which https is trusted.

    So an image needs no tool to fetch with.
    """
    return tuple(Copy(sources=(path,), target=path, stage="build") for path in (AUTHORITIES, *paths))


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
            words("rm", "-rf", *(f"{prefix}/{part}" for part in parts)),
            words("find", f"{prefix}/lib", "-name", "*.la", "-delete", "-o", "-name", "*.a", "-delete"),
        )
    )


def here(prefix: str) -> Copy:
    """Return what copies a prefix out of the build half."""
    return Copy(sources=(prefix,), target=f"{prefix}/", stage="build")


def headers_needed(setting: Setting) -> bool:
    """Tell whether a block compiles against the libraries of NICs."""
    blocks = (setting.blocks.get(name) for name in ("ucx", "libfabric", "mpi", "nccl"))
    return any(block is not None and block.source == "build" for block in blocks)


def verified(name: str) -> tuple[str, ...]:
    """Return the versions of a project whose checksum the table has, the newest first."""
    return tuple(version for one in downloads() if one.name == name for version, _ in one.sha256)


def unverified(blocks: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a modern image fetches with nothing but TLS to verify it: ``MLNX_OFED 24.10-3.2.5.0``."""
    for _, row, block in fetching(blocks):
        one = release(row, block.version, sha256=block.sha256)
        if not one.sha256 and row != "doca":
            yield f"{one.title} {one.version}"


def unknown(blocks: Mapping[str, Any]) -> Iterator[tuple[str, Release, tuple[str, ...]]]:
    """Yield block, release and known versions where nobody has seen a version: it may not exist."""
    for name, row, block in fetching(blocks):
        one = release(row, block.version, sha256=block.sha256)
        found = next(download for download in downloads() if download.name == row)
        known = (*dict(found.sha256), *found.versions)
        if not one.sha256 and one.version not in known:
            yield name, one, known


def fetching(blocks: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the blocks of a modern image that fetch a release: name, project and arguments."""
    for name in ("ucx", "libfabric", "nccl", "mpi"):
        block = blocks.get(name)
        if block is not None and block.source == "build":
            yield name, block.kind if name == "mpi" else name, block
    rdma = blocks.get("rdma")
    if rdma is not None:
        row = {"efa": "efa", "mlnx-ofed": "mlnx-ofed", "doca-ofed": "doca"}.get(rdma.user_space)
        if row:
            yield "rdma", row, rdma

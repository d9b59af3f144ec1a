"""Operating systems on which images stand, and how a reference of an image tells which one it is. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from ringleader.images.tables.toml_rows import Cited, read, rows


@dataclass(frozen=True, kw_only=True)
class Base:
    """One release of one distribution."""

    name: str
    """``debian:12``, ``ubuntu:24.04``."""
    family: str
    """``debian``, ``ubuntu``, ``rocky`` …"""
    version: str
    codename: str = ""
    python: str = ""
    """The version of its package ``python3``, major and minor: ``3.11``."""
    pythons: tuple[str, ...] = ()
    """Every Python that it packages, oldest first."""
    glibc: str = ""
    has_apt: bool = True
    end_of_life: str = ""
    """End of its free support, ``YYYY-MM`` or ``YYYY-MM-DD``; empty: not known here."""
    source: str = ""

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        says = f"Python {', '.join(self.pythons)}; glibc {self.glibc}; free support until {self.end_of_life}"
        return Cited(row=self.name, says=says, source=self.source)


@dataclass(frozen=True, kw_only=True)
class Packaged:
    """Versions of what a base packages; empty: it is not in the release."""

    base: str
    gcc: str = ""
    """Of the package gcc."""
    compilers: tuple[str, ...] = ()
    """N of all its packages ``g++-N``."""
    openssh: str = ""
    openmpi: str = ""
    mpich: str = ""
    ucx: str = ""
    libfabric: str = ""
    rdma_core: str = ""
    perftest: str = ""
    source: str = ""

    def version(self, name: str) -> str:
        """Return the version of ``openmpi``, ``rdma-core`` and the like; empty: none."""
        return str(getattr(self, name.replace("-", "_")))

    def cited(self) -> Cited:
        """Return the row as findings show it."""
        names = ("openmpi", "mpich", "ucx", "libfabric", "rdma-core")
        says = ", ".join(f"{name} {self.version(name) or 'none'}" for name in names)
        return Cited(row=f"packages of {self.base}", says=says, source=self.source)


@cache
def bases() -> tuple[Base, ...]:
    """Return all rows, in the order of the table."""
    return rows(Base, read("bases")["base"])


IMAGE_NAMES = {
    "debian": "debian",
    "ubuntu": "ubuntu",
    "rockylinux": "rocky",
    "almalinux": "alma",
    "centos": "centos",
    "fedora": "fedora",
    "amazonlinux": "amazon",
    "alpine": "alpine",
    "opensuse/leap": "suse",
}
"""Public image → family. Images of the same name elsewhere (a mirror, a proxy) are taken for the same."""

CUDA_TAG = re.compile(r"^(\d+(?:\.\d+)+)(?:-(?:cudnn\d*|base|runtime|devel|tensorrt))*-([a-z]+)([\d.]+)$")
CUDA_FAMILIES = {
    "ubuntu": "ubuntu",
    "debian": "debian",
    "rockylinux": "rocky",
    "centos": "centos",
    "amzn": "amazon",
}


@dataclass(frozen=True, kw_only=True)
class CudaImage:
    """What the tag of an ``nvidia/cuda`` image says."""

    version: str
    """CUDA version as in the tag: ``12.8.1``."""
    flavour: str
    """``base`` (the runtime library alone), ``runtime`` (with NCCL and the maths libraries) or ``devel``."""
    has_cudnn: bool


def find_base(reference: str) -> Base | None:
    """Return the operating system of an image that its reference tells; None where it does not tell.

    A tag that moves (``debian``, ``ubuntu:latest``, ``debian:stable``) tells nothing.
    """
    name, tag = parted(reference)
    if is_cuda(name):
        match = CUDA_TAG.match(tag)
        return _find(CUDA_FAMILIES.get(match[2], ""), match[3]) if match else None
    for image, family in IMAGE_NAMES.items():
        if name == image or name.endswith(f"/{image}"):
            return _find(family, tag.partition("-")[0])
    return None


def find_cuda_image(reference: str) -> CudaImage | None:
    """Return what the reference of an ``nvidia/cuda`` image tells; None for every other image."""
    name, tag = parted(reference)
    match = CUDA_TAG.match(tag) if is_cuda(name) else None
    if match is None:
        return None
    parts = tag.split("-")
    flavour = next((part for part in ("devel", "runtime", "base") if part in parts), "devel")
    return CudaImage(
        version=match[1], flavour=flavour, has_cudnn=any(part.startswith("cudnn") for part in parts)
    )


def parted(reference: str) -> tuple[str, str]:
    """Return name and tag of a reference, without its digest; the tag is empty where none is given."""
    name = reference.partition("@")[0]
    head, _, tail = name.rpartition("/")
    image, _, tag = tail.partition(":")
    return (f"{head}/{image}" if head else image), tag


def is_cuda(name: str) -> bool:
    """Tell whether a name without its tag is that of NVIDIA's CUDA images, there or on a mirror."""
    return name == "nvidia/cuda" or name.endswith("/nvidia/cuda")


def _find(family: str, version: str) -> Base | None:
    """Return the row of a version or of a code name; ``12.5`` is Debian 12, ``9.3`` Rocky 9."""
    for base in bases():
        if base.family != family or not version:
            continue
        if version in (base.version, base.codename):
            return base
        if family != "ubuntu" and version.startswith(f"{base.version}."):
            return base
    return None

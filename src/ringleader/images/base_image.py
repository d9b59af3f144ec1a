"""Which operating system an image is by its reference, and which one a recipe can stand on. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ringleader.images.recipe import Conflict
from ringleader.images.tables import Base, bases

WITHOUT_APT = re.compile(
    r"(^|/)(alpine|almalinux|amazonlinux|archlinux|busybox|centos|clearlinux|distroless|fedora|mageia|oraclelinux"
    r"|photon|rockylinux|scratch|ubi[0-9]*(-[a-z]+)?|opensuse|suse|sles?|wolfi-base|nixos)(/|$)|^scratch$"
)
TAG_WITHOUT_APT = re.compile(
    r"(^|-)(alpine|ubi|rockylinux|rocky|centos|amzn|el|fc|opensuse|leap)[0-9.]*(-|$)"
)
APT_HINT = "images stand on Debian or Ubuntu: ubuntu:24.04, debian:12, or such a flavor of the same image"
LIKE_HINT = 'say which of the known ones it resembles: base-like = "debian:12". Known: '


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
    flavor: str
    """``base`` (the runtime library alone), ``runtime`` (with NCCL and the maths libraries) or ``devel``."""
    has_cudnn: bool


def find_base(reference: str) -> Base | None:
    """Return the operating system of an image that its reference tells; None where it does not tell.

    A tag that moves (``debian``, ``ubuntu:latest``, ``debian:stable``) tells nothing.
    """
    name, tag = name_and_tag(reference)
    if is_cuda(name):
        match = CUDA_TAG.match(tag)
        return _find(CUDA_FAMILIES.get(match[2], ""), match[3]) if match else None
    for image, family in IMAGE_NAMES.items():
        if name == image or name.endswith(f"/{image}"):
            return _find(family, tag.partition("-")[0])
    return None


def find_cuda_image(reference: str) -> CudaImage | None:
    """Return what the reference of an ``nvidia/cuda`` image tells; None for every other image."""
    name, tag = name_and_tag(reference)
    match = CUDA_TAG.match(tag) if is_cuda(name) else None
    if match is None:
        return None
    parts = tag.split("-")
    flavor = next((part for part in ("devel", "runtime", "base") if part in parts), "devel")
    return CudaImage(
        version=match[1], flavor=flavor, has_cudnn=any(part.startswith("cudnn") for part in parts)
    )


def name_and_tag(reference: str) -> tuple[str, str]:
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


def conflicts(head: Mapping[str, Any]) -> Iterator[Conflict]:
    """Yield what is wrong with the bases among a recipe's own keys, as far as they were understood."""
    like = head.get("base_like", "")
    known = ", ".join(base.name for base in bases() if base.has_apt)
    if like and (find_base(like) is None or not _has_apt(like)):
        yield Conflict(("base-like",), f"{like!r} is not a known base with apt", f"Known: {known}")
    own = find_base(head.get("base", ""))
    if like and own is not None and find_base(like) not in (None, own):
        yield Conflict(("base-like",), f"{head['base']} is {own.name}, not {like}", "leave base-like out")
    for key in ("base", "build-base"):
        reference = head.get(key.replace("-", "_"), "")
        if reference and not _has_apt(reference):
            yield Conflict((key,), f"{reference} has no apt", APT_HINT)
        elif reference and not like and key == "base" and own is None:
            yield Conflict((key,), f"{reference} does not tell what it is", LIKE_HINT + known)


def _has_apt(reference: str) -> bool:
    """Tell whether an image may have apt, by its name and tag."""
    found = find_base(reference)
    if found is not None:
        return found.has_apt
    name, tag = name_and_tag(reference)
    return WITHOUT_APT.search(name) is None and TAG_WITHOUT_APT.search(tag) is None

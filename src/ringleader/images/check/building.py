"""Rules: what an image is built with must fit what it stands on, and can be fetched there. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ringleader.finding import Finding, fault, warning
from ringleader.images.base_image import find_base, find_cuda_image, name_and_tag
from ringleader.images.check.version_lookup import VersionLookup

BARE = ("debian", "ubuntu")
"""Public images without the package ca-certificates. NVIDIA's have it: their lists of apt are on https."""


def building(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield what does not fit between the build half and the image, or cannot be fetched."""
    yield from _systems(lookup)
    yield from _cudas(lookup)
    yield from _certificates(lookup)


def _systems(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield that the two halves are of different systems: what one makes does not run on the other."""
    reference = lookup.selection.build_base
    build = find_base(reference) if reference else None
    if build is None or lookup.base is None or build.name == lookup.base.name:
        return
    made = f"what is made there with Python {build.python} and glibc {build.glibc}"
    there = f"Python {lookup.base.python} and glibc {lookup.base.glibc}"
    what = f"build-base is {build.name}, base is {lookup.base.name}: {made} does not run with {there}"
    yield fault("build-base", what, hint=f"a build-base of {lookup.base.name}, or none")


def _cudas(lookup: VersionLookup) -> Iterator[Finding]:
    build = find_cuda_image(lookup.selection.build_base)
    cuda = lookup.selection.cuda
    if build is None or not cuda:
        return
    theirs, ours = build.version.split("."), cuda.split(".")
    what = f"build-base has CUDA {build.version}, the image CUDA {cuda}"
    hint = f"a build-base with CUDA {cuda}"
    if theirs[0] != ours[0]:
        yield fault(
            "build-cuda", f"{what}: what is compiled against one does not load with the other", hint=hint
        )
    elif theirs[:2] != ours[:2]:
        yield warning("build-cuda", what, hint=hint)


def _certificates(lookup: VersionLookup) -> Iterator[Finding]:
    """Yield that apt could not check a mirror's certificate."""
    mirror = lookup.selection.apt_mirror
    if not mirror.startswith("https:"):
        return
    name = name_and_tag(lookup.selection.base)[0].removeprefix("docker.io/").removeprefix("library/")
    if name in BARE:
        what = f"apt asks {mirror} over https, and {lookup.selection.base} has no certificates to check it by"
        hint = "http: apt checks the signatures of what it fetches; or a base with ca-certificates"
        yield warning("apt-https", what, hint=hint)

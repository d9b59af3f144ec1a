"""Every NCCL that is installed here: as a Python package, and in the system."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ringleader.fabric.facts import Library
from ringleader.fabric.readers.libraries import CACHE, LARGEST_CACHE, cached, find
from ringleader.fabric.readers.software import installed, package_path
from ringleader.fabric.readers.sysfs_files import Files

NAME = "libnccl.so.2"
IN_PACKAGE = f"nvidia/nccl/lib/{NAME}"
PACKAGES = ("nvidia-nccl-cu13", "nvidia-nccl-cu12", "nvidia-nccl-cu11")
ELSEWHERE = (
    "usr/local/lib",
    "usr/local/nccl/lib",
    "usr/local/cuda/lib64",
    "opt/nccl/lib",
    "opt/nccl/build/lib",
)


def read(files: Files, environ: Mapping[str, str]) -> tuple[Library, ...]:
    """Return them, each file once, the one that PyTorch would load first.

    PyTorch's wheels have a run path (DT_RPATH) to NVIDIA's wheels, which comes before LD_LIBRARY_PATH; only
    LD_PRELOAD comes before it.
    """
    found: dict[str, Library] = {}
    for one in (*_preloaded(files, environ), *_wheels(files), *_system(files, environ)):
        found.setdefault(files.real(one.path), one)
    return tuple(found.values())


def _preloaded(files: Files, environ: Mapping[str, str]) -> Iterator[Library]:
    for path in environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if path.startswith("/") and "libnccl.so" in path and files.exists(path):
            yield Library(name=NAME, path=path, version=_version(files.real(path)), source="LD_PRELOAD")


def _wheels(files: Files) -> Iterator[Library]:
    for place in package_path(files):
        path = f"{place.rstrip('/')}/{IN_PACKAGE}"
        if files.exists(path):
            versions = installed(files, (place,))
            version = next((versions[one] for one in PACKAGES if one in versions), "")
            yield Library(name=NAME, path=f"/{path.lstrip('/')}", version=version, source="wheel")


def _system(files: Files, environ: Mapping[str, str]) -> Iterator[Library]:
    cache = cached(files.data(CACHE, limit=LARGEST_CACHE), files.architecture)
    first = find(files, NAME, environ, cache)
    if first.path:
        yield first
    for place in ELSEWHERE:
        path = f"/{place}/{NAME}"
        if files.exists(path):
            yield Library(name=NAME, path=path, version=_version(files.real(path)), source="system")


def _version(path: str) -> str:
    version = path.rpartition(".so.")[2]
    return version if version != "2" and version[:1].isdecimal() else ""

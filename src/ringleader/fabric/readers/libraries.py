"""Which shared libraries a process here would load, found as the dynamic loader finds them.

LD_LIBRARY_PATH first, then /etc/ld.so.cache, then the default directories (ld.so(8)); nothing is loaded.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Mapping

from ringleader.fabric.facts import Library
from ringleader.fabric.readers.sysfs_files import Files

NAMES = (
    "libibverbs.so.1",
    "librdmacm.so.1",
    "libmlx5.so.1",
    "libefa.so.1",
    "libucp.so.0",
    "libfabric.so.1",
    "libcuda.so.1",
    "libnvidia-ml.so.1",
    "libgdrapi.so.2",
    "libnccl.so.2",
    "librccl.so.1",
)
CACHE = "etc/ld.so.cache"
CACHE_MAGIC = b"glibc-ld.so.cache1.1"
CACHE_HEADER = 48
CACHE_ENTRY = struct.Struct("<iIIIQ")
"""Flags, offset of the name, offset of the path, OS version, hardware capabilities (glibc's dl-cache.h)."""
ARCHITECTURE_FLAGS = {"x86_64": 0x0300, "aarch64": 0x0A00, "s390x": 0x0400, "ppc64le": 0x0500}
"""Second byte of an entry's flags: whose libraries they are; 32-bit ones have another."""
DEFAULT_DIRECTORIES = ("lib", "usr/lib", "lib64", "usr/lib64")
LARGEST_CACHE = 8 << 20
PACKAGES = {"libucp.so.0": ("libucx0", "ucx.pc"), "libfabric.so.1": ("libfabric1", "libfabric.pc")}
"""Libraries whose file name does not tell the version → Debian's package, and pkg-config's file."""
DPKG = "var/lib/dpkg/status"
VERBS_CONFIGURATION = "etc/libibverbs.d"


def read(files: Files, environ: Mapping[str, str]) -> tuple[Library, ...]:
    """Return each library of NAMES; those that are not found without a path."""
    cache = cached(files.data(CACHE, limit=LARGEST_CACHE), files.architecture)
    return tuple(find(files, name, environ, cache) for name in NAMES)


def find(files: Files, name: str, environ: Mapping[str, str], cache: Mapping[str, str]) -> Library:
    """Return the library that the loader takes for a name."""
    for place in environ.get("LD_LIBRARY_PATH", "").replace(";", ":").split(":"):
        path = f"{place.rstrip('/')}/{name}"
        if place.startswith("/") and _is_library(files, path):
            return _library(files, name, path, "LD_LIBRARY_PATH")
    known = cache.get(name, "")
    if known and files.exists(known):
        return _library(files, name, known, "system")
    for directory in default_directories(files):
        path = f"/{directory}/{name}"
        if files.exists(path):
            return _library(files, name, path, "system")
    return Library(name=name)


def default_directories(files: Files) -> Iterator[str]:
    """Yield where the loader looks at last; Debian's directories of the architecture come first."""
    ending = f"{files.architecture}-linux-gnu"
    for base in ("lib", "usr/lib"):
        yield from (f"{base}/{one}" for one in files.names(base) if one.endswith(ending))
    yield from DEFAULT_DIRECTORIES


def _is_library(files: Files, path: str) -> bool:
    """Whether the loader would take it: one of 32 bits it passes over."""
    return files.exists(path) and files.data(path, limit=5)[4:5] in (b"", b"\2", b"\n")


def _library(files: Files, name: str, path: str, source: str) -> Library:
    real = files.real(path)
    found = re.search(r"\.so\.(\d[\d.]*)$", real)
    version = found[1] if found else ""
    if name in PACKAGES:
        package, record = PACKAGES[name]
        version = _recorded(files, f"{real.rpartition('/')[0]}/pkgconfig/{record}")
        if not version and source == "system":
            version = debian_version(files, package)
    # libcuda.so.1 by that name alone says nothing.
    return Library(
        name=name, path=path, version="" if name.endswith(f".so.{version}") else version, source=source
    )


def _recorded(files: Files, record: str) -> str:
    found = re.search(r"^Version:\s*(\S+)", files.text(record), re.MULTILINE)
    return found[1] if found else ""


def debian_version(files: Files, package: str) -> str:
    """Return the upstream version of an installed Debian package; empty: it is none."""
    status = files.data(DPKG, limit=32 << 20)
    start = status.find(f"Package: {package}\n".encode())
    paragraph = status[start : status.find(b"\n\n", start)] if start >= 0 else b""
    found = re.search(rb"^Version: (?:\d+:)?([^-+~\n]+)", paragraph, re.MULTILINE)
    return found[1].decode("ascii", "replace") if found else ""


def cached(data: bytes, architecture: str) -> dict[str, str]:
    """Return name → path of the loader's cache: the first of each name that is of this architecture."""
    start = data.find(CACHE_MAGIC)  # an older format may precede it
    if start < 0 or len(data) < start + CACHE_HEADER:
        return {}
    data = data[start:]
    (count,) = struct.unpack_from("<I", data, len(CACHE_MAGIC))
    wanted = ARCHITECTURE_FLAGS.get(architecture)
    found: dict[str, str] = {}
    end = min(CACHE_HEADER + count * CACHE_ENTRY.size, len(data) - CACHE_ENTRY.size + 1)
    for at in range(CACHE_HEADER, end, CACHE_ENTRY.size):
        flags, name, path, _, _ = CACHE_ENTRY.unpack_from(data, at)
        if wanted is None or flags & 0xFF00 == wanted:
            found.setdefault(_string(data, name), _string(data, path))
    return found


def _string(data: bytes, at: int) -> str:
    end = data.find(b"\0", at)
    return data[at:end].decode("utf-8", "replace") if 0 <= at < end else ""


def verbs_providers(files: Files, libraries: tuple[Library, ...]) -> tuple[str, ...]:
    """Return the providers that libibverbs would load: those configured whose library is there and fits.

    libibverbs loads ``lib<name>-rdmav<ABI>.so`` from the directory ``libibverbs`` beside itself, for each
    ``driver <name>`` of /etc/libibverbs.d.
    """
    own = next((one.path for one in libraries if one.name == "libibverbs.so.1"), "")
    if not own:
        return ()
    suffix = re.search(rb"-rdmav\d+\.so", files.data(own, limit=4 << 20))
    real = files.real(own).rpartition("/")[0]
    beside = {one for place in {real, own.rpartition("/")[0]} for one in files.names(f"{place}/libibverbs")}
    ending = suffix[0].decode() if suffix else ""
    configured = set()
    for entry in files.names(VERBS_CONFIGURATION):
        text = files.text(f"{VERBS_CONFIGURATION}/{entry}")
        configured.update(re.findall(r"^driver\s+(\S+)", text, re.MULTILINE))
    return tuple(sorted(name for name in configured if _fits(files, name, beside, ending)))


def _fits(files: Files, name: str, beside: set[str], ending: str) -> bool:
    if name.startswith("/"):
        return bool(ending) and files.exists(f"{name}{ending}")
    return any(
        re.fullmatch(rf"lib{re.escape(name)}-rdmav\d+\.so", one) and one.endswith(ending) for one in beside
    )

"""Shared libraries that are installed: which of them lack another one."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from ringleader.images.processes import answer

IN_PACKAGES = ("torch/lib/*.so*", "tensorflow/*.so*", "nvidia/*/lib/*.so*", "mxnet/*.so*")
IN_SYSTEM = (
    "usr/lib/*/libucp.so.*",
    "usr/lib/*/libfabric.so.*",
    "usr/lib/*/libibverbs.so.*",
    "usr/lib/*/librdmacm.so.*",
    "usr/lib/*/libnccl.so.*",
    "usr/lib/*/ucx/*.so*",
    "usr/lib/*/libibverbs/*.so",
    "usr/local/lib/*.so*",
    "opt/*/lib/*.so*",
    "opt/*/lib/ucx/*.so*",
    "usr/sbin/sshd",
)
"""Libraries that matter, below the root of the file system."""
NCCL_IN_SYSTEM = (
    "usr/lib/libnccl.so.*",
    "usr/lib/*/libnccl.so.*",
    "usr/local/lib/libnccl.so.*",
    "usr/local/cuda*/lib64/libnccl.so.*",
    "opt/*/lib/libnccl.so.*",
)
AT_ONCE = 200


def files(mpi_library: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the files to look at, each once, whatever links lead to it."""
    packages = Path(sysconfig.get_path("platlib"))
    found: Iterator[Path] = (path for pattern in IN_PACKAGES for path in packages.glob(pattern))
    every = [*found, *(path for pattern in IN_SYSTEM for path in root.glob(pattern))]
    if mpi_library:
        library = Path(mpi_library)
        every += [library, *library.parent.glob("openmpi*/*.so")]
    return tuple(sorted({os.path.realpath(path) for path in every if path.is_file()}))


def missing(
    paths: tuple[str, ...], *, environ: Mapping[str, str], seconds: float
) -> tuple[dict[str, tuple[str, ...]], str]:
    """Return what ``ldd`` does not find, and why ``ldd`` itself could not be asked (empty: it could)."""
    ldd = shutil.which("ldd", path=environ.get("PATH", os.defpath))
    if ldd is None:
        return {}, "there is no ldd here"
    found: dict[str, tuple[str, ...]] = {}
    for start in range(0, len(paths), AT_ONCE):
        some = paths[start : start + AT_ONCE]
        said = answer((ldd, *some), environ=environ, seconds=seconds)
        if said.code is None:
            return found, f"ldd did not end within {seconds:.0f} s"
        found |= parsed(said.out, some)
    return found, ""


def parsed(text: str, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read ldd's output: a file's lines follow its name, which is left out where only one was asked about."""
    lacks: dict[str, list[str]] = {}
    file = next(iter(paths), "")
    for line in text.splitlines():
        if line and not line[0].isspace() and line.endswith(":"):
            file = line[:-1]
            continue
        name = re.match(r"\s+(\S+) => not found", line)
        if name:
            lacks.setdefault(file, []).append(name[1])
    return {file: tuple(sorted(set(names))) for file, names in sorted(lacks.items())}


def system_nccl(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the files of an NCCL that is no part of a Python package."""
    every = (path for pattern in NCCL_IN_SYSTEM for path in root.glob(pattern))
    return tuple(sorted({os.path.realpath(path) for path in every}))


def providers(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the verbs providers whose libraries are installed: ``mlx5``, ``efa``."""
    every = root.glob("usr/lib/*/libibverbs/lib*-rdmav*.so")
    return tuple(sorted({re.sub(r"^lib(.+?)-rdmav\d+$", r"\1", path.stem) for path in every}))

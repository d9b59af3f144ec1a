"""Finds out what the self-test decides on. Everything that could hang is asked with a deadline."""

from __future__ import annotations

import json
import os
import platform
import pwd
import re
import resource
import shutil
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from configparser import ConfigParser, Error
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ringleader import __version__
from ringleader.doctor import import_checks, two_rank_test
from ringleader.doctor.image_facts import Account, Facts, Key
from ringleader.doctor.import_checks import ImportChecks
from ringleader.images.mirrors import without_credentials
from ringleader.images.processes import answer
from ringleader.images.recipe import RECORD

LDD_SECONDS = 120.0
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
KEY_FILES = ("etc/ssh/*", "root/.ssh/*", "home/*/.ssh/*")
LARGEST_KEY = 65536
PIP_SETTINGS = ("index-url", "extra-index-url", "find-links", "trusted-host")


def collect(
    *,
    environ: Mapping[str, str],
    seconds: float,
    progress: Callable[[str], None],
    manifest: Path = Path(RECORD),
) -> Facts:
    """Return the facts of this place.

    ``seconds``: what all of it may take together; what comes after that time gets a second each.
    """
    checks = ImportChecks(environ=environ, end=time.monotonic() + seconds)
    claims, manifest_error = read_manifest(manifest)
    modules = []
    for name in import_checks.DISTRIBUTIONS:
        progress(f"loading {name}")
        modules.append(checks.module(name))
    progress("loading libraries")
    libraries = tuple(checks.library(name) for name in (*import_checks.LIBRARIES, *import_checks.DRIVER))
    mpi = checks.mpi()
    paths = libraries_of_interest(mpi.library)
    progress(f"asking ldd about {len(paths)} libraries")
    missing, ldd_error = missing_libraries(paths, environ=environ, seconds=checks.left(LDD_SECONDS))
    account = own_account()
    progress("starting sshd and two ranks")
    wanted = claims is not None and "sshd" in claims.get("blocks", {})
    return Facts(
        manifest=claims,
        manifest_error=manifest_error,
        python=platform.python_version(),
        executable=sys.executable,
        ringleader=__version__,
        modules=tuple(modules),
        libraries=libraries,
        system_nccl=system_nccl(),
        mpi=mpi,
        providers=providers(),
        missing=missing,
        looked_at=len(paths),
        ldd_error=ldd_error,
        account=account,
        keys=keys(),
        pip_sources=pip_sources(environ, account.home),
        apt_hosts=apt_hosts(),
        two_ranks=two_rank_test.run(checks, own_config=wanted),
    )


def read_manifest(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return what an image says of itself (``None``: nothing), and what is wrong with that."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None, ""
    except (OSError, ValueError) as error:
        return None, str(error)
    return (found, "") if isinstance(found, dict) else (None, "it is not a JSON object")


def libraries_of_interest(mpi_library: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return the files to look at, each once, whatever links lead to it."""
    packages = Path(sysconfig.get_path("platlib"))
    found: Iterator[Path] = (path for pattern in IN_PACKAGES for path in packages.glob(pattern))
    every = [*found, *(path for pattern in IN_SYSTEM for path in root.glob(pattern))]
    if mpi_library:
        library = Path(mpi_library)
        every += [library, *library.parent.glob("openmpi*/*.so")]
    return tuple(sorted({os.path.realpath(path) for path in every if path.is_file()}))


def missing_libraries(
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
        found |= parsed_ldd(said.out, some)
    return found, ""


def parsed_ldd(text: str, paths: Iterable[str]) -> dict[str, tuple[str, ...]]:
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
    """Return the files of an NCCL that is not part of a Python package."""
    every = (path for pattern in NCCL_IN_SYSTEM for path in root.glob(pattern))
    return tuple(sorted({os.path.realpath(path) for path in every}))


def providers(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the verbs providers whose libraries are installed: ``mlx5``, ``efa``."""
    every = root.glob("usr/lib/*/libibverbs/lib*-rdmav*.so")
    return tuple(sorted({re.sub(r"^lib(.+?)-rdmav\d+$", r"\1", path.stem) for path in every}))


def own_account() -> Account:
    """Return who we are, and what we may."""
    uid = os.getuid()
    try:
        entry = pwd.getpwuid(uid)
        name, home = entry.pw_name, entry.pw_dir
    except KeyError:
        name, home = "", os.environ.get("HOME", "")
    return Account(
        uid=uid,
        name=name,
        home=home,
        home_error=_unwritable(home),
        memlock_soft=resource.getrlimit(resource.RLIMIT_MEMLOCK)[0],
    )


def _unwritable(home: str) -> str:
    if not home:
        return "there is none"
    try:
        with tempfile.TemporaryFile(dir=home):
            return ""
    except OSError as error:
        return str(error.strerror or error)


def keys(root: Path = Path("/")) -> tuple[Key, ...]:
    """Return the files with private keys that we can read, or that are not empty where we cannot."""
    places = mounts()
    found = {str(path): path for pattern in KEY_FILES for path in _listed(root, pattern) if _is_key(path)}
    return tuple(Key(path=name, mounted=_below(name, places)) for name in sorted(found))


def _listed(root: Path, pattern: str) -> Iterator[Path]:
    with suppress(OSError):
        yield from root.glob(pattern)


def _is_key(path: Path) -> bool:
    try:
        if not path.is_file() or path.suffix == ".pub" or not 0 < path.stat().st_size <= LARGEST_KEY:
            return False
        return b"PRIVATE KEY-----" in path.read_bytes()
    except PermissionError:
        return path.name.startswith(("id_", "ssh_host_"))
    except OSError:
        return False


def mounts(table: Path = Path("/proc/self/mountinfo")) -> tuple[str, ...]:
    """Return the places where something is mounted, the root aside."""
    try:
        lines = table.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ()
    return tuple(place for line in lines if (place := line.split()[4]) != "/")


def _below(path: str, places: tuple[str, ...]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def pip_sources(environ: Mapping[str, str], home: str, root: Path = Path("/")) -> tuple[str, ...]:
    """Return settings of pip that name a place to fetch from; no credentials are in them."""
    files = [root / "etc/pip.conf", Path(sys.prefix, "pip.conf")]
    files += [Path(home, ".pip/pip.conf"), Path(home, ".config/pip/pip.conf")] if home else []
    found = []
    for file in files:
        parser = ConfigParser(interpolation=None)
        with suppress(OSError, Error, UnicodeDecodeError):
            parser.read_string(file.read_text(encoding="utf-8"))
        for section in parser.sections():
            for setting in PIP_SETTINGS:
                for value in parser.get(section, setting, fallback="").split():
                    found.append(f"{file}: {setting} = {without_credentials(value)}")
    for setting in PIP_SETTINGS:
        variable = f"PIP_{setting.upper().replace('-', '_')}"
        if environ.get(variable):
            values = " ".join(without_credentials(one) for one in environ[variable].split())
            found.append(f"{variable}={values}")
    return tuple(found)


def apt_hosts(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the hosts that apt asks, by both kinds of its files."""
    place = root / "etc/apt"
    files = [
        place / "sources.list",
        *place.glob("sources.list.d/*.list"),
        *place.glob("sources.list.d/*.sources"),
    ]
    words: list[str] = []
    for file in files:
        with suppress(OSError):
            for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
                words += [] if line.lstrip().startswith("#") else line.split()
    found = {urlsplit(word).hostname for word in words if "://" in word}
    return tuple(sorted(host for host in found if host))

"""What may be left in an image that must not be: private keys, mirrors, credentials."""

from __future__ import annotations

import os
import pwd
import resource
import sys
import tempfile
from collections.abc import Iterator, Mapping
from configparser import ConfigParser, Error
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from ringleader.doctor.image_facts import Account, Key
from ringleader.images.mirrors import without_credentials

KEY_FILES = ("etc/ssh/*", "root/.ssh/*", "home/*/.ssh/*")
LARGEST_KEY = 65536
PIP_SETTINGS = ("index-url", "extra-index-url", "find-links", "trusted-host")


def account() -> Account:
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
